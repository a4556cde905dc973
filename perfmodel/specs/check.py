"""Checking spec files: all problems at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfmodel.errors import UserError
from perfmodel.specs import catalog, files
from perfmodel.specs.sessions import Session
from perfmodel.specs.types import Economics, Engine, Materials, Model, Prices, Regions, Reliability, System, Traffic


def _dataclass(path: Path) -> type[Any]:
    """Return the dataclass that a file fills, by the fields it has."""
    raw = files.read_yaml(path)
    if not isinstance(raw, dict):
        raise UserError(f"{path}: expected a mapping of fields")
    if path.parent.name == Path(catalog.CALIBRATION).name:
        return catalog.kind_of_file(path).efficiency
    if path.parent.name == Path(catalog.POWER_FOLDER).name:
        return catalog.kind_of_file(path).power_shape
    if path.parent.name == Path(catalog.ENGINE_FOLDER).name or "block_tokens" in raw:
        return Engine
    if "cost_of_capital" in raw or raw.get("extends") == "economics":
        return Economics
    if "over_listing" in raw or path.parent.name == Path(catalog.PRICES_FOLDER).name:
        return Prices
    if "defects" in raw:
        return Materials
    if path.name == catalog.RELIABILITY:
        return Reliability
    if path.name == catalog.REGIONS:
        return Regions
    if raw.keys() & {"layers", "hf_id"} or raw.get("extends") in catalog.stems("model"):
        return Model
    if "prompt" in raw:
        return Traffic
    if "first_context" in raw or path.parent.name == Path(catalog.FOLDERS["session"][0]).name:
        return Session
    return System


def check_files(paths: Sequence[str]) -> tuple[int, list[str]]:
    """Return how many files were checked, and their problems; with no paths, all specs are checked.

    Parameters
    ----------
    paths : sequence of str

    Returns
    -------
    tuple of int and list of str
    """
    if paths:
        chosen = [Path(path) for path in paths]
    else:
        chosen = [path for kind in catalog.FOLDERS for _, _, path in catalog.entries(kind)]
        for folder in (catalog.CALIBRATION, catalog.ENGINE_FOLDER, catalog.POWER_FOLDER, catalog.PRICES_FOLDER):
            chosen += [path for root in catalog.roots() for path in sorted((root / folder).glob("*.yaml"))]
        beside = catalog.bundled() / catalog.FOLDERS["system"][0]
        chosen += [
            beside / name for name in (catalog.ECONOMICS, catalog.MATERIALS, catalog.RELIABILITY, catalog.REGIONS)
        ]
    problems: list[str] = []
    for path in chosen:
        try:
            if catalog.is_config(str(path)):
                catalog.load_model(str(path))
                continue
            problems += catalog.problems(path, _dataclass(path))
        except UserError as error:
            problems.append(str(error))
    return len(chosen), problems
