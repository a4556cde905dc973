"""The learning curve: how well a cluster is predicted after a few of its runs, by a fit that never saw it.

``python -m tests.evidence.learning --draws 50`` prints it by group.  A group is a model on a chip with an engine and
its release, as ``serving2.csv`` writes them, with 14 runs or more; each is left out whole from the fit of all levels.
"""

import argparse
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from perfmodel.evidence import serving_fit
from perfmodel.evidence.cluster.choosing import Points, chosen
from perfmodel.evidence.cluster.fitting import run_of
from perfmodel.evidence.cluster.observed import batches, movable, sensitivities
from perfmodel.evidence.cluster.pooling import EIGHTY, FIRST_NOISE, TOKEN_NOISE, pooled, prior_spread
from perfmodel.evidence.validate.names import find_system
from perfmodel.evidence.validate.public import is_plain
from perfmodel.evidence.validate.reading import bundled_path, read_rows
from perfmodel.specs import catalog

SIZES = (0, 1, 3, 5, 10)
LEAST_RUNS = 14


@dataclass
class Curve:
    """Median errors of a group by number of runs, over draws; shares in the 80 % band; errors of chosen runs."""

    name: str
    errors: dict = field(default_factory=lambda: defaultdict(list))
    inside: dict = field(default_factory=lambda: defaultdict(list))
    planned: dict = field(default_factory=dict)

    def median(self, metric, size):
        return float(np.median(self.errors[metric, size]))

    def coverage(self, metric, size):
        return float(np.mean(self.inside[metric, size]))


def efficiency_of_pair(chip, engine):
    system = next(name for name in ("dgx-h100", "dgx-h200", "dgx-b200", "dgx-a100", "gb200-nvl72")
                  if catalog.load_bare_system(name).chip == chip)  # fmt: skip
    return catalog.load_efficiency(catalog.load_bare_system(system).kind, chip, engine, shipped=True)[0]


def groups_of_data():
    """Return the rows of each group of one pool, by chip's system, engine as written, and model."""
    found = defaultdict(list)
    for row in read_rows(bundled_path("serving2")):
        if row["mode"] == "agg" and row["concurrency_or_batch"]:
            found[find_system(row["hardware"]), row["engine"], row["model"]].append(row)
    return {
        key: rows for key, rows in found.items() if len({row["row_id"] for row in rows if is_plain(row)}) >= LEAST_RUNS
    }


def left_out(groups, fitted, rows):
    """Return the efficiencies of a group's chip and engine by a fit on all rows but its own."""
    own = {row["row_id"] for row in rows}
    used = [(group, np.array([name not in own for name in group.rows])) for group in groups]
    coefficients = serving_fit.fit(used, fitted)
    mine = next(group for group in groups if own & set(group.rows))
    shipped = efficiency_of_pair(mine.chip, mine.engine)
    made = serving_fit.with_coefficients(shipped, coefficients.of(mine.levels()))
    return made.at_rates(mine.scenario.system.rates)


def _split(parts, names):
    return [np.array([run_of(row) in names for row in part.rows], dtype=bool) for part in parts]


def _missed(parts, masks, efficiency, paths, posterior):
    """Return by metric the errors of the values that were not used, and the half-width that the file would hold."""
    off, slopes, first = [], [], []
    for part, used in zip(parts, masks, strict=True):
        if (~used).any():
            rest = part.only(~used)
            found = sensitivities(rest, paths, posterior.logs, efficiency)
            off, slopes, first = [*off, found[0]], [*slopes, found[1]], [*first, rest.first]
    off, slopes, first = np.concatenate(off), np.concatenate(slopes), np.concatenate(first)
    made = {}
    for metric, which, noise in (("TPOT", ~first, TOKEN_NOISE), ("TTFT", first, FIRST_NOISE)):
        if which.any():
            width = EIGHTY * np.sqrt(posterior.variance(slopes[which]).mean() + noise**2)
            made[metric] = off[which], width
    return made


