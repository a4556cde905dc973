"""A report: one page that opens offline, and PNG, SVG and CSV of each chart."""

from __future__ import annotations

import concurrent.futures
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfmodel.errors import UserError
from perfmodel.outputs import page
from perfmodel.reports import charts
from perfmodel.reports.figures import Figure, Number, Recipe, Wanted, make, read_recipe
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


def _make(wanted: Wanted, folder: Path) -> Made:
    """Work out one figure and write the files of its charts."""
    start = time.perf_counter()
    figure = make(wanted)
    specs = [charts.spec(chart) for chart in figure.charts]
    for chart, spec in zip(figure.charts, specs, strict=True):
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
    """Return in a sentence how far off the numbers are that nothing was fitted on."""
    errors = sorted(abs(number.error) for number in numbers if not number.fitted and math.isfinite(number.error))
    if not errors:
        return ""
    middle = len(errors) // 2
    median = errors[middle] if len(errors) % 2 else (errors[middle - 1] + errors[middle]) / 2
    fitted = sum(number.fitted for number in numbers)
    kept = f"; {fitted} more were used to fit and prove nothing" if fitted else ""
    return f"{len(errors)} published values not fitted on: median error {median:.1%}, worst {errors[-1]:.1%}{kept}."


def _figure(made: Made, anchor: str) -> str:
    figure = made.figure
    return page.block(
        figure.title,
        anchor,
        page.paragraph(figure.answer, "answer"),
        "".join(map(charts.on_page, figure.charts, made.specs)),
        page.table(
            ["claim", "verdict", "what decides"],
            [[claim.text, claim.verdict, claim.why] for claim in figure.claims],
        ),
        page.table(_NUMBER_HEADINGS, [_number_row(one) for one in figure.numbers], _errors(figure.numbers), (1, 2, 3)),
        *(page.table(table.headings, table.rows, table.caption, table.numbers) for table in figure.tables),
        page.listed(figure.notes, "notes"),
    )


def _page(recipe: Recipe, made: Sequence[Made], seconds: float) -> str:
    by_place = {piece.wanted.place: piece for piece in made}
    anchors = {piece.wanted.place: f"figure-{at + 1}" for at, piece in enumerate(made)}
    parts = [
        page.contents([(anchors[piece.wanted.place], piece.figure.title, piece.figure.answer) for piece in made]),
    ]
    for section in recipe.sections:
        inner = [_figure(by_place[piece.place], anchors[piece.place]) for piece in section.figures]
        parts.append(page.section(section.heading, page.paragraph(section.text) if section.text else "", *inner))
    claims = [(piece.figure.title, claim) for piece in made for claim in piece.figure.claims]
    numbers = [
        (piece.figure.title, number)
        for piece in made
        for number in piece.figure.numbers
        if number.published is not None
    ]
    parts.append(
        page.section(
            "Every claim",
            page.table(
                ["figure", "claim", "verdict", "what decides"],
                [[title, claim.text, claim.verdict, claim.why] for title, claim in claims],
            ),
        )
    )
    parts.append(
        page.section(
            "Published against computed",
            page.table(
                ["figure", *_NUMBER_HEADINGS],
                [[title, *_number_row(number)] for title, number in numbers],
                _errors([number for _, number in numbers]),
                (2, 3, 4),
            ),
        )
    )
    drawn = sum(len(piece.figure.charts) for piece in made)
    foot = [
        f"{versions()}: report {recipe.name}. {len(made)} figures with {drawn} charts took {seconds:.1f} s.",
        "Published: printed in a paper or data sheet. Reconstructed: worked out from what is printed. Predicted: from "
        "the models. Errors are computed / published - 1. Each chart lies beside this page as PNG, SVG and CSV; the "
        "page works offline.",
    ]
    return page.page(recipe.title, recipe.question, parts, foot)


def _check_names(made: Sequence[Made]) -> None:
    seen: dict[str, str] = {}
    for piece in made:
        for chart in piece.figure.charts:
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
        for chart in piece.figure.charts
        for end in (".png", ".svg", ".csv")
    ]
    return [path, *files]
