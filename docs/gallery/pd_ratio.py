"""Which mix of prompt and output suits which machine?

Prefill multiplies matrices, decoding reads memory, so throughput hangs on P:D, the ratio of prompt to output tokens.
Each machine runs as many requests as it can hold, up to 256; tokens in and out count, at P + D = 8,192.
"""

import altair as alt
import pandas as pd

import perfmodel

total, rows = 8192, []
for ratio in ["1:16", "1:4", "1:1", "4:1", "16:1", "64:1"]:
    into, out = map(int, ratio.split(":"))
    prompt = round(total * into / (into + out))
    for system in ["dgx-h100", "dgx-b200", "sn40l-16", "lpu-v1:plan=tp16-layers"]:
        answer = perfmodel.predict("llama-3.1-70b", on=system, prompt=prompt, output=total - prompt, concurrency=256)
        tokens = answer.input_tokens_per_s + answer.output_tokens_per_s
        rows.append({"P:D": ratio, "system": system, "per_kilowatt": tokens / answer.power_w * 1e3})

chart = (
    alt.Chart(pd.DataFrame(rows), title="Throughput against P:D, Llama-3.1-70B, P + D = 8,192")
    .mark_line(point=True, strokeWidth=2.5)
    .encode(
        alt.X("P\\:D:N", title="P:D", sort=None).axis(labelAngle=0),
        alt.Y("per_kilowatt:Q", title="input and output tokens/s per kW").scale(type="log", nice=False),
        alt.Color("system:N", title="system").sort(None),
    )
    .properties(width=560, height=320)
)
