"""Where does more HBM bandwidth cease to matter?

The elasticity of TPOT says by how many percent it falls when bandwidth grows by one percent.  At 1 a token would be
all memory time; the rest is launches, collectives, arithmetic and prefills of others, which no bandwidth buys.  The
knee at 128 requests is the ridge point of the matrix products.  The dashed line is today's DGX H100.
"""

import altair as alt
import numpy as np

import perfmodel

sweep = perfmodel.sweep(
    "llama-3.1-70b",
    on="dgx-h100",
    axes={"system.memory.hbm.bandwidth": "0.5 TB/s:40 TB/s:61:log", "traffic.concurrency": [1, 16, 128]},
    prompt=4096,
    output=512,
)
frame = sweep.to_frame(short=True).assign(terabytes=lambda rows: rows.bandwidth / 1e12)
for _, rows in frame.groupby("concurrency"):
    slope = np.gradient(np.log(rows.tpot_s), np.log(rows.bandwidth))
    frame.loc[rows.index[1:-1], "elasticity"] = -slope[1:-1]

lines = (
    alt.Chart(frame.dropna(), title="Elasticity of TPOT to HBM bandwidth, Llama-3.1-70B on eight H100")
    .mark_line(strokeWidth=2.5)
    .encode(
        alt.X("terabytes:Q", title="HBM bandwidth of a chip [TB/s]").scale(type="log", nice=False),
        alt.Y("elasticity:Q", title="% less TPOT for 1 % more bandwidth"),
        alt.Color("concurrency:N", title="requests at once").sort(None),
    )
)
today = perfmodel.system("dgx-h100").memory.hbm.bandwidth / 1e12
chart = (lines + alt.Chart().mark_rule(strokeDash=[5, 3]).encode(x=alt.datum(today))).properties(width=560, height=320)
