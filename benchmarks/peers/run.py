"""The same question on this tool and on its peers, side by side, in one run on one machine.

``python benchmarks/peers/run.py`` gives every peer a virtual environment of its own under ``benchmarks/peers/.venvs``,
installs the version named here, times it and prints one table.  A peer that does not install or does not answer is
skipped with a message.  Nothing is asserted; only ratios within one run mean anything.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
Results = dict[str, Any]


@dataclass(frozen=True)
class Peer:
    """A peer: its package, version and licence, and what of the question it can answer."""

    name: str
    version: str
    licence: str
    tp: str
    answers: str

    @property
    def script(self) -> Path:
        """The file that asks it."""
        return HERE / f"ask_{self.name.replace('-', '_')}.py"


PEERS = (
    Peer(
        "vllm-sr-sim", "0.1.0.dev20260713123629", "Apache-2.0", "ideal", "two constants a profile, a line in the batch"
    ),
    Peer("ridgepoint", "0.1.2", "MIT", "ideal", "one request alone; collectives not modelled"),
    Peer("llm-analysis", "0.2.2", "Apache-2.0", "yes", "closed forms layer by layer, a static batch"),
    Peer("servcalc", "0.1.0", "MIT", "no", "one GPU only: asked as one of eight times everything"),
    Peer("aiconfigurator", "0.12.0", "Apache-2.0", "yes", "measured kernel tables, a static batch"),
    Peer("genz-llm", "0.0.16", "MIT", "yes", "an operator table in pandas, prefill and decode"),
)
OURS = "perfmodel"
#: How often each is timed, in turns; the best counts.
TURNS = 3


class Skipped(Exception):
    """Why a peer is left out."""


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a timed process: one thread, no BLAS tuned for another core, no foreign packages.

    Python keeps its bytecode: what pip installs has it, and a checkout without it compiles each time.
    """
    left_out = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, "OPENBLAS_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **more}


def called(command: list[str], timeout: float, env: Mapping[str, str] | None = None) -> str:
    """Run a command and return what it printed.

    Raises
    ------
    Skipped
        With its last line, where it fails or takes too long.
    """
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Skipped(str(error)) from None
    if done.returncode:
        raise Skipped((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1])
    return done.stdout


def interpreter(peer: Peer, venvs: Path, install: bool) -> Path:
    """Return the Python of a peer's virtual environment, made and filled where it is missing.

    Raises
    ------
    Skipped
        Where it is missing and may not be installed, or does not install.
    """
    folder = venvs / f"{peer.name}-{peer.version}"
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        if not install:
            raise Skipped(f"not installed in {folder}")
        print(f"installing {peer.name} {peer.version}", file=sys.stderr)
        called([sys.executable, "-m", "venv", "--clear", str(folder)], 300)
        called([str(python), "-m", "pip", "install", "-q", f"{peer.name}=={peer.version}"], 1200)
        (folder / "installed").touch()
    return python


def answer(command: list[str], env: Mapping[str, str]) -> Results:
    """Return the JSON object that a script prints as its last line."""
    printed = called(command, 600, env).strip().splitlines()
    if not printed:
        raise Skipped("no answer")
    found: Results = json.loads(printed[-1])
    if not found["ttft_s"] > 0 or not found["tpot_s"] > 0:
        raise Skipped("answers with a time of 0")
    return found


def measure(venvs: Path, install: bool, runs: int) -> Results:
    """Time everything, in turns, and return it as JSON."""
    ours = environment(PYTHONPATH=str(ROOT))
    question = ["--precision", "bf16", "--prompt", "2048", "--output", "256", "--json"]
    predict = [sys.executable, str(ROOT / "cli.py"), "predict", "llama-3.1-70b", "--on", "dgx-h100", *question]
    cold = {OURS: (predict, ours)}
    speed = {OURS: ([sys.executable, str(HERE / "ask_perfmodel.py")], ours)}
    skipped = {}
    for peer in PEERS:
        try:
            command = [str(interpreter(peer, venvs, install)), str(peer.script)]
            answer(command, environment())
        except Skipped as reason:
            skipped[peer.name] = str(reason)
            print(f"{peer.name} skipped: {reason}", file=sys.stderr)
            continue
        cold[peer.name] = command, environment()
        speed[peer.name] = [*command, "--speed"], environment()
    load = os.getloadavg()
    starts: dict[str, list[float]] = {name: [] for name in cold}
    for _ in range(runs):
        for name, (command, env) in cold.items():
            before = _spent()
            called(command, 600, env)
            starts[name].append(_spent() - before)
    found: Results = {name: {"cold_s": min(taken)} for name, taken in starts.items()}
    for turn in range(TURNS):
        for name, (command, env) in speed.items():
            print(f"timing {name}, turn {turn + 1} of {TURNS}", file=sys.stderr)
            for key, value in answer(command, env).items():
                better = max if key.endswith("per_second") else min
                found[name][key] = better(value, found[name].get(key, value))
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load": [load, os.getloadavg()],
        "results": found,
        "skipped": skipped,
    }


