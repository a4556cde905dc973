"""Compiling C to a library that this process loads, kept in the user's cache so that it is compiled once a machine."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from perfmodel.errors import UserError
from perfmodel.writing import whole

#: Names a folder for compiled programs; ``off`` for none, so that nothing is compiled or loaded.
FOLDER = "PERFMODEL_CACHE"
#: No flag may touch NaN, so -ffast-math is none of them; without contraction a number has the bits that NumPy gives it.
FLAGS = (
    "-O2",
    "-march=native",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-fPIC",
    "-shared",
)
#: Seconds after which a compiler is given up.
_PATIENCE = 120


@functools.cache
def compiler() -> tuple[str, ...]:
    """Return the command of a C compiler: that of the system, else one that pip installed; empty where none is.

    Returns
    -------
    tuple of str
    """
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return (name,)
    if importlib.util.find_spec("ziglang") is not None:
        return sys.executable, "-m", "ziglang", "cc"
    return ()


@functools.cache
def machine() -> str:
    """Return what a compiled program depends on besides its text: processor, system, flags.

    Returns
    -------
    str
    """
    flags = ""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        # The first processor stands for all; a machine's are alike.
        flags = next((line for line in file if line.startswith(("flags", "Features"))), "")
    return "\n".join((sys.platform, platform.machine(), flags, *FLAGS))


@functools.cache
def folder() -> Path | None:
    """Return the folder of compiled programs; None where there is none that only this user can write.

    Returns
    -------
    Path or None
    """
    given = os.environ.get(FOLDER, "")
    if given == "off" or os.name != "posix":
        return None
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = Path(given) if given else base / "perfmodel"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = path.stat()
    except OSError:
        return None
    # What is loaded runs: nobody else may have put it there.
    return path if state.st_uid in (os.getuid(), 0) and not state.st_mode & 0o022 else None


def digest(*parts: str) -> str:
    """Return a name for some text.

    Parameters
    ----------
    *parts : str

    Returns
    -------
    str
    """
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


def name_of(text: str) -> str:
    """Return the name of the library of a program.

    Parameters
    ----------
    text : str
        In C.

    Returns
    -------
    str
    """
    return digest(text, machine())


def load(name: str) -> Any:
    """Return the function of a library that is there already.

    Parameters
    ----------
    name : str
        See :func:`name_of`.

    Returns
    -------
    function of ctypes or None
        None where it is not there or cannot be loaded.
    """
    place = folder()
    if place is None or not (place / f"{name}.so").exists():
        return None
    return _loaded(place / f"{name}.so")


def compile(text: str) -> Any:
    """Compile a program and return its function, without a word where that does not work.

    Parameters
    ----------
    text : str
        In C.

    Returns
    -------
    function of ctypes or None
        None without a compiler, or where it fails.
    """
    name, place, command = name_of(text), folder(), compiler()
    if place is None or not command:
        return None
    if (there := load(name)) is not None:
        return there
    with tempfile.TemporaryDirectory(prefix="perfmodel-") as scratch:
        source, made = Path(scratch, "program.c"), Path(scratch, "program.so")
        source.write_text(text, encoding="utf-8")
        try:
            subprocess.run(
                [*command, *FLAGS, "-o", made, source, "-lm"], check=True, capture_output=True, timeout=_PATIENCE
            )
            with contextlib.suppress(UserError), whole(place / f"{name}.so") as partial:
                partial.write_bytes(made.read_bytes())
        except (OSError, subprocess.SubprocessError):
            return None
        # A folder that nobody may write to keeps nothing, and what was compiled is good for this process.
        return load(name) or _loaded(made)


def _loaded(path: Path) -> Any:
    try:
        function = ctypes.CDLL(str(path)).run
    except (OSError, AttributeError):
        return None
    function.restype = None
    function.argtypes = [ctypes.c_void_p] * 5
    return function
