"""What does a faster answer cost in throughput?

More requests at once share one reading of the weights: throughput rises, and each user's tokens come more slowly.
Per kilowatt, so that eight GPUs and a thousand LPUs can be compared.  The step in a curve of GPUs is where the engine
changes the algorithm of its all-reduce.
"""

import altair as alt

import perfmodel

sweep = perfmodel.sweep(
    "llama-3.1-70b",
    on="dgx-h100",
    axes={
        "system": ["dgx-h100", "dgx-b200", "sn40l-16", "lpu-v1:plan=tp16-layers"],
        "traffic.concurrency": "1:1024:21:log",
    },
    prompt=1024,
    output=1024,
)
frame = sweep.to_frame(short=True).assign(per_kilowatt=lambda rows: rows.output_tokens_per_s / rows.power_w * 1e3)

chart = (
    alt.Chart(frame, title="Throughput against speed, Llama-3.1-70B, 1,024 tokens in and out")
    .mark_line(point=alt.OverlayMarkDef(size=35), strokeWidth=2)
    .encode(
        alt.X("output_tokens_per_s_per_user:Q", title="output tokens/s of one user"),
        alt.Y("per_kilowatt:Q", title="output tokens/s per kW").scale(type="log", nice=False),
        alt.Color("system:N", title="system").sort(None),
        order="concurrency",
        tooltip=["system", alt.Tooltip("concurrency", format=".0f"), alt.Tooltip("per_kilowatt", format=".3g")],
    )
    .properties(width=560, height=340)
)
