"""Answers about load as tables, rows and lines."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from perfmodel.outputs.tables import plain, print_said, side_by_side, table_html
from perfmodel.planning.course import Course
from perfmodel.planning.course import lines as course_lines
from perfmodel.planning.load import Sized, assumptions, cautions, plan_name
from perfmodel.planning.mixed import Mixed
from perfmodel.planning.pools import Disaggregated, tokens_a_chip
from perfmodel.planning.size import Sizing
from perfmodel.planning.verdict import asked, floor_words, lines, price_words
from perfmodel.question import distinct
from perfmodel.serving.objectives import TIMES, statistic
from perfmodel.specs.units import show

_TIMES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "latency": "request"}
_WHAT = ("mean", "p50", "p90", "p99")


def _time(value: float) -> str:
    return show(value, "s", 3) if math.isfinite(value) else "saturated"


def _plain(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else "-"


def _cells(answer: Sized, spared: bool) -> list[tuple[str, str]]:
    load, queue = answer.load, answer.load.queue
    rows = [
        ("plan", plan_name(answer.scenario)),
        ("engine", answer.scenario.deployment.engine),
        ("replicas", f"{load.replicas:,}"),
        ("chips", f"{answer.chips:,.0f}"),
        *_sureness(answer),
        ("batch cap", f"{answer.batch_cap:,.0f}"),
        ("token budget", f"{answer.token_budget:,.0f}"),
        ("", ""),
        ("running a replica", _plain(queue.running, ".3g")),
    ]
    if answer.checked is not None:
        checked = answer.checked
        rows += [
            (f"simulated {_TIMES[time]} {what if what == 'mean' else what.upper()}", _time(checked.values[time, what]))
            for time, what in checked.values
        ]
        rows.append(("", ""))
    for time in TIMES:
        rows += [
            (f"{_TIMES[time]} {what.upper() if what != 'mean' else what}", _time(statistic(queue, time, what)))
            for what in _WHAT
        ]
        rows.append(("", ""))
    money, power = answer.usd_per_hour, answer.power_w
    spares = answer.availability
    if spares is not None:
        rows += [
            ("spares", f"{spares.spares:,} {spares.unit}" if spares.spares >= 0 else "out of reach"),
            ("recovery", show(spares.recovery_s, "s", 3)),
            ("requests hit", f"{spares.hit:.2g}"),
            ("", ""),
        ]
    elif spared:
        rows += [("spares", "-"), ("recovery", "-"), ("requests hit", "-"), ("", "")]
    return [
        *rows,
        ("goodput /s", _plain(load.goodput, ".4g")),
        ("utilisation", f"{queue.utilisation:.0%}"),
        ("headroom", _plain(load.headroom, "+.0%")),
        ("USD an hour", _plain(money, ",.4g")),
        ("USD a Mtok", _plain(answer.usd_per_mtok, ".3g")),
        ("power", show(power, "W", 3) if math.isfinite(power) else "not published"),
    ]


def _sureness(answer: Sized) -> list[tuple[str, str]]:
    """Return what the spread of the prediction does to an answer of a search."""
    sure = answer.sure
    if sure is None:
        return []
    most = f"{sure.most:,.0f}" if math.isfinite(sure.most) else "none serves"
    return [("  80 % band", f"{sure.least:,.0f}-{most}"), ("meets it with", f"{sure.probability:.0%}")]


def answer_rows(answers: Sequence[Sized]) -> list[tuple[str, list[str]]]:
    """Return label and cells of each number of answers, a gap between subjects.

    Parameters
    ----------
    answers : sequence of Sized
    """
    spared = any(answer.availability is not None for answer in answers)
    columns = [_cells(answer, spared) for answer in answers]
    return [(cells[0][0], [cell for _, cell in cells] if cells[0][0] else []) for cells in zip(*columns, strict=True)]


def _names(answers: Sequence[Sized]) -> list[str]:
    return [answer.scenario.system.name for answer in answers]


def _bounds(answers: Sequence[Sized]) -> list[tuple[str, list[str]]]:
    """Return what each answer needs by period, and what binds first as its traffic grows."""
    lines = []
    for system, answer in zip(distinct(_names(answers)), answers, strict=True):
        name = f"{system}: " if len(answers) > 1 else ""
        if answer.periods:
            counts = [count for _, count in answer.periods]
            mean = sum(counts) / len(counts)
            lines.append(
                f"{name}by period {min(counts):,} to {max(counts):,} replicas, {mean:.3g} on average: "
                f"{mean / answer.load.replicas:.0%} of those of the peak"
            )
        met = math.isfinite(answer.load.headroom)
        verb = "first to bind as traffic grows" if met else "not met as it is"
        lines.append(f"{name}{verb}: {answer.load.first_limit}")
    return [("", lines)]


def _notes(answers: Sequence[Sized]) -> list[tuple[str, Sequence[str]]]:
    """Return what was assumed and what to mind, of each answer."""
    notes: list[tuple[str, Sequence[str]]] = []
    for system, answer in zip(distinct(_names(answers)), answers, strict=True):
        name = f", for {system}" if len(answers) > 1 else ""
        notes.append((f"assumed{name}", assumptions(answer.scenario)))
        mind = [*answer.scenario.warnings, *cautions(answer.scenario, answer.load), *answer.idle]
        notes.append((f"mind{name}", mind))
    return notes


def load_title(answers: Sequence[Sized]) -> str:
    """Return what arrives at plans and what is asked of it, in words."""
    load = answers[0].load
    lengths = load.service.lengths
    prompt, output = lengths.mean(lengths.prompt), lengths.mean(lengths.output)
    return (
        f"{answers[0].scenario.model.name}: {load.rate:g} requests/s of {prompt:,.0f} tokens in and "
        f"{output:,.0f} out on average, {asked(load.objectives)}"
    )


def print_load(answers: Sequence[Sized], console: Any) -> None:
    """Print answers side by side, with what binds first, what was assumed and what to mind.

    Parameters
    ----------
    answers : sequence of Sized
    console : rich.console.Console
    """
    side_by_side(load_title(answers), _names(answers), answer_rows(answers), console)
    print_said([*_bounds(answers), *_notes(answers)], console)


def load_html(answers: Sequence[Sized]) -> str:
    """Return answers side by side as HTML."""
    return table_html(load_title(answers), _names(answers), answer_rows(answers), [*_bounds(answers), *_notes(answers)])


def print_pools(answer: Disaggregated, console: Any) -> None:
    """Print the pools of a disaggregated deployment side by side.

    Parameters
    ----------
    answer : Disaggregated
    console : rich.console.Console
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    title = f"{answer.decode.model.name}: {answer.rate:g} requests/s, {asked(answer.objectives)}"
    pools = answer.pools
    if pools is not None:
        console.print(Text(textwrap.fill(answer.verdict(), console.width), style="bold"))
        console.print()
    console.print(Text(title, style="italic"))
    if pools is not None:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for heading in ("", "prefill pool", "decode pool"):
            table.add_column(heading, justify="right" if heading else "left")
        sides = answer.sides
        loads = tuple(side.load for side in sides)
        rows = [
            ("system", [answer.prefill.system.name, answer.decode.system.name]),
            ("plan", [plan_name(answer.prefill), plan_name(answer.decode)]),
            ("replicas", [f"{load.replicas:,}" for load in loads]),
            ("utilisation", [f"{load.queue.utilisation:.0%}" for load in loads]),
            ("headroom", [_plain(load.headroom, "+.0%") for load in loads]),
            ("chips", [f"{side.chips:,.0f}" for side in sides]),
            ("  80 % band", [dict(_sureness(side)).get("  80 % band", "-") for side in sides]),
            ("USD an hour", [_plain(side.usd_per_hour, ",.4g") for side in sides]),
            ("power", [show(side.power_w, "W", 3) if math.isfinite(side.power_w) else "-" for side in sides]),
            ("tokens/s a chip", [f"{tokens_a_chip(side):,.4g}" for side in sides]),
        ]
        for at, side in enumerate(sides):
            for (time, what), value in (side.checked.values if side.checked is not None else {}).items():
                name = f"simulated {_TIMES[time]} {what if what == 'mean' else what.upper()}"
                rows.append((name, [_time(value) if place == at else "" for place in range(2)]))
        for what in _WHAT:
            name = what if what == "mean" else what.upper()
            rows.append((f"TTFT {name}", [_time(statistic(loads[0].queue, "ttft", what)), ""]))
        for what in _WHAT:
            name = what if what == "mean" else what.upper()
            rows.append((f"TPOT {name}", ["", _time(statistic(loads[1].queue, "tpot", what))]))
        for what in _WHAT:
            name = what if what == "mean" else what.upper()
            rows.append((f"ITL {name}", ["", _time(statistic(loads[1].queue, "itl", what))]))
        for label, cells in rows:
            table.add_row(Text(label), *map(Text, cells))
        console.print(table)
        moved = show(pools.transfer, "s", 3) if math.isfinite(pools.transfer) else "not published"
        late = show(pools.tpot_mean, "s", 3) if math.isfinite(pools.tpot_mean) else "not published"
        lines = [
            f"{answer.total('chips'):,.0f} chips; at capacity {pools.ratio:.3g} prefill replicas for each that decodes",
            f"moving a prompt's cache takes {moved}; mean TPOT with it and the wait at the door {late}",
        ]
        print_said([("", lines)], console)
    print_said([("assumed", answer.assumed), ("mind", answer.warnings)], console)


