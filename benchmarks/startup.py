"""Start-up of the command line as a ratio to ``import numpy``: median of interleaved runs, BLAS on one thread."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = {
    "import numpy": [sys.executable, "-c", "import numpy"],
    "--help": [sys.executable, str(ROOT / "cli.py"), "--help"],
    "predict": [sys.executable, str(ROOT / "cli.py"), "predict", "llama-3.1-70b", "--on", "dgx-h100"],
    "predict --json": [sys.executable, str(ROOT / "cli.py"), "predict", "llama-3.1-70b", "--on", "dgx-h100", "--json"],
}
GOALS = {"--help": 3.0, "predict": 5.0, "predict --json": 5.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    # An installed package is compiled once; without bytecode every run would compile the sources anew.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["OPENBLAS_NUM_THREADS"] = "1"
    for command in COMMANDS.values():
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(runs):
        for name, command in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
            times[name].append(time.perf_counter() - start)
    base = statistics.median(times["import numpy"])
    print(f"median of {runs} interleaved runs; ratio to 'import numpy'")
    for name, taken in times.items():
        median = statistics.median(taken)
        goal = f"  goal {GOALS[name]:g}" if name in GOALS else ""
        print(f"{name:16} {median * 1e3:6.0f} ms  {median / base:5.2f}{goal}")


if __name__ == "__main__":
    main()
