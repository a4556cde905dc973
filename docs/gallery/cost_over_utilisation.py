"""What does an idle machine cost?

Capital, space and upkeep are paid around the clock, whatever share of the day a machine works.  Prices of machines
are estimates: the band holds 80 % of what they and the errors of the times leave open.
"""

import altair as alt
import pandas as pd

import perfmodel

rows = []
for share in [0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0]:
    answer = perfmodel.predict("llama-3.1-70b", on="dgx-h100", concurrency=64, set={"economics.utilisation": share})
    band = answer.band["usd_per_mtok_blended"]
    rows.append({"utilisation": share, "usd": answer.usd_per_mtok_blended, **band})

base = alt.Chart(pd.DataFrame(rows), title="Cost of a token, Llama-3.1-70B on a DGX H100, 64 requests at once")
across = alt.X("utilisation:Q", title="share of the day that the machine works").axis(format="%")
band = base.mark_area(opacity=0.2).encode(
    across, alt.Y("low:Q", title="USD per million tokens, in and out").scale(type="log", nice=False), alt.Y2("high:Q")
)
line = base.mark_line(point=True, strokeWidth=2.5).encode(across, alt.Y("usd:Q"))
chart = (band + line).properties(width=560, height=320)
