"""Predictions as tables in the terminal and in notebooks."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfmodel.machines.step import CAUSES
from perfmodel.prediction import Prediction
from perfmodel.question import distinct
from perfmodel.specs.types import Deployment
from perfmodel.specs.units import show

#: Row of a comparison: label, key, unit, digits.
_ROWS = (
    ("TTFT", "ttft_s", "s"),
    ("TPOT", "tpot_s", "s"),
    ("request latency", "request_latency_s", "s"),
    ("output tok/s/user", "output_tokens_per_s_per_user", "1"),
    ("input tok/s/user", "input_tokens_per_s_per_user", "1"),
    ("output tok/s", "output_tokens_per_s", "1"),
    ("input tok/s", "input_tokens_per_s", "1"),
    ("in+out tok/s/chip", "tokens_per_s_per_chip", "1"),
)


_NAN = float("nan")

#: Blanks between two columns of a table.
_GAP = 3

#: Rows of power and cost, the blended price last: its band stands below it.
_MONEY_ROWS = (
    ("power", "power_w"),
    ("J/output token", "joules_per_output_token"),
    ("$/Mtok input", "usd_per_mtok_input"),
    ("$/Mtok output", "usd_per_mtok_output"),
    ("$/Mtok blended", "usd_per_mtok_blended"),
)


def money_figure(value: float) -> str:
    """Return dollars or joules of a token with three digits."""
    return "-" if value != value else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _money(value: float, key: str) -> str:
    return show(value, "W", 3) if key == "power_w" and value == value else money_figure(value)


def _money_span(answer: Prediction) -> str:
    ends = answer.band.get("usd_per_mtok_blended")
    return f"{money_figure(ends['low'])}-{money_figure(ends['high'])}" if ends else "-"


def figure(value: float, unit: str) -> str:
    """Return a number with three digits, a time in its unit, and a dash where there is none.

    Parameters
    ----------
    value : float
    unit : str
        ``s`` or ``1``.

    Returns
    -------
    str
    """
    if value != value:
        return "-"
    if unit == "s":
        return show(value, "s", 3)
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _percent(value: float) -> str:
    return "-" if value != value else f"{value:.1%}" if value < 0.0995 else f"{value:.0%}"


def span(ends: Mapping[str, float] | None, unit: str) -> str:
    """Return a band in the unit of its upper end."""
    if not ends:
        return "-"
    low, high = ends["low"], ends["high"]
    return f"{figure(low, unit)} - {figure(high, unit)}" if low < high / 500 else _short_span(low, high)


def _short_span(low: float, high: float) -> str:
    factor, name = next(((f, n) for f, n in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")) if high >= f), (1e-6, "us"))
    return f"{low / factor:.3g}-{high / factor:.3g} {name}"


def plan_words(answer: Prediction) -> str:
    """Return the layout of an answer.

    Parameters
    ----------
    answer : Prediction

    Returns
    -------
    str
    """
    return plan_degrees(answer.scenario.deployment)


def plan_degrees(plan: Deployment) -> str:
    """Return the degrees of a layout that are more than one.

    Parameters
    ----------
    plan : Deployment

    Returns
    -------
    str
    """
    parts = [f"TP{plan.tp:g}"]
    parts += [f"PP{plan.pp:g}"] if float(plan.pp) > 1 else []
    parts += [f"ATTENTION-DP{plan.attention_dp:g}"] if float(plan.attention_dp) > 1 else []
    parts += [f"DP{plan.dp:g}"] if float(plan.dp) > 1 else []
    return " ".join(parts)


def _draft(answer: Prediction) -> str:
    speculation = answer.scenario.speculation
    return "-" if speculation is None else f"{speculation.name}, k {float(speculation.k):g}"


def _breakdown(answer: Prediction, phase: str) -> list[str]:
    parts = answer.breakdown[phase]
    total = sum(float(value) for value in parts.values())
    if not answer.limited_by or total <= 0:
        return ["-"] * len(CAUSES)
    return [_percent(float(parts[cause]) / total) if float(parts[cause]) > 0 else "" for cause in CAUSES]


def _columns(answers: Sequence[Prediction]) -> list[tuple[str, list[str]]]:
    """Return label and cells of each row; an empty label with no cells is a rule."""
    rows: list[tuple[str, list[str]]] = [
        ("plan", [plan_words(answer) for answer in answers]),
        ("engine", [answer.scenario.deployment.engine for answer in answers]),
        ("weights", [answer.scenario.deployment.precision for answer in answers]),
        ("KV cache", [answer.scenario.deployment.kv_precision for answer in answers]),
        ("chips", [f"{float(answer.chips):,g}" for answer in answers]),
    ]
    if any(answer.speculation for answer in answers):
        rows += [
            ("draft", [_draft(answer) for answer in answers]),
            (
                "tokens a step",
                [figure(float(answer.speculation.get("tokens_per_step", _NAN)), "1") for answer in answers],
            ),
            ("speed-up of TPOT", [figure(answer.speculation.get("speedup", _NAN), "1") for answer in answers]),
        ]
    rows.append(("", []))
    if any(answer.one_pass for answer in answers):
        rows += [
            (label, [figure(float(answer.one_pass.get(key, _NAN)), "1") for answer in answers])
            for label, key in (("requests/s", "requests_per_s"), ("tokens/s", "tokens_per_s"))
        ]
    for label, key, unit in _ROWS:
        rows.append((label, [figure(float(answer.metrics[key]), unit) for answer in answers]))
        if key in ("ttft_s", "tpot_s"):
            rows.append(("  80 % band", [span(answer.band.get(key), unit) for answer in answers]))
    rows += [(key.upper(), [_percent(float(answer.metrics[key])) for answer in answers]) for key in ("mfu", "mbu")]
    rows.append(("", []))
    for label, key in _MONEY_ROWS:
        rows.append((label, [_money(float(answer.metrics[key]), key) for answer in answers]))
    rows.append(("  80 % band", [_money_span(answer) for answer in answers]))
    rows.append(("", []))
    rows.append(("requests that fit", [f"{float(answer.max_concurrency):,.0f}" for answer in answers]))
    for phase, title in (("prefill", "TTFT goes to"), ("decode", "TPOT goes to")):
        rows.append(("", []))
        rows.append((title, [answer.limited_by.get(phase, "-") for answer in answers]))
        shares = [_breakdown(answer, phase) for answer in answers]
        rows += [
            (f"  {cause}", [share[index] for share in shares])
            for index, cause in enumerate(CAUSES)
            if any(share[index] for share in shares)
        ]
    return rows


def shared(lists: Sequence[Sequence[str]]) -> list[str]:
    """Return the words that every answer says, in the order of the first."""
    return [word for word in lists[0] if all(word in other for other in lists)] if lists else []


def notes(answers: Sequence[Prediction]) -> list[tuple[str, list[str]]]:
    """Return what is assumed and what to mind: said of all answers once, then of each; headings with their lines."""
    lines = []
    names = distinct([answer.scenario.system.name for answer in answers])
    for title, words in (
        ("assumed", [answer.assumed for answer in answers]),
        ("mind", [answer.warnings for answer in answers]),
    ):
        common = shared(words) if len(answers) > 1 else []
        if common:
            lines.append((f"{title}, for all", common))
        for name, said in zip(names, words, strict=True):
            own = [word for word in said if word not in common]
            if own:
                lines.append((title if len(answers) == 1 else f"{title}, for {name}", own))
    lines += [
        (f"no answer for {name}", [answer.reason]) for name, answer in zip(names, answers, strict=True) if answer.reason
    ]
    return lines


def _question(answers: Sequence[Prediction]) -> str:
    first = answers[0].scenario
    traffic = first.traffic
    if all(answer.one_pass for answer in answers):
        return f"{first.model.name}: {float(traffic.prompt):,.0f} tokens in, {float(traffic.concurrency):,.0f} at once"
    return (
        f"{first.model.name}: {float(traffic.prompt):,.0f} tokens in, {float(traffic.output):,.0f} out, "
        f"{float(traffic.concurrency):,.0f} at once"
    )


def _abreast(label: int, widths: Sequence[int], room: int) -> list[range]:
    """Return which columns stand side by side within a width: as many as fit, one at least."""
    blocks: list[range] = []
    start, used = 0, label
    for at, width in enumerate(widths):
        if at > start and used + _GAP + width > room:
            blocks.append(range(start, at))
            start, used = at, label
        used += _GAP + width
    return [*blocks, range(start, len(widths))]


def side_by_side(
    title: str, names: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], console: Any, headed: bool = True
) -> None:
    """Print a title, and columns side by side; what the terminal has no room for stands below.

    Parameters
    ----------
    title : str
    names : sequence of str
        Headings of the columns, told apart by their place where one stands twice.
    rows : sequence of (str, sequence of str)
        Label and cells; a row without cells is a gap.
    console : rich.console.Console
    headed : bool
        Whether the names stand above.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if title:
        console.print(Text(title, style="italic"))
    names = distinct(names)
    widths = [max(len(name), *(len(cells[at]) for _, cells in rows if cells)) for at, name in enumerate(names)]
    for block in _abreast(max(len(label) for label, _ in rows), widths, console.width):
        if block.start:
            console.print()
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=headed)
        table.add_column("", no_wrap=True)
        for at in block:
            table.add_column(Text(names[at]), justify="right", overflow="fold")
        for label, cells in rows:
            if cells:
                table.add_row(Text(label), *(Text(cells[at]) for at in block))
            else:
                table.add_section()
        console.print(table)