def curve(name, rows, efficiency, draws, sizes=SIZES, seed=0):
    """Return the curve of a group; rows that are listed apart as no plain runs are neither drawn nor scored."""
    _, parts = batches(("serving2", row) for row in rows)
    parts = [part.only(np.array([not row.anomaly for row in part.rows])) for part in parts]
    parts = [part for part in parts if part.asked]
    every = list(movable(efficiency))
    at_start = [sensitivities(part, every, np.zeros(len(every)), efficiency)[1] for part in parts]
    live = np.max([np.abs(one).max(axis=0) for one in at_start], axis=0) > 1e-5
    paths = [path for path, moves in zip(every, live, strict=True) if moves]
    runs = list(dict.fromkeys(run_of(row) for part in parts for row in part.rows))
    made, draw = Curve(name), np.random.default_rng(seed)

    def answer(names):
        masks = _split(parts, names)
        used = [part.only(mask) for part, mask in zip(parts, masks, strict=True) if mask.any()]
        return _missed(parts, masks, efficiency, paths, pooled(used, efficiency, paths))

    for at_draw in range(draws):
        order = [runs[at] for at in draw.permutation(len(runs))]
        # Without any run all draws are the same.
        for size in sizes if at_draw == 0 else sizes[1:]:
            for metric, (off, width) in answer(set(order[:size])).items():
                made.errors[metric, size].append(np.median(np.abs(np.expm1(off))))
                made.inside[metric, size].append(np.mean(np.abs(off) <= width))
    order = planned(parts, at_start, live, [prior_spread(efficiency, path) for path in paths], runs)
    for size in sizes[1:]:
        made.planned[size] = {
            metric: float(np.median(np.abs(np.expm1(off)))) for metric, (off, _) in answer(set(order[:size])).items()
        }
    return made


def planned(parts, slopes, live, prior, runs):
    """Return the runs of a group in the order in which a plan of measurements would have them made."""
    at = {metric: {} for metric in ("tpot", "ttft")}
    where, offered = {}, {}
    for part, slope in zip(parts, slopes, strict=True):
        load, plan = part.scenario.traffic, part.scenario.deployment
        for place, (row, first) in enumerate(zip(part.rows, part.first, strict=True)):
            name = run_of(row)
            at["ttft" if first else "tpot"][name] = slope[place][live]
            loads = (load.concurrency, load.prompt, load.output, plan.tp)
            where[name] = [np.log(one[place]) for one in loads]
            offered[name] = bool(part.room[place])
    usable = [name for name in runs if all(name in one for one in at.values()) and offered[name]]
    columns = (np.array([one[name] for name in usable]) for one in at.values())
    points = Points(*columns, np.array([where[name] for name in usable]))
    return [usable[place] for place in chosen(points, points, np.diag(np.square(prior)), max(SIZES))]


def curves(draws, sizes=SIZES, only=None, tick=lambda _: None):
    """Return the curves of all groups, or of those whose place is in ``only``."""
    groups = serving_fit.groups(efficiency_of_pair)
    fitted = serving_fit.fit_all(groups)
    made = []
    for at, (key, rows) in enumerate(sorted(groups_of_data().items())):
        if only is None or at in only:
            made.append(curve(" ".join(key), rows, left_out(groups, fitted, rows), draws, sizes))
            tick(made[-1])
    return made


def over_groups(made, metric, size):
    return float(np.median([one.median(metric, size) for one in made]))


def _line(name, values):
    return f"{name[:60]:60s} " + " ".join(f"{100 * value:5.1f}" for value in values)


def main():
    given = argparse.ArgumentParser()
    given.add_argument("--draws", type=int, default=50)
    draws = given.parse_args().draws

    def show(one):
        for metric in ("TPOT", "TTFT"):
            sizes = [size for size in SIZES if one.errors.get((metric, size))]
            print(_line(f"{metric} {one.name}", [one.median(metric, size) for size in sizes]), end=" | in band ")
            print(" ".join(f"{100 * one.coverage(metric, size):3.0f}" for size in sizes), end=" | planned ")
            print(" ".join(f"{100 * found[metric]:5.1f}" for found in one.planned.values()), flush=True)

    made = curves(draws, tick=show)
    for metric in ("TPOT", "TTFT"):
        print(_line(f"{metric}: median over {len(made)} groups", [over_groups(made, metric, size) for size in SIZES]))
        print(
            _line(
                "  mean share in the 80 % band",
                [np.mean([one.coverage(metric, size) for one in made]) for size in SIZES],
            )
        )
        print(
            _line("  of planned runs", [np.median([one.planned[size][metric] for one in made]) for size in SIZES[1:]])
        )
        better = [np.mean([one.planned[size][metric] < one.median(metric, size) for one in made]) for size in SIZES[1:]]
        print(_line("  share of groups where planned is better", better))
        for one in made:
            worst = max(one.median(metric, size) for size in SIZES) - one.median(metric, 0)
            if worst > 0.015:
                print(f"  loses {100 * worst:.1f} points: {one.name}")


if __name__ == "__main__":
    main()
