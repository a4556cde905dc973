"""Files that are written whole or not at all, and folders that one process at a time writes."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from perfmodel.errors import UserError

try:
    import fcntl
except ImportError:  # There are none of these locks on Windows.
    fcntl = None  # type: ignore[assignment]

#: Names of files that are being written, or were when their writer was killed.
_PARTIAL = re.compile(r"\..*-[0-9a-f]{4,}\.partial(\..+)?")
#: Characters of a file's name that the name of its partial file holds: no file system takes more than 255 bytes.
_STEM = 40


#: What begins a formula in some spreadsheet; those of East Asian keyboards do too.
_STARTS = "=+\\-@＝＋－＠"
_FORMULA = re.compile(rf"\s*[{_STARTS}]|[\t\r\n]")
#: What begins one in a comment line, cell by cell, whichever separator the reader takes.
_INNER = re.compile(rf"([,;|]\s*'*(?=[{_STARTS}])|\s(?=[=@＝＠]))")


def reason(error: OSError) -> str:
    """Return what the system has to say about an error, in its own words.

    Parameters
    ----------
    error : OSError

    Returns
    -------
    str
    """
    return os.strerror(error.errno) if error.errno else str(error)


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a path to write to, which becomes ``path`` only when all went well and is on the disk.

    Parameters
    ----------
    path : Path

    Yields
    ------
    Path
        Beside it, hidden, and this writer's own: two may write the same.

    Raises
    ------
    UserError
        Where it cannot be written; the message names the file.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "")
        partial, lock = _partial(path)
        try:
            yield partial
            os.fsync(lock.fileno())
            if fcntl is None:
                lock.close()  # Windows moves no open file.
            partial.replace(path)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink()
            lock.close()
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({reason(error)})") from None


def clean(folder: Path) -> None:
    """Remove what killed writers left in a folder; a file that somebody still writes stays.

    Parameters
    ----------
    folder : Path
    """
    with contextlib.suppress(OSError):
        for path in [path for path in folder.iterdir() if _PARTIAL.fullmatch(path.name)]:
            with path.open("r+b") as left:
                if _lock(left):
                    path.unlink()


@contextlib.contextmanager
def alone(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file while something is done; the system lets go of it when the process ends, however it ends.

    Parameters
    ----------
    path : Path
    what : str
        What nobody else may do meanwhile, for the refusal.

    Raises
    ------
    UserError
        Where another process holds it.
    """
    import socket

    lock = _locked(path)
    if lock is None:
        holder = path.read_text(encoding="utf-8", errors="replace").strip() or "another process"
        raise UserError(f"{what}: {holder} does so now; wait for it, or stop it first")
    try:
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        lock.flush()
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        lock.close()


def _partial(path: Path) -> tuple[Path, IO[bytes]]:
    """Return a new partial file of a path, and the open file by which its lock is held."""
    while True:
        partial = path.with_name(f".{path.stem[:_STEM]}-{os.urandom(4).hex()}.partial{path.suffix}")
        # None where a cleaner came between making and locking.
        if (held := _locked(partial)) is not None:
            return partial, held


def _locked(path: Path) -> IO[bytes] | None:
    """Return a file, new or there, with its lock; None where another process holds it."""
    while True:
        lock = path.open("a+b")
        if _lock(lock) is False:
            lock.close()
            return None
        if os.fstat(lock.fileno()).st_nlink:
            return lock
        # Whoever had it has just removed it, so that this lock would keep nobody out.
        lock.close()


def _lock(file: IO[bytes]) -> bool | None:
    """Take the lock of an open file; False where another has it, None where the file system has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def check_file(path: Path, endings: Sequence[str], option: str, more: str = "") -> None:
    """Refuse a name that no file can be written to, and clear away what killed writers left beside it.

    Parameters
    ----------
    path : Path
    endings : sequence of str
        Of which its name must have one.
    option : str
        By which it was given.
    more : str
        What else would do.
    """
    if path.suffix not in endings:
        raise UserError(f"{option} {path}: expected a name that ends in {' or '.join(endings)}{more}")
    if not os.path.isdir(path.parent):
        raise UserError(f"{option} {path}: there is no folder {path.parent}")
    if os.path.isdir(path):
        raise UserError(f"{option} {path}: there is a folder of that name")
    clean(path.parent)


def make_folder(path: Path, option: str = "--out") -> None:
    """Make a folder where it is missing, and clear away what killed writers left in it.

    Parameters
    ----------
    path : Path
    option : str
        By which it was given.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{option} {path}: cannot make the folder ({reason(error)})") from None
    clean(path)


def text_cell(value: str) -> str:
    """Return text that a spreadsheet will not run as a formula."""
    return f"'{value}" if _FORMULA.match(value) else value


def comment(text: str) -> str:
    """Return text as a comment line of a CSV, of which no spreadsheet makes another line or a formula."""
    plain = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", text).replace('"', "'")
    return "# " + _INNER.sub(r"\1'", plain)