def print_comparison(answers: Sequence[Prediction], console: Any) -> None:
    """Print answers side by side, with what limits each and what was assumed."""
    side_by_side(_question(answers), [answer.scenario.system.name for answer in answers], _columns(answers), console)
    print_said(notes(answers), console)


def print_said(notes: Sequence[tuple[str, Sequence[str]]], console: Any) -> None:
    """Print headings, each with its lines below it."""
    from rich.text import Text

    for heading, lines in notes:
        if heading and lines:
            console.print()
            console.print(Text(heading))
        for line in lines:
            console.print(Text(textwrap.fill(line, console.width, initial_indent="  - ", subsequent_indent="    ")))


def plain(write: Callable[[Any], None], width: int = 100) -> str:
    """Return what is printed to a console as plain text.

    Parameters
    ----------
    write : callable
        Prints to the console that it is given.
    width : int
        Characters of a line.

    Returns
    -------
    str
    """
    from io import StringIO

    from rich.console import Console

    out = StringIO()
    # In a notebook rich would show what is printed there and then.
    write(Console(file=out, width=width, color_system=None, force_jupyter=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def comparison_text(answers: Sequence[Prediction], width: int = 100) -> str:
    """Return the comparison as plain text."""
    return plain(lambda console: print_comparison(answers, console), width)


#: How tables of answers look in a notebook, whatever its theme.
_STYLE = (
    "<style>.perfmodel table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    ".perfmodel caption{text-align:left;font-style:italic;white-space:nowrap;padding-bottom:.4em;color:inherit}"
    ".perfmodel tr{background:none!important}"
    ".perfmodel th,.perfmodel td{text-align:right;padding:.1em .8em;border:0;background:none}"
    ".perfmodel th:first-child{text-align:left;font-weight:normal;white-space:pre}"
    ".perfmodel thead th{font-weight:bold;border-bottom:1px solid currentColor}"
    ".perfmodel tr.gap th{padding-top:.7em}.perfmodel tr.gap td{padding-top:.7em}"
    ".perfmodel details{margin:.5em 0}.perfmodel summary{cursor:pointer}"
    ".perfmodel ul{margin:.2em 0 .2em 1.5em}</style>"
)


def table_html(
    title: str,
    names: Sequence[str],
    rows: Sequence[tuple[str, Sequence[str]]],
    said: Sequence[tuple[str, Sequence[str]]] = (),
) -> str:
    """Return columns side by side as an HTML table, and below it what is said of them; all text is escaped.

    Parameters
    ----------
    title : str
    names : sequence of str
        Headings of the columns, told apart by their place where one stands twice.
    rows : sequence of (str, sequence of str)
        Label and cells; a row without cells is a gap.
    said : sequence of (str, sequence of str)
        Headings with their lines: what is assumed stays folded until it is asked for.

    Returns
    -------
    str
    """

    def row(tag: str, label: str, cells: Sequence[str], kind: str = "") -> str:
        inner = "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)
        return f"<tr{kind}><th>{html.escape(label)}</th>{inner}</tr>"

    body, gap = [], ""
    for label, cells in rows:
        if cells:
            body.append(row("td", label, cells, gap))
        gap = "" if cells else ' class="gap"'
    below = ""
    for heading, lines in said:
        items = f"<ul>{''.join(f'<li>{html.escape(line)}</li>' for line in lines)}</ul>"
        state = "" if heading.startswith("assumed") else " open"
        folded = f"<details{state}><summary>{html.escape(heading)}</summary>{items}</details>"
        below += (folded if heading else items) if lines else ""
    table = f"<p>{html.escape(title)}</p>"
    if names:
        table = (
            f"<table><caption>{html.escape(title)}</caption><thead>{row('th', '', distinct(names))}</thead>"
            f"<tbody>{''.join(body)}</tbody></table>"
        )
    return f'<div class="perfmodel">{_STYLE}{table}{below}</div>'


def comparison_html(answers: Sequence[Prediction]) -> str:
    """Return the comparison as an HTML table; all text is escaped."""
    names = [answer.scenario.system.name for answer in answers]
    return table_html(_question(answers), names, _columns(answers), notes(answers))
