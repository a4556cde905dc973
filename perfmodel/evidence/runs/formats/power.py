"""Power of GPUs over time: ``nvidia-smi --query-gpu --format=csv`` and DCGM, as CSV or exporter text [W a GPU]."""

from __future__ import annotations

import re

from perfmodel.errors import UserError
from perfmodel.evidence.runs.document import Document
from perfmodel.evidence.runs.run import Format, Run, each

_LABEL = "GPU power"
_DCGM = "DCGM_FI_DEV_POWER_USAGE"
_SAMPLE = re.compile(rf'^{_DCGM}\{{.*?gpu="(\d+)".*?\}}\s+([\d.]+)', re.M)
_GPUS = ("index", "gpu", "uuid", "pci.bus_id")
#: Share of samples below half of the largest from which a file holds idle time too.
_IDLE = 0.05


def _samples(document: Document) -> list[tuple[str, float]]:
    """Return GPU and power of every sample."""
    if scraped := _SAMPLE.findall(document.text):
        return [(gpu, float(watts)) for gpu, watts in scraped]
    header, *rows = document.tables[0]
    names = [name.casefold() for name in header]
    power = next(at for at, name in enumerate(names) if name.startswith(("power.draw", _DCGM.casefold())))
    gpus = [at for at, name in enumerate(names) if name in _GPUS]
    if not gpus:
        raise UserError(f"{document.name} ({_LABEL}): no column 'index', which tells the GPUs apart")
    samples = []
    for number, cells in enumerate(rows, 2):
        if len(cells) <= max(power, gpus[0]) or not cells[power]:
            raise UserError(f"{document.name} ({_LABEL}): row {number}: no field '{header[power]}'")
        said = re.fullmatch(r"([\d.]+)( W)?", cells[power])
        if said is None and "N/A" not in cells[power]:
            raise UserError(f"{document.name} ({_LABEL}): row {number}: '{cells[power]}' is no power in W")
        if said is not None:
            samples.append((cells[gpus[0]], float(said[1])))
    return samples


def _read(document: Document) -> list[Run]:
    samples = _samples(document)
    if not samples:
        raise UserError(f"{document.name} ({_LABEL}): no sample with a number in the field 'power.draw'")
    watts = [power for _, power in samples]
    idle = sum(power < max(watts) / 2 for power in watts) / len(watts)
    if idle > _IDLE:
        raise UserError(
            f"{document.name} ({_LABEL}): {100 * idle:.0f} % of the samples are below half of the largest: cut the "
            "file to the time under load"
        )
    run = Run(f"{document.name} ({_LABEL})", "power")
    run.measure("gpu_power", "mean", sum(watts) / len(watts), "W", f"mean of {len(watts)} samples")
    run.state("n_chips", len({gpu for gpu, _ in samples}), "GPUs in the file")
    return [run]


FORMAT = Format(
    _LABEL,
    lambda document: (
        any(name.startswith(("power.draw", _DCGM)) for name in document.header) or bool(_SAMPLE.search(document.text))
    ),
    each(_read),
)
