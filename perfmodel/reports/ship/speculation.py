"""Speculative decoding on the pipeline: drafts of several sizes as extra stages (Figure 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfmodel.equations import speculative
from perfmodel.machines import speculation
from perfmodel.machines.base import machine_of
from perfmodel.question import Options, resolve
from perfmodel.reports.figures import Chart, Claim, Figure, Layer, Table, Verdict, figure
from perfmodel.serving.steady import chips
from perfmodel.specs.paths import put
from perfmodel.specs.units import parse

#: Tokens a step of the dataflow paper's pairs (table 1) at k = 5, for orientation: (a + 1) of AlpacaEval to HumanEval.
_SEEN = {"llama-3.2-1b": (3.78, 5.28), "llama-3.1-8b": (4.32, 5.70)}


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
    length = np.linspace(1, k + 1, 41)
    rows: list[dict[str, Any]] = []
    table: list[Sequence[str]] = []
    even: dict[tuple[str, str], float] = {}
    extra: dict[str, float] = {}
    for overhead in overheads:
        name = "bare" if parse(overhead, "s") == 0 else f"{overhead} a layer"
        for draft in drafts:
            scenario = put(
                resolve(target, on, Options(precision=precision, draft=draft, k=k, alpha=0.8)),
                "system.efficiency.layer_overhead",
                parse(overhead, "s"),
            )
            machine = machine_of(scenario.system)
            decoding = speculation.decode(machine, scenario, 1.0, context)
            assert decoding.draft is not None
            assert decoding.verify is not None
            plain = float(machine.decode(speculation.target_scenario(scenario), 1.0, context).time)
            drafting, verifying = float(decoding.draft.time), float(decoding.verify.time)
            step = k * drafting + verifying
            more = float(chips(scenario)) / float(scenario.deployment.tp * scenario.deployment.pp)
            speeds = [float(plain / (step * speculative.runs_per_token(runs=1.0, length=one))) for one in length]
            extra[draft] = more
            even[name, draft] = step / plain
            rows += [
                {"overhead": name, "draft": draft, "length": float(one), "speed": speed, "per_chip": speed / more}
                for one, speed in zip(length, speeds, strict=True)
            ]
            table.append(
                (
                    name,
                    draft,
                    f"{drafting * 1e6:,.0f}",
                    f"{verifying * 1e6:,.0f}",
                    f"{plain * 1e6:,.0f}",
                    f"{even[name, draft]:.2f}",
                    f"{speeds[-1]:.2f}x",
                    f"{more:.2f}x",
                )
            )
    frame = pd.DataFrame(rows)
    words = ", ".join(f"{draft} {even[name, draft]:.1f}" for (name, draft) in even if name == rows[0]["overhead"])
    claims = []
    for draft in drafts:
        needed = [value for key, value in even.items() if key[1] == draft]
        dear = [value * extra[draft] for key, value in even.items() if key[1] == draft]
        said = (
            f"by speed it needs {min(needed):.1f} to {max(needed):.1f} of at most {k + 1:g} tokens a step, counting "
            f"the chips of its "
            f"stages {min(dear):.1f} to {max(dear):.1f}"
        )
        if draft in _SEEN:
            low, high = _SEEN[draft]
            said += f"; table 1 of the dataflow paper has {low:.1f} to {high:.1f} for such a pair at k = 5"
        largest = draft == drafts[-1] and len(drafts) > 1
        reach = 0.75 * (k + 1)
        if largest:
            verdict: Verdict = "holds" if min(needed) > reach else "depends" if max(dear) > reach else "fails"
        else:
            verdict = "holds" if max(dear) < reach else "depends" if min(needed) < reach else "fails"
        text = f"A draft of {draft} rarely beats none" if largest else f"A draft of {draft} wins"
        claims.append(
            Claim(
                text,
                verdict,
                f"{said}. Depth of the draft decides, not its parameters: a pass lasts as many stages "
                "as it has layers.",
            )
        )
    return Figure(
        "Speculative decoding on the pipeline",
        f"With k = {k:g} a step must bring more tokens than these to be worth its drafts: {words}. A draft costs by "
        f"its layers, "
        "not by its weights.",
        charts=(
            Chart(
                "ship-speculation",
                f"{target} on {on.split(':')[0]}: speed over decoding without a draft, k = {k:g}",
                frame,
                {
                    "overhead": "stage overhead",
                    "draft": "draft",
                    "length": "tokens a step, the target's own included",
                    "speed": "speed over no draft",
                    "per_chip": "the same a chip",
                },
                "length",
                "speed",
                (Layer("line"),),
                color="draft",
                facet="overhead",
                zero=True,
                caption="Drafts take stages of their own beside the target's; one request at a time",
            ),
            Chart(
                "ship-speculation-per-chip",
                f"{target}: the same, with the chips of the draft counted",
                frame,
                {
                    "overhead": "stage overhead",
                    "draft": "draft",
                    "length": "tokens a step, the target's own included",
                    "speed": "speed over no draft",
                    "per_chip": "speed over no draft, a chip",
                },
                "length",
                "per_chip",
                (Layer("line"),),
                color="draft",
                facet="overhead",
                zero=True,
                caption="Drafts take stages of their own beside the target's; one request at a time",
            ),
        ),
        claims=tuple(claims),
        tables=(
            Table(
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
                table,
                (2, 3, 4, 5, 6, 7),
            ),
        ),
        notes=("The paper's acceptance lengths are not known; the axis is free.",),
    )