def _sizing_title(sizing: Sizing) -> str:
    model = sizing.answers[0].scenario.model.name
    return f"{model}: {sizing.rate:g} requests/s, {asked(sizing.objectives)}, least {sizing.goal}"


def _floors(sizing: Sizing) -> list[str]:
    return [words for answer in sizing.answers for words in floor_words(answer)]


def _sizing_said(sizing: Sizing, explain: bool, more: str) -> list[tuple[str, Sequence[str]]]:
    """Return what binds, why the others lose, what was assumed and what to mind; ``more`` lists every rejected plan."""
    others = sizing.rejected[: max(0, len(sizing.answers) - 1)]
    rest = sizing.rejected[len(others) :]
    notes: list[tuple[str, Sequence[str]]] = [
        ("", lines(sizing.answers, sizing.unserved)),
        *_bounds(sizing.answers),
        ("what objectives cost", [*_floors(sizing), *(price_words(sizing.answers[0]) if sizing.answers else [])]),
        ("why the others lose", [f"{entry.system}, {entry.plan}: {entry.reason}" for entry in others]),
    ]
    if explain:
        heading = f"rejected, of {sizing.candidates:,} candidates"
        notes.append((heading, [f"{entry.system}, {entry.plan}: {entry.reason}" for entry in rest]))
    elif rest:
        notes.append(("", [f"{len(rest)} plans rejected, {sizing.candidates:,} candidates: {more} lists them"]))
    return [*notes, ("assumed", sizing.assumed), ("mind", sizing.warnings)]


