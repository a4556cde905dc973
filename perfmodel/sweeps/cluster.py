"""A Dask cluster that works partitions out: one that runs already, or one of this machine for the time of a sweep."""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from perfmodel.errors import UserError
from perfmodel.version import __version__

#: Seconds to wait for a scheduler to answer.
PATIENCE = 15
#: How often a partition is tried again where a worker failed at it; one that was killed does not count.
RETRIES = 2
#: Partitions a thread that are handed out ahead, so that no worker waits for this process.
AHEAD = 4
#: Seconds without a worker after which a cluster is given up.
LOST = 60
#: Bytes of a scheduler's greeting at the most; it has some hundred.
GREETING = 2**20
_GOES_ON = "the same command goes on from what is finished"
#: Dask has glibc give back each freed array at once, and half of a sweep would go to fetching the pages again.
_MEMORY = {
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**30,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**25,
}
#: What a worker of this machine runs first: Ctrl-C, which a terminal sends to it too, is for the client to act on.
_UNDISTURBED = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"


@contextlib.contextmanager
def connect(scheduler: str | None, workers: int | None) -> Iterator[Any]:
    """Give a client of a cluster, which ends with it where it was started for it.

    Parameters
    ----------
    scheduler : str or None
        Address; None starts a cluster on this machine.
    workers : int or None
        Processes to start; one a core where not given.
    """
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        raise UserError("--executor dask needs Dask: pip install 'perfmodel[distributed]'") from None
    # What goes wrong is said in one line; a worker that was lost is no news, for its partition is worked out elsewhere.
    loggers = [logging.getLogger(name) for name in logging.root.manager.loggerDict if name.startswith("distributed")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with contextlib.ExitStack() as stack:
            if scheduler is None:
                stack.enter_context(dask.config.set(_MEMORY))
                scheduler = stack.enter_context(
                    LocalCluster(
                        n_workers=workers,
                        threads_per_worker=1,
                        dashboard_address="127.0.0.1:0",
                        silence_logs=logging.CRITICAL,
                        preload=[_UNDISTURBED],
                    )
                )
            try:
                if isinstance(scheduler, str):
                    _greeted(scheduler)
                client = Client(scheduler, timeout=PATIENCE)
            except (OSError, ValueError) as error:
                raise UserError(f"--scheduler {scheduler}: no Dask scheduler answers there ({error})") from None
            yield stack.enter_context(client)
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _greeted(address: str) -> None:
    """Refuse a server that does not greet as a scheduler does, which begins with the size of what it says.

    Dask makes room for as many bytes as the first eight of any greeting seem to say.
    """
    from distributed.comm.addressing import parse_address, parse_host_port

    scheme, place = parse_address(address)
    if scheme != "tcp":
        return
    with socket.create_connection(parse_host_port(place), timeout=PATIENCE) as server:
        server.settimeout(PATIENCE)
        begin = b""
        while len(begin) < 8 and (more := server.recv(8 - len(begin))):
            begin += more
    if len(begin) < 8 or int.from_bytes(begin, "little") > GREETING:
        raise ValueError("what is there speaks another protocol")


def check(client: Any, look: Callable[[Path], tuple[str, bool]], file: Path) -> None:
    """Refuse workers that have another version, or do not see a file in the folder of a sweep.

    Workers that join later check themselves, see :func:`perfmodel.sweeps.folder.work`.
    """
    answers = client.run(look, file, on_error="return")
    if not answers:
        raise UserError("the Dask cluster has no workers: start one (dask worker ADDRESS)")
    for address, found in answers.items():
        if isinstance(found, BaseException):
            raise UserError(f"the worker at {address} cannot run perfmodel {__version__}; install it there ({found})")
        version, seen = found
        if version != __version__:
            raise UserError(f"the worker at {address} runs perfmodel {version}, not {__version__}: install the same")
        if not seen:
            raise UserError(
                f"the worker at {address} does not see {file.parent}: --out needs a folder that all workers share"
            )


def each(client: Any, work: Callable[[Any], Any], jobs: Iterator[Any]) -> Iterator[tuple[Any, Any]]:
    """Give each job with what ``work`` returned, when it is done; only a few a worker are under way at a time.

    Raises
    ------
    UserError
        Where a job ends its workers again and again, or where workers or scheduler are lost.
    """
    from distributed import CancelledError, KilledWorker, wait
    from distributed.client import ClosedClientError

    running: dict[Any, Any] = {}
    seen = time.monotonic()
    try:
        while True:
            threads = sum(client.nthreads().values())
            if threads:
                seen = time.monotonic()
            elif time.monotonic() - seen > LOST:
                raise UserError(f"the Dask cluster has had no worker for {LOST} s; {_GOES_ON}")
            for job in itertools.islice(jobs, max(0, AHEAD * threads - len(running))):
                running[client.submit(work, job, pure=False, retries=RETRIES)] = job
            if threads and not running:
                return
            # Looking up now and then, for workers may all be gone, and with them what they had to return.
            with contextlib.suppress(TimeoutError):
                for future in wait(list(running), timeout=PATIENCE, return_when="FIRST_COMPLETED").done:
                    found = future.result(timeout=PATIENCE)
                    yield running.pop(future), found
    except KilledWorker as error:
        raise UserError(
            f"a partition ended {error.allowed_failures + 1} workers, the last at {error.last_worker.address}, "
            f"most likely for want of memory; {_GOES_ON}"
        ) from None
    except (CancelledError, ClosedClientError, OSError):
        raise UserError(f"the Dask scheduler is lost; {_GOES_ON}") from None
