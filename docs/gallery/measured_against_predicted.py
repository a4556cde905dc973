"""How far are predictions from measurements?

Largest throughputs that others have published, on which nothing here was fitted, against the predictions.  On the
line they would be equal; between the dotted ones they lie within 20 %.
"""

import altair as alt
import numpy as np
import pandas as pd

import perfmodel

frame = perfmodel.validate().to_frame()
frame = frame[(frame.part == "predicted") & (frame.metric_family == "largest throughput")].dropna(subset="predicted")
frame = frame[["matched_model", "matched_system", "value", "predicted"]]
off = (frame.predicted / frame.value - 1).abs()
ends = np.array([frame.value.min(), frame.value.max()])
guide = pd.concat(
    pd.DataFrame({"measured": ends, "line": ends * factor, "factor": factor}) for factor in (0.8, 1.0, 1.2)
)

points = (
    alt.Chart(frame)
    .mark_point(filled=True, opacity=0.7, size=45)
    .encode(
        alt.X("value:Q", title="measured [output tokens/s]").scale(type="log", nice=False),
        alt.Y("predicted:Q", title="predicted [output tokens/s]").scale(type="log", nice=False),
        alt.Color("matched_system:N", title="system"),
        tooltip=[
            "matched_model",
            "matched_system",
            alt.Tooltip("value", format=",.0f"),
            alt.Tooltip("predicted", format=",.0f"),
        ],
    )
)
lines = (
    alt.Chart(guide)
    .mark_line(color="grey")
    .encode(
        alt.X("measured:Q").scale(type="log", nice=False),
        alt.Y("line:Q"),
        alt.StrokeDash("factor:N", legend=None).scale(domain=[0.8, 1.0, 1.2], range=[[2, 3], [1, 0], [2, 3]]),
    )
)
chart = (lines + points).properties(
    width=480,
    height=440,
    title=f"{len(frame)} largest throughputs, never fitted on: off by {off.mean():.0%} (median {off.median():.0%})",
)