def print_sizing(sizing: Sizing, console: Any, explain: bool, more: str = "--explain-rejected") -> None:
    """Print the answers of a search, and why the others lose.

    Parameters
    ----------
    sizing : Sizing
    console : rich.console.Console
    explain : bool
        Whether to list every rejected plan, else only how the best of the other systems lose.
    more : str
        What lists them.
    """
    if sizing.answers:
        from rich.text import Text

        console.print(Text(textwrap.fill(sizing.verdict(), console.width), style="bold"))
        console.print()
        side_by_side(_sizing_title(sizing), _names(sizing.answers), answer_rows(sizing.answers), console)
    print_said(_sizing_said(sizing, explain, more), console)


def sizing_html(sizing: Sizing) -> str:
    """Return the answers of a search as HTML."""
    if not sizing.answers:
        return table_html(sizing.reason, [], [], [("assumed", sizing.assumed), ("mind", sizing.warnings)])
    said = _sizing_said(sizing, False, "to_dict()")
    return table_html(
        f"{sizing.verdict()}. {_sizing_title(sizing)}", _names(sizing.answers), answer_rows(sizing.answers), said
    )


def load_text(answer: Sized) -> str:
    """Return one answer as plain text."""
    return plain(lambda console: print_load([answer], console))


def one_load_html(answer: Sized) -> str:
    """Return one answer as HTML."""
    return load_html([answer])


