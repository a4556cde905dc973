"""From which acceptance does a draft model pay?

A draft proposes k tokens, the target checks them in one step.  Below the line at 1 a token takes longer than with no
draft at all.  The more tokens are drafted, the better the draft must be.
"""

import altair as alt
import pandas as pd

import perfmodel

question = {"prompt": 1024, "output": 1024}
frames = []
for system in ["dgx-h100", "sn40l-16"]:
    plain = perfmodel.predict("llama-3.1-70b", on=system, **question)
    sweep = perfmodel.sweep(
        "llama-3.1-70b",
        on=system,
        axes={"speculation.alpha": "0.1:0.98:45", "speculation.k": [2, 4, 8]},
        draft="llama-3.2-1b",
        k=4,
        alpha=0.8,
        **question,
    )
    frames.append(
        sweep.to_frame(short=True).assign(system=system, speedup=lambda rows, was=plain.tpot_s: was / rows.tpot_s)
    )

lines = (
    alt.Chart()
    .mark_line(strokeWidth=2.5)
    .encode(
        alt.X("alpha:Q", title="acceptance of a drafted token"),
        alt.Y("speedup:Q", title="speed-up of TPOT"),
        alt.Color("k:N", title="drafted tokens k"),
    )
)
even = alt.Chart().mark_rule(strokeDash=[5, 3]).encode(y=alt.datum(1))
chart = (
    alt.layer(lines, even, data=pd.concat(frames))
    .properties(width=300, height=280)
    .facet(alt.Column("system:N", title=None), title="Llama-3.1-70B with Llama-3.2-1B as its draft, one user")
)
