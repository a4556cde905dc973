"""How many long requests fit, by kind of attention?

Grouped queries, latents and sliding windows differ in the bytes of cache that a token takes, and weights in the room
that they leave.  Eight H200, each model in its checkpoint's precision.  Latents are small, but each GPU of a
tensor-parallel group holds all of them, where grouped queries are split.
"""

import altair as alt
import pandas as pd

import perfmodel

kinds = {
    "llama-3.1-70b": "grouped queries",
    "deepseek-v3": "latents",
    "gemma-3-27b": "windows of 1,024 in five layers of six",
    "gpt-oss-120b": "windows of 128 in every other layer",
}
rows = [
    {
        "model": f"{model}: {kind}",
        "context": context,
        "requests": perfmodel.fit(model, on="dgx-h200", context=context).requests,
    }
    for model, kind in kinds.items()
    for context in [1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072]
]

chart = (
    alt.Chart(pd.DataFrame(rows), title="Requests that fit on a DGX H200 against their length")
    .mark_line(point=True, strokeWidth=2.5)
    .encode(
        alt.X("context:Q", title="tokens of a request").scale(type="log", base=2).axis(format=","),
        alt.Y("requests:Q", title="requests at once").scale(type="log", nice=False),
        alt.Color("model:N", title="model").sort(None).legend(orient="bottom", columns=2, labelLimit=400),
    )
    .properties(width=560, height=320)
)