def pools_text(answer: Disaggregated) -> str:
    """Return the pools of a disaggregated deployment as plain text."""
    return plain(lambda console: print_pools(answer, console))


def sizing_text(sizing: Sizing) -> str:
    """Return the answers of a search as plain text, or why there are none."""
    shown = plain(lambda console: print_sizing(sizing, console, False, "to_dict()"))
    return shown if sizing.answers else f"{textwrap.fill(sizing.reason, 100)}\n{shown}"


def print_course(course: Course, console: Any, explain: bool = False) -> None:
    """Print the answers of one question at several rates: what lasts, a line a step, and where the answer flips.

    Parameters
    ----------
    course : Course
    console : rich.console.Console
    explain : bool
        Whether to list every rejected plan of each step.
    """
    from rich.text import Text

    console.print(Text(textwrap.fill(course.verdict(), console.width), style="bold"))
    first = course.sizings[0]
    paths = [
        f"{path.system}: {' -> '.join(f'{chips:,.0f}' for chips in path.chips)} chips"
        + (f", {path.usd:,.4g} USD an hour on average" if math.isfinite(path.usd) else "")
        for path in course.paths
    ]
    unserved = dict.fromkeys(f"{name}: {why}" for sizing in course.sizings for name, why in sizing.unserved)
    rejected = [
        f"{sizing.rate:g}/s, {entry.system}, {entry.plan}: {entry.reason}"
        for sizing in course.sizings
        for entry in (sizing.rejected if explain else ())
    ]
    print_said(
        [
            ("rate by rate", course_lines(course)),
            ("systems that serve every one", paths),
            ("where the answer changes", course.flips()),
            ("what does not serve", list(unserved)),
            ("rejected", rejected),
            ("assumed", first.assumed),
            ("mind", list(dict.fromkeys(word for sizing in course.sizings for word in sizing.warnings))),
        ],
        console,
    )


def course_text(course: Course) -> str:
    """Return the answers of one question at several rates as plain text."""
    return plain(lambda console: print_course(course, console))


def print_mixed(answer: Mixed, console: Any, explain: bool = False) -> None:
    """Print what several traffics take on one fleet, traffic by traffic, and what a fleet each takes.

    Parameters
    ----------
    answer : Mixed
    console : rich.console.Console
    explain : bool
        Whether to list every rejected plan of the one fleet.
    """
    from rich.text import Text

    console.print(Text(textwrap.fill(answer.verdict(), console.width), style="bold"))
    console.print()
    together = answer.together
    if together.answers:
        title = f"{together.answers[0].scenario.model.name}: {answer.mix.name} on one fleet, least {together.goal}"
        side_by_side(title, _names(together.answers), answer_rows(together.answers), console)
    print_said(
        [("traffic by traffic, in the simulation of all", answer.lines()), ("a fleet each", answer.fleets())], console
    )
    print_said(_sizing_said(together, explain, "--explain-rejected"), console)


def mixed_text(answer: Mixed) -> str:
    """Return what several traffics take as plain text."""
    return plain(lambda console: print_mixed(answer, console))