def _spent() -> float:
    """Return the CPU time of all processes that have ended [s]."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def number(value: float) -> str:
    """Return three digits of a rate or of a ratio."""
    for size, suffix in ((1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


def report(record: Results, width: int) -> str:
    """Return the table and the goals, for a terminal of so many columns."""
    results = record["results"]
    ours = results[OURS]
    wide = width >= 160
    head = f"{'':15}{'TP':>6}{'TTFT':>9}{'TPOT':>9}{'one':>10}{'a second':>10}{'we: x':>9}{'cold':>9}"
    lines = [head + ("  answers with" if wide else "")]
    rows = [(OURS, "yes", "closed forms kernel by kernel, closed loop")]
    rows += [(peer.name, peer.tp, f"{peer.answers} ({peer.version}, {peer.licence})") for peer in PEERS]
    for name, tp, how in rows:
        if name in record["skipped"]:
            lines.append(f"{name:15}  skipped: {record['skipped'][name]}"[:width])
        if name not in results:
            continue
        one = results[name]
        answered = f"{one['ttft_s'] * 1e3:>6.1f} ms{one['tpot_s'] * 1e3:>6.2f} ms"
        speed = f"{one['single_s'] * 1e6:>7.0f} us{number(one['per_second']):>10}"
        ratio = number(ours["per_second"] / one["per_second"])
        line = f"{name:15}{tp:>6}{answered}{speed}{ratio:>9}{one['cold_s']:>7.2f} s"
        lines.append(f"{line}  {how}" if wide else line)
    before, after = (", ".join(f"{value:.1f}" for value in load) for load in record["load"])
    said = [f"{record['date']}, {record['machine']}", f"load average {before} before and {after} after"]
    return "\n".join([*lines, "", *_goals(results), "", *said])


def _goals(results: Results) -> list[str]:
    """Return each goal with what was reached."""
    ours = results[OURS]
    peers = {name: one for name, one in results.items() if name != OURS}
    rates = {name: number(one) for name, one in ours.items()}
    lines = [
        f"all metrics of a point {rates['all_per_second']}/s; in FP8, with bandwidth, {rates['drawn_per_second']}/s",
        f"grid of a million points {rates['grid_per_second']}/s, all metrics {rates['grid_all_per_second']}/s",
        f"a whole predict() in a warm process {ours['predict_s'] * 1e3:.1f} ms",
    ]
    lines += [
        f"{name} has a sweep of its own: {number(one['sweep_per_second'])}/s, "
        f"of which the grid is {ours['grid_per_second'] / one['sweep_per_second']:.0f} x"
        for name, one in peers.items()
        if "sweep_per_second" in one
    ]
    hand = ours["hand_per_second"] / ours["step_per_second"]
    lines.append(f"{_met(hand <= 3)}  step at most 3 x hand-written NumPy: {hand:.1f} x")
    if not peers:
        return lines
    # The goals were set with ridgepoint as the fastest.
    fastest = max(peers, key=lambda name: float(peers[name]["per_second"]))
    for name in dict.fromkeys((fastest, "ridgepoint")):
        if name not in peers:
            continue
        scattered = ours["per_second"] / peers[name]["per_second"]
        lines.append(f"{_met(scattered >= 10)}  scattered points at least 10 x {name}: {scattered:.1f} x")
        grid = ours["grid_per_second"] / peers[name]["per_second"]
        lines.append(f"{_met(grid >= 100)}  grid at least 100 x {name}: {grid:.1f} x")
    faster = [name for name, one in peers.items() if one["cold_s"] < ours["cold_s"]]
    said = f"{', '.join(faster)} sooner" if faster else "none sooner"
    # ridgepoint is no Python program: its core is compiled.
    met = set(faster) <= {"servcalc", "ridgepoint"}
    lines.append(f"{_met(met)}  cold predict before every Python peer but servcalc: {said}")
    return lines


def _met(reached: bool) -> str:
    return "met   " if reached else "missed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venvs", type=Path, default=HERE / ".venvs", help="folder of the virtual environments")
    parser.add_argument("--no-install", action="store_true", help="skip peers that are not installed there yet")
    parser.add_argument("--runs", type=int, default=7, help="cold starts of each")
    parser.add_argument("--json", type=Path, help="write what was measured")
    parser.add_argument("--read", type=Path, help="print what an earlier run wrote, and measure nothing")
    given = parser.parse_args()
    if given.read:
        record = json.loads(given.read.read_text(encoding="utf-8"))
    else:
        try:
            record = measure(given.venvs, not given.no_install, given.runs)
        except Skipped as reason:
            sys.exit(f"stopped: {reason}")
    if given.json:
        given.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(report(record, shutil.get_terminal_size().columns))


if __name__ == "__main__":
    main()
