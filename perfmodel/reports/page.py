"""A report: one page that opens offline, and PNG, SVG and CSV of each chart."""

from __future__ import annotations

import concurrent.futures
import math
import multiprocessing
import os
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfmodel.errors import UserError
from perfmodel.outputs import page
from perfmodel.reports import charts
from perfmodel.reports.figures import Chart, Claim, Figure, Number, Recipe, Wanted, make, read_recipe
from perfmodel.specs.release import versions
from perfmodel.writing import make_folder, whole

_NUMBER_HEADINGS = ("what", "published", "computed", "error", "is", "used", "source", "mind")


@dataclass(frozen=True)
class Made:
    """A figure that stands in the folder, the specs of its charts, and how long it took [s]."""

    wanted: Wanted
    figure: Figure
    specs: Sequence[dict[str, Any]]
    seconds: float


def _files(figure: Figure) -> tuple[Chart, ...]:
    """Return the charts of a figure that have files, that of the first screen too."""
    return (*figure.charts, *([figure.hero] if figure.hero else []))


def _make(wanted: Wanted, folder: Path) -> Made:
    """Work out one figure and write the files of its charts."""
    start = time.perf_counter()
    figure = make(wanted)
    specs = [charts.spec(chart) for chart in figure.charts]
    heroes = [charts.with_crossings(figure.hero, charts.spec(figure.hero))] if figure.hero else []
    for chart, spec in zip(_files(figure), [*specs, *heroes], strict=True):
        png, svg = charts.picture(spec)
        with whole(folder / f"{chart.name}.png") as partial:
            partial.write_bytes(png)
        with whole(folder / f"{chart.name}.svg") as partial:
            partial.write_text(svg, encoding="utf-8")
        with whole(folder / f"{chart.name}.csv") as partial, partial.open("w", encoding="utf-8", newline="") as file:
            charts.write_csv(chart, file)
    return Made(wanted, figure, specs, time.perf_counter() - start)


def _all(wanted: Sequence[Wanted], folder: Path) -> Iterator[tuple[int, Made]]:
    """Yield each figure as it is done, with its place, on all cores."""
    workers = min(os.cpu_count() or 1, len(wanted))
    if workers == 1:
        yield from ((at, _make(report, folder)) for at, report in enumerate(wanted))
        return
    # A worker starts afresh: a fork would copy the threads of the libraries in an unknown state.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        places = {pool.submit(_make, report, folder): at for at, report in enumerate(wanted)}
        try:
            for done in concurrent.futures.as_completed(places):
                yield places[done], done.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _value(value: float, unit: str) -> str:
    if value != value:
        return "-"
    if unit == "%":
        return f"{100 * value:.3g} %"
    size = abs(value)
    text = f"{value:,.0f}" if size >= 1000 else f"{value:.4g}"
    return text if unit in ("", "1") else f"{text} {unit}"


def _number_row(number: Number) -> list[str]:
    return [
        number.what,
        "not published" if number.published is None else _value(number.published, number.unit),
        _value(number.computed, number.unit),
        f"{number.error:+.1%}" if math.isfinite(number.error) else "-",
        number.kind,
        "to fit" if number.fitted else "",
        number.source,
        number.note,
    ]


def _errors(numbers: Sequence[Number]) -> str:
    """Return in a sentence how far off predictions are; what was fitted on or worked out from print proves nothing."""
    printed = [one for one in numbers if math.isfinite(one.error)]
    if not printed:
        return ""
    errors = sorted(abs(one.error) for one in printed if one.kind == "predicted" and not one.fitted)
    rest = {
        "used to fit": sum(one.fitted for one in printed),
        "reconstructed": sum(one.kind == "reconstructed" and not one.fitted for one in printed),
        "printed elsewhere": sum(one.kind == "published" and not one.fitted for one in printed),
    }
    said = "no prediction among them"
    if errors:
        said = f"{len(errors)} predicted: median error {statistics.median(errors):.1%}, worst {errors[-1]:.1%}"
    kept = "".join(f"; {count} {what}" for what, count in rest.items() if count)
    return f"Of {len(printed)} published values {said}{kept}."


def _sentence(text: str) -> str:
    """Return the first sentence of a text."""
    return re.split(r"(?<=[a-z%)\]\d])\. (?=[A-Z0-9])", text, maxsplit=1)[0].rstrip(".") + "."


