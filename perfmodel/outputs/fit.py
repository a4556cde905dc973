"""What fits, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfmodel.outputs.tables import plain, print_said, table_html
from perfmodel.outputs.verdicts import fit_verdict, print_first
from perfmodel.planning.fit import FitAnswer, gib

_GIB = 2.0**30
#: Columns of the table in a notebook.
_HEADINGS = ("of one chip", "share")
#: Parts of a chip's memory in the order of the table: key of the JSON, label.
_PARTS = (
    ("visible", "visible to the engine"),
    ("outside_budget", "left alone by the engine"),
    ("weights", "weights"),
    ("activation_peak", "peak of activations"),
    ("non_torch", "context and communication"),
    ("cuda_graphs", "CUDA graphs"),
    ("kv_pool", "KV cache"),
    ("missing", "missing"),
)


def _size(value: Any) -> str:
    number = float(value)
    for unit, size in (("GiB", _GIB), ("MiB", 2.0**20), ("KiB", 2.0**10)):
        if number >= size:
            return f"{number / size:,.4g} {unit}"
    return f"{number:,.0f} B"


def _title(answer: FitAnswer) -> str:
    scenario = answer.scenario
    plan = scenario.deployment
    degrees = [f"TP{plan.tp:g}"] + [
        f"{name.replace('_', '-').upper()}{value:g}"
        for name in ("pp", "ep", "attention_dp", "dp")
        if float(value := getattr(plan, name)) > 1
    ]
    return (
        f"{scenario.model.name} on {scenario.system.name}, {' '.join(degrees)}, {plan.engine}, "
        f"{plan.precision} weights, {plan.kv_precision} KV"
    )


def _rows(answer: FitAnswer) -> list[tuple[str, list[str]]]:
    """Return label and cells; an empty label is a rule."""
    parts = answer.parts
    whole = parts["visible"]
    rows: list[tuple[str, list[str]]] = []
    for use, label in _PARTS:
        value = parts[use]
        if use == "visible" or value > 1e-6 * whole:
            rows.append((label, [gib(value), f"{value / whole:.1%}"]))
    memory = answer.held
    if (own := memory.weights_capacity) is not None:
        rows.append(("weights, in a memory of theirs", [gib(memory.weights), f"{float(memory.weights / own):.1%}"]))
    rows += [
        ("", []),
        (f"one more token at {answer.context:,.0f}", [_size(answer.per_token), ""]),
        *([("full windows and states", [_size(answer.fixed), ""])] if answer.fixed >= 1 else []),
        (f"a request of {answer.context:,.0f} takes", [_size(memory.per_request), ""]),
        ("", []),
        ("tokens of KV cache", [f"{answer.kv_tokens:,.0f}", ""]),
        (f"requests of {answer.context:,.0f} tokens", [f"{answer.requests:,.0f}", ""]),
    ]
    return rows


def _said(answer: FitAnswer) -> list[tuple[str, Sequence[str]]]:
    reason = [answer.reason] if answer.reason else []
    return [("assumed", answer.assumed), ("mind", answer.warnings), ("does not fit", reason)]


def print_fit(answer: FitAnswer, console: Any) -> None:
    """Print the memory of a chip by use, what fits, and what was assumed."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("of one chip", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    for label, cells in _rows(answer):
        if label:
            table.add_row(Text(label), *map(Text, cells))
        else:
            table.add_section()
    print_first(fit_verdict(answer), console)
    console.print(table)
    print_said(_said(answer), console)


def fit_text(answer: FitAnswer) -> str:
    """Return the table as plain text."""
    return plain(lambda console: print_fit(answer, console))


def fit_html(answer: FitAnswer) -> str:
    """Return the table for a notebook."""
    return table_html(_title(answer), _HEADINGS, _rows(answer), _said(answer))
