"""A cluster against the model, as tables."""

from __future__ import annotations

import math

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from perfmodel.evidence.cluster.calibration import Calibrated
from perfmodel.evidence.cluster.fitting import Cluster
from perfmodel.evidence.validate.scoring import describe
from perfmodel.outputs.tables import plain
from perfmodel.outputs.validation import share
from perfmodel.specs.units import show

#: Numbers that are shown; the file and --json have all.
_MOST = 12


def _table(title: str, *columns: str) -> Table:
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, title=Text(title), title_justify="left")
    for at, name in enumerate(columns):
        made.add_column(name, justify="right" if at else "left")
    return made


def _either_way(factor: float) -> str:
    return f"x{math.exp(factor):.2f}"


def about(cluster: Cluster) -> list[str]:
    """Return what is to be known of a calibration: what it stands on, how many runs, and how old they are."""
    runs = f"{cluster.runs} run" + "s" * (cluster.runs != 1)
    dated = f" of {' to '.join(cluster.dates)}" if cluster.dates else ", undated"
    said = [f"{cluster.name}: {runs}{dated} on {cluster.system}, on top of {cluster.base}"]
    if cluster.release and cluster.newest and cluster.release != cluster.newest:
        said.append(f"measured on release {cluster.release}; the newest known here is {cluster.newest}")
    elif not cluster.release:
        said.append("the runs name no release of the engine: the numbers stand for all of them; name it in 'engine'")
    return said


def _numbers(cluster: Cluster) -> Table:
    table = _table("what moved", "number", "shipped", "now", "factor", "spread before", "after")
    for number in cluster.numbers[:_MOST]:
        table.add_row(
            Text(number.path),
            show(number.prior, number.unit, 3),
            show(number.posterior, number.unit, 3),
            f"x{number.posterior / number.prior:.2f}",
            f"{number.prior_spread:.2f}",
            f"{number.posterior_spread:.2f}",
        )
    return table


def _errors(cluster: Cluster) -> Table:
    each = "each run left out" if cluster.runs > 1 else "left out"
    table = _table("median error", "metric", "values", "shipped", "fitted", each, "in its 80 % band")
    for one in cluster.errors:
        cells = (one.before, one.fitted, one.left_out, one.left_out_in_band)
        table.add_row(one.metric, str(one.values), *map(share, cells))
    return table


def _bands(cluster: Cluster) -> Table:
    table = _table("80 % band", "model", "TPOT before", "after", "TTFT before", "after")
    for model, (before, later) in cluster.bands.items():
        table.add_row(Text(model), *map(_either_way, (before[0], later[0], before[1], later[1])))
    return table


def _next(cluster: Cluster) -> Table:
    table = _table("worth measuring next", "model", "TP", "tokens", "clients", "TPOT band then", "TTFT band then")
    for one in cluster.next:
        tokens = f"{one.prompt:g} / {one.output:g}"
        bands = (_either_way(one.tpot_band), _either_way(one.ttft_band))
        table.add_row(Text(one.model), f"{one.tp:g}", tokens, f"{one.clients:g}", *bands)
    return table


def print_calibrated(result: Calibrated, console: Console) -> None:
    """Print what runs say of a cluster.

    Parameters
    ----------
    result : Calibrated
    console : rich.console.Console
    """
    for cluster, path in zip(result.clusters, result.files, strict=True):
        for line in about(cluster):
            console.print(Text(line))
        for table in (_numbers(cluster), _errors(cluster), _bands(cluster), _next(cluster)):
            if table.row_count:
                console.print()
                console.print(table)
        if (rest := len(cluster.numbers) - _MOST) > 0:
            console.print(Text(f"{rest} more numbers moved less; the file has them"))
        for value in cluster.values:
            if value.apart:
                missed = f"{share(value.left_out, sign=True)} by a fit without it"
                console.print(
                    Text(f"Note: {describe(value.row)} {value.row.metric} lies apart ({missed})"), style="yellow"
                )
        console.print(Text(f"\nwrote {path}"))
    reasons: dict[str, int] = {}
    for row in result.silent:
        reasons[row.reason] = reasons.get(row.reason, 0) + 1
    for why, count in reasons.items():
        console.print(Text(f"Note: {count} row{'s' * (count != 1)} not used: {why}"), style="yellow")


def text(result: Calibrated, width: int = 100) -> str:
    """Return it as plain text."""
    return plain(lambda console: print_calibrated(result, console), width)
