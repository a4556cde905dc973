"""The version of the numbers: what a calibration, a power model or a price changes without a change of the package."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from perfmodel.specs import catalog
from perfmodel.version import __version__

#: Folders below ``hardware_specs/`` whose files move answers of many systems.
_FOLDERS = ("calibration", "engines", "power", "prices")


@functools.lru_cache(maxsize=1)
def _version(files: tuple[tuple[Path, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for path, *_ in files:
        digest.update(f"{path.parent.name}/{path.name}".encode())
        # A checkout on another machine has other line ends.
        digest.update(path.read_bytes().replace(b"\r\n", b"\n"))
    newest = max((path.stem for path, *_ in files if path.parent.name == "prices"), default="")
    return f"{newest}.{digest.hexdigest()[:10]}"


def numbers_version() -> str:
    """Return what calibrations, power models, engines and prices are in use.

    Returns
    -------
    str
        The newest release of prices, and a digest of all those files, those of the user's folders among them:
        ``2026-11.4f2a9c1b3d``.
    """
    folders = [root / "hardware_specs" / folder for root in catalog.roots() for folder in _FOLDERS]
    paths = [path for folder in folders for path in sorted(folder.glob("*.yaml"))]
    return _version(tuple((path, (of := path.stat()).st_mtime_ns, of.st_size) for path in paths))


def versions() -> str:
    """Return the versions of the package and of the numbers, in words for the foot of what is exported."""
    return f"perfmodel {__version__}, numbers {numbers_version()}"
