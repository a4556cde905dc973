"""The command line: one file a verb, heavy libraries imported inside the verb."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

OK, OUR_FAULT, REFUSED, DOES_NOT_FIT, INTERRUPTED = 0, 1, 2, 3, 130


def main() -> NoReturn:
    """Run the command line and exit with the documented code."""
    # Our matrices are small: threads that wait for each other cost more than they save. NumPy reads this as it loads.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run a command; errors become one line on stderr.

    Returns
    -------
    int
        0 answered, 2 refused before computing, 3 does not fit, 1 our fault.
    """
    from perfmodel.cli.app import invoke

    return invoke(arguments)
