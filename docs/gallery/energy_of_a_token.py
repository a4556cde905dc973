"""How much energy does a token take?

Watts over tokens a second.  A machine that waits draws power too, so the joules of a token fall as requests share it.
LPU and SN40L draw a fixed share of their nameplate, whatever the load: nobody has published more.
"""

import altair as alt

import perfmodel

sweep = perfmodel.sweep(
    "llama-3.1-70b",
    on="dgx-h100",
    axes={
        "system": ["dgx-h100", "dgx-b200", "sn40l-16", "lpu-v1:plan=tp16-layers"],
        "traffic.concurrency": "1:512:19:log",
    },
    prompt=1024,
    output=1024,
)

chart = (
    alt.Chart(sweep.to_frame(short=True), title="Energy of an output token, Llama-3.1-70B, 1,024 tokens in and out")
    .mark_line(strokeWidth=2.5)
    .encode(
        alt.X("concurrency:Q", title="requests at once").scale(type="log", base=2),
        alt.Y("joules_per_output_token:Q", title="J per output token").scale(type="log", nice=False).axis(format="~s"),
        alt.Color("system:N", title="system").sort(None),
    )
    .properties(width=560, height=320)
)
