"""How many experts does a step read?

With k of E experts a token, a batch of B tokens reads E(1 - (1 - k/E)^B) of them if the router spreads them evenly.
A mixture saves reading at small batches only: a step of some hundred tokens reads nearly all experts.
"""

import altair as alt
import numpy as np
import pandas as pd

import perfmodel
from perfmodel.equations import experts

batch = np.unique(np.geomspace(1, 1024, 60).round())
frames = []
for name in ["deepseek-v3", "qwen3-next-80b-a3b", "qwen3-235b-a22b", "mixtral-8x7b"]:
    moe = next(run.moe for run in perfmodel.model(name).layers if run.moe is not None)
    read = experts.distinct_experts(experts=moe.experts, top_k=moe.top_k, tokens=batch)
    label = f"{name}: {moe.top_k:g} of {moe.experts:g}"
    frames.append(pd.DataFrame({"model": label, "batch": batch, "share": read / moe.experts}))

chart = (
    alt.Chart(pd.concat(frames), title="Share of the experts that one step reads")
    .mark_line(strokeWidth=2.5)
    .encode(
        alt.X("batch:Q", title="tokens of a step").scale(type="log", base=2),
        alt.Y("share:Q", title="experts read").axis(format="%"),
        alt.Color("model:N", title="model").sort(None),
    )
    .properties(width=560, height=320)
)
