"""Speculative decoding on the pipeline: drafts of several sizes as extra stages (Figure 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd

from perfmodel.equations import speculative
from perfmodel.machines import speculation
from perfmodel.machines.base import machine_of
from perfmodel.question import Options, resolve
from perfmodel.reports.figures import Chart, Claim, Figure, Layer, Table, Verdict, figure
from perfmodel.serving.steady import chips
from perfmodel.specs.paths import put
from perfmodel.specs.types import Scenario
from perfmodel.specs.units import parse

#: Tokens a step of the dataflow paper's pairs (table 1) at k = 5, for orientation: (a + 1) of AlpacaEval to HumanEval.
_SEEN = {"llama-3.2-1b": (3.78, 5.28), "llama-3.1-8b": (4.32, 5.70)}


def _passes(scenario: Scenario, context: float) -> dict[str, float]:
    """Return the time of a pass of the draft, of verifying and of decoding without a draft [s], and chips over none."""
    machine = machine_of(scenario.system)
    decoding = speculation.decode(machine, scenario, 1.0, context)
    assert decoding.draft is not None
    assert decoding.verify is not None
    return {
        "drafting": float(decoding.draft.time),
        "verifying": float(decoding.verify.time),
        "plain": float(machine.decode(speculation.target_scenario(scenario), 1.0, context).time),
        "chips": float(chips(scenario)) / float(scenario.deployment.tp * scenario.deployment.pp),
    }


def _passes_frame(
    target: str, drafts: Sequence[str], on: str, k: float, precision: str, context: float, overheads: Sequence[str]
) -> pd.DataFrame:
    """Return a row an overhead and draft: times of passes [s], chips, and the tokens a step that break even."""
    rows = []
    for overhead, draft in product(overheads, drafts):
        asked = resolve(target, on, Options(precision=precision, draft=draft, k=k, alpha=0.8))
        scenario = put(asked, "system.efficiency.layer_overhead", parse(overhead, "s"))
        name = "bare" if parse(overhead, "s") == 0 else f"{overhead} a layer"
        rows.append({"overhead": name, "draft": draft, **_passes(scenario, context)})
    return pd.DataFrame(rows).assign(
        step=lambda frame: k * frame.drafting + frame.verifying,
        even=lambda frame: frame.step / frame.plain,
        even_by_chip=lambda frame: frame.even * frame.chips,
    )


def _speeds_frame(passes: pd.DataFrame, k: float) -> pd.DataFrame:
    """Return the speed over decoding without a draft against the tokens that a step brings, also a chip."""
    rows = []
    for row in passes.to_dict("records"):
        for length in np.linspace(1, k + 1, 41):
            speed = float(row["plain"] / (row["step"] * speculative.runs_per_token(runs=1.0, length=length)))
            rows.append(
                {
                    "overhead": row["overhead"],
                    "draft": row["draft"],
                    "length": float(length),
                    "speed": speed,
                    "per_chip": speed / row["chips"],
                }
            )
    return pd.DataFrame(rows)


def _draft_verdict(needed: pd.Series[float], dear: pd.Series[float], reach: float, wins: bool) -> Verdict:
    """Return whether a draft wins, or rarely beats none, whose steps bring three quarters of what they could."""
    if wins:
        return "holds" if dear.max() < reach else "depends" if needed.min() < reach else "fails"
    return "holds" if needed.min() > reach else "depends" if dear.max() > reach else "fails"


def _draft_claims(passes: pd.DataFrame, drafts: Sequence[str], k: float) -> tuple[Claim, ...]:
    """Return which drafts win, the largest last, from the tokens a step that they need."""
    claims = []
    for draft in drafts:
        of_draft = passes[passes.draft == draft]
        needed, dear = of_draft.even, of_draft.even_by_chip
        said = (
            f"by speed it needs {needed.min():.1f} to {needed.max():.1f} of at most {k + 1:g} tokens a step, counting "
            f"the chips of its stages {dear.min():.1f} to {dear.max():.1f}"
        )
        if draft in _SEEN:
            low, high = _SEEN[draft]
            said += f"; table 1 of the dataflow paper has {low:.1f} to {high:.1f} for such a pair at k = 5"
        largest = draft == drafts[-1] and len(drafts) > 1
        claims.append(
            Claim(
                f"A draft of {draft} rarely beats none" if largest else f"A draft of {draft} wins",
                _draft_verdict(needed, dear, 0.75 * (k + 1), wins=not largest),
                f"{said}. Depth of the draft decides, not its parameters: a pass lasts as many stages "
                "as it has layers.",
            )
        )
    return tuple(claims)


def _speed_charts(speeds: pd.DataFrame, target: str, on: str, k: float) -> tuple[Chart, Chart]:
    """Return speed against the tokens of a step, by itself and with the chips of the draft counted."""
    columns = {
        "overhead": "stage overhead",
        "draft": "draft",
        "length": "tokens a step, the target's own included",
        "speed": "speed over no draft",
        "per_chip": "the same a chip",
    }
    whole = Chart(
        "ship-speculation",
        f"{target} on {on.split(':')[0]}: speed over decoding without a draft, k = {k:g}",
        speeds,
        columns,
        "length",
        "speed",
        (Layer("line"),),
        color="draft",
        facet="overhead",
        zero=True,
        caption="Drafts take stages of their own beside the target's; one request at a time",
    )
    per_chip = replace(
        whole,
        name="ship-speculation-per-chip",
        title=f"{target}: the same, with the chips of the draft counted",
        columns={**columns, "per_chip": "speed over no draft, a chip"},
        y="per_chip",
    )
    return whole, per_chip


def _passes_table(passes: pd.DataFrame, speeds: pd.DataFrame) -> Table:
    """Return the passes of each overhead and draft, where they break even and what they reach."""
    best = speeds.groupby(["overhead", "draft"], sort=False).speed.last()
    return Table(
        "Passes and break-even",
        (
            "overhead",
            "draft",
            "draft pass [us]",
            "verify [us]",
            "no draft [us]",
            "tokens to break even",
            "speed if all are accepted",
            "chips",
        ),
        [
            (
                row["overhead"],
                row["draft"],
                *(f"{time * 1e6:,.0f}" for time in (row["drafting"], row["verifying"], row["plain"])),
                f"{row['even']:.2f}",
                f"{best[row['overhead'], row['draft']]:.2f}x",
                f"{row['chips']:.2f}x",
            )
            for row in passes.to_dict("records")
        ],
        (2, 3, 4, 5, 6, 7),
    )


@figure("ship-speculation")
def speculation_on_pipeline(
    target: str = "llama-3.3-70b",
    drafts: Sequence[str] = ("llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b"),
    on: str = "lpu-v1:plan=tp16-layers",
    precision: str = "fp8",
    k: float = 5,
    context: float = 2048,
    overheads: Sequence[str] = ("0 s", "47 us"),
) -> Figure:
    """Speed over decoding without a draft, against tokens accepted a step."""
    passes = _passes_frame(target, drafts, on, k, precision, context, overheads)
    speeds = _speeds_frame(passes, k)
    first = passes[passes.overhead == passes.overhead[0]]
    words = ", ".join(f"{one['draft']} {one['even']:.1f}" for one in first.to_dict("records"))
    return Figure(
        "Speculative decoding on the pipeline",
        f"With k = {k:g} a step must bring more tokens than these to be worth its drafts: {words}. A draft costs by "
        "its layers, not by its weights.",
        charts=_speed_charts(speeds, target, on, k),
        claims=_draft_claims(passes, drafts, k),
        tables=(_passes_table(passes, speeds),),
        notes=("The paper's acceptance lengths are not known; the axis is free.",),
    )