def _body(made: Made, command: str, first: bool) -> str:
    """Return what a figure shows when it is opened; the first screen has its chart already where that is the first."""
    figure = made.figure
    more = figure.answer[len(_sentence(figure.answer)) :].strip()
    drawn = list(zip(figure.charts, made.specs, strict=True))
    if first and figure.hero is None:
        drawn = drawn[1:]
    parts = [
        page.paragraph(more),
        *(charts.on_page(chart, spec, command) for chart, spec in drawn),
        page.table(_NUMBER_HEADINGS, [_number_row(one) for one in figure.numbers], _errors(figure.numbers), (1, 2, 3)),
        *(page.table(table.headings, table.rows, table.caption, table.numbers) for table in figure.tables),
        page.listed(figure.notes, "notes"),
    ]
    return "\n".join(part for part in parts if part)


def _opening(recipe: Recipe, made: Made, claims: Sequence[Claim], command: str) -> page.Opening:
    """Return the first screen: the figure that answers the question."""
    figure = made.figure
    hero = ""
    if chart := figure.hero or next(iter(figure.charts), None):
        spec = charts.with_crossings(chart, charts.spec(chart))
        lower = {**spec, "height": 330} if "height" in spec else spec
        hero = charts.on_page(chart, lower, command, 2)
    compared = figure.compared
    counts = {name: sum(one.verdict == name for one in claims) for name in ("holds", "fails", "depends")}
    beside = [
        page.table(compared.headings, compared.rows, compared.caption, compared.numbers) if compared else "",
        page.paragraph("Claims of the papers:") + page.verdict_filter(counts) if claims else "",
    ]
    return page.Opening(recipe.title, recipe.question, figure.verdict or figure.answer, "".join(beside), hero)


def _page(recipe: Recipe, made: Sequence[Made], seconds: float) -> str:
    by_place = {one.wanted.place: at for at, one in enumerate(made)}
    report = f"perfmodel report {recipe.name}"
    claims = [(at, claim) for at, one in enumerate(made) for claim in one.figure.claims]
    groups = []
    if claims:
        rows = [[claim.verdict, claim.text, claim.why, made[at].figure.title] for at, claim in claims]
        body = page.verdicts(["verdict", "claim", "what decides", "figure"], rows, 0)
        said = f"{len(claims)} claims of the papers, with what decides each of them."
        groups.append(page.Group("Claims", [page.Fold("claims", "Every claim and its verdict", said, body)]))
    for section in recipe.sections:
        folds = []
        for wanted in section.figures:
            at = by_place[wanted.place]
            one = made[at]
            body = _body(one, f"{report}  # figure {wanted.name}", at == recipe.first)
            folds.append(page.Fold(f"figure-{at + 1}", one.figure.title, _sentence(one.figure.answer), body))
        groups.append(page.Group(section.heading, folds, section.text))
    numbers = [number for one in made for number in one.figure.numbers if number.published is not None]
    drawn = sum(len(one.figure.charts) for one in made)
    foot = [
        _errors(numbers),
        f"{versions()}: report {recipe.name}. {len(made)} figures with {drawn} charts took {seconds:.1f} s.",
        "Published: printed in a paper or data sheet. Reconstructed: worked out from what is printed. Predicted: from "
        "the models. Errors are computed / published - 1. The page works offline; pictures and CSV lie beside it.",
    ]
    first = made[recipe.first]
    opening = _opening(recipe, first, [claim for _, claim in claims], f"{report}  # figure {first.wanted.name}")
    return page.page(opening, groups, [line for line in foot if line])


def _check_names(made: Sequence[Made]) -> None:
    seen: dict[str, str] = {}
    for piece in made:
        for chart in _files(piece.figure):
            if chart.name in seen:
                raise UserError(
                    f"{piece.wanted.place}: chart '{chart.name}' is also drawn by {seen[chart.name]}; "
                    "a figure that stands twice needs another 'name'"
                )
            seen[chart.name] = piece.wanted.place


def save(name: str, folder: Path, tick: Callable[[int, int], None] = lambda done, of: None) -> list[Path]:
    """Write a report to a folder.

    Parameters
    ----------
    name : str
        Name or path of a recipe.
    folder : Path
        Made where it is missing.
    tick : callable
        Called with the figures done and those in all.

    Returns
    -------
    list of Path
        The page first, then the files of the charts; each is written whole or not at all.

    Raises
    ------
    UserError
        Where the recipe or the folder cannot be used.
    """
    start = time.perf_counter()
    recipe = read_recipe(name)
    make_folder(folder)
    wanted = recipe.figures
    figures: dict[int, Made] = {}
    for at, piece in _all(wanted, folder):
        figures[at] = piece
        tick(len(figures), len(wanted))
    made = [figures[at] for at in range(len(wanted))]
    _check_names(made)
    path = folder / f"{recipe.name}.html"
    with whole(path) as partial:
        partial.write_text(_page(recipe, made, time.perf_counter() - start), encoding="utf-8")
    files = [
        folder / f"{chart.name}{end}"
        for piece in made
        for chart in _files(piece.figure)
        for end in (".png", ".svg", ".csv")
    ]
    return [path, *files]
