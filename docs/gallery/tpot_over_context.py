"""How does a long context slow a token down?

One user of Llama-3.1-70B on three kinds of machine.  A token reads all weights and the whole KV cache, so TPOT rises
with the context by the cache's share of its time.  Most of the LPU's time is a stage overhead drawn from public
speeds.
"""

import altair as alt

import perfmodel

sweep = perfmodel.sweep(
    "llama-3.1-70b",
    on="dgx-h100",
    axes={"system": ["dgx-h100", "sn40l-16", "lpu-v1:plan=tp16-layers"], "traffic.prompt": "1000:120000:25:log"},
    prompt=1000,
    output=128,
)
frame = sweep.to_frame(short=True).assign(tpot_ms=lambda rows: rows.tpot_s * 1e3)

chart = (
    alt.Chart(frame, title="TPOT of one user against context, Llama-3.1-70B")
    .mark_line(strokeWidth=2.5)
    .encode(
        alt.X("prompt:Q", title="prompt [tokens]").scale(type="log", nice=False).axis(format="~s"),
        alt.Y("tpot_ms:Q", title="TPOT [ms]"),
        alt.Color("system:N", title="system").sort(None),
        tooltip=["system", alt.Tooltip("prompt", format=",.0f"), alt.Tooltip("tpot_ms", format=".2f")],
    )
    .properties(width=560, height=320)
)
