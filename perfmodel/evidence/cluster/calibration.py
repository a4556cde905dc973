"""The calibration of a cluster as a file of the user's, where the catalog looks first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfmodel import shapes
from perfmodel.evidence.cluster.fitting import Cluster, clusters
from perfmodel.evidence.validate import load
from perfmodel.evidence.validate.rows import Row
from perfmodel.machines.kernel_step import spread_key
from perfmodel.shown import Shown
from perfmodel.specs import catalog, files
from perfmodel.specs.units import show
from perfmodel.writing import make_folder, whole

SOURCE = "own-runs"


@dataclass(frozen=True, repr=False)
class Calibrated(Shown):
    """Calibrations on one's own runs.

    Attributes
    ----------
    clusters : list of Cluster
        One a chip, engine and release.
    files : list of Path
        Where each was written.
    silent : list of Row
        Rows that say nothing of a machine's numbers, each with its ``reason``.
    """

    clusters: list[Cluster]
    files: list[Path]
    silent: list[Row]

    def to_dict(self) -> shapes.Clusters:
        """Return the documented JSON object."""
        return {
            "clusters": [_as_dict(one, path) for one, path in zip(self.clusters, self.files, strict=True)],
            "silent": [row.to_dict() for row in self.silent],
        }


def _as_dict(cluster: Cluster, path: Path) -> shapes.Cluster:
    return {
        "calibration": cluster.name,
        "file": str(path),
        "system": cluster.system,
        "base": cluster.base,
        "release": cluster.release or None,
        "newest_release": cluster.newest or None,
        "dates": list(cluster.dates),
        "runs": cluster.runs,
        "numbers": [
            {
                "path": number.path,
                "unit": number.unit,
                "prior": shapes.number(number.prior),
                "prior_spread": shapes.number(number.prior_spread),
                "posterior": shapes.number(number.posterior),
                "posterior_spread": shapes.number(number.posterior_spread),
            }
            for number in cluster.numbers
        ],
        "errors": [
            {
                "metric": number.metric,
                "values": number.values,
                "before": shapes.number(number.before),
                "fitted": shapes.number(number.fitted),
                "left_out": shapes.number(number.left_out),
                "left_out_in_band": shapes.number(number.left_out_in_band),
            }
            for number in cluster.errors
        ],
        "bands": [
            {
                "model": model,
                "tpot_before": shapes.number(math.exp(before[0])),
                "tpot_after": shapes.number(math.exp(later[0])),
                "ttft_before": shapes.number(math.exp(before[1])),
                "ttft_after": shapes.number(math.exp(later[1])),
            }
            for model, (before, later) in cluster.bands.items()
        ],
        "next": [
            {
                "model": number.model,
                "tp": shapes.number(number.tp),
                "prompt": shapes.number(number.prompt),
                "output": shapes.number(number.output),
                "concurrency": shapes.number(number.clients),
                "tpot_band": shapes.number(math.exp(number.tpot_band)),
                "ttft_band": shapes.number(math.exp(number.ttft_band)),
            }
            for number in cluster.next
        ],
        "apart": [value.row.to_dict() for value in cluster.values if value.apart],
    }


def content(cluster: Cluster) -> dict[str, Any]:
    """Return what the file of a calibration holds: the shipped one, and in place of it what moved.

    Parameters
    ----------
    cluster : Cluster

    Returns
    -------
    dict
    """
    made: dict[str, Any] = {"extends": cluster.base}
    runs = f"{cluster.runs} runs of one's own" if cluster.runs > 1 else "one run of one's own"
    for one in cluster.numbers:
        known = f"spread of the logarithm {one.posterior_spread:.2f}, {one.prior_spread:.2f} before"
        note = f"x{one.posterior / one.prior:.3g} of {cluster.base} by {runs}; {known}"
        _put(made, one.path, show(one.posterior, one.unit, 6).replace(",", ""), note)
    for metric, at in (("tpot_spread", 0), ("ttft_spread", 1)):
        for model, (_, later) in cluster.bands.items():
            note = f"half-width that holds 80 % after {runs}, over the lengths that were run and 1 to 256 clients"
            _put(made, f"{metric}.{spread_key(model)}", f"{later[at]:.3f}", note)
    return made


def _put(made: dict[str, Any], path: str, value: str, note: str) -> None:
    *groups, last = path.split(".")
    for group in groups:
        made = made.setdefault(group, {})
    made[last] = {"value": value, "source": SOURCE, "kind": "derived", "note": note}


def calibrate(data: Path | str, out: Path | str | None = None) -> Calibrated:
    """Fit the numbers of every chip and engine of a file of runs, and write them where the catalog looks first.

    Parameters
    ----------
    data : path
        A CSV with the columns that ``validate`` reads.
    out : path, optional
        A folder that specs are read from; the current one if none.

    Returns
    -------
    Calibrated

    Raises
    ------
    UserError
        Where the file cannot be read or says nothing, or the folder cannot be written to.
    """
    measured, silent = clusters(load(data))
    folder = (Path() if out is None else Path(out)) / catalog.CALIBRATION
    make_folder(folder)
    written = []
    for one in measured:
        path = folder / f"{one.name}.yaml"
        with whole(path) as partial:
            partial.write_text(files.as_text(one.name, content(one)), encoding="utf-8")
        written.append(path)
    return Calibrated(measured, written, silent)
