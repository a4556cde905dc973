"""How full can a server be before its tail suffers?

Requests arrive at random with the lengths of Azure's conversations.  Mean, P90 and P99 of TTFT on four H100; the
title says where P99 passes a second.
"""

import altair as alt
import numpy as np
import pandas as pd

import perfmodel

rows = []
for rate in [0.5, 1, 2, 3, 4, 5, 6, 7, 8, 8.5, 9]:
    found = perfmodel.load("llama-3.3-70b", on="dgx-h100:tp=4", rate=rate, traffic="chat").to_dict()["load"]
    for key, what in {"p99": "P99", "p90": "P90", "mean": "mean"}.items():
        rows.append({"used": found["utilisation"], "what": what, "ttft_s": found["times"]["ttft_s"][key]})
frame = pd.DataFrame(rows)
tail = frame[frame.what == "P99"]
full = np.interp(1.0, tail.ttft_s, tail.used)

chart = (
    alt.Chart(
        frame, title=f"Llama-3.3-70B on four H100: P99 of TTFT passes 1 s at {full:.0%} of what they keep up with"
    )
    .mark_line(point=True, strokeWidth=2.5)
    .encode(
        alt.X("used:Q", title="requests a second over the most that the server keeps up with").axis(format="%"),
        alt.Y("ttft_s:Q", title="TTFT [s]"),
        alt.Color("what:N", title=None).sort(None),
        tooltip=["what", alt.Tooltip("ttft_s", format=".2f"), alt.Tooltip("used", format=".0%")],
    )
    .properties(width=560, height=320)
)
