"""Mutants of equations, machines and serving against the tests: ``python -m tests.mutation --sample 60``.

One operator, number or bound is changed at a place drawn by the commit's hash; a mutant is killed where a test fails.
Survivors are printed with their lines, and the score with its sample.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("equations", "machines", "serving")
#: Tests that a mutant meets, the quickest to fail first.
TESTS = tuple(f"tests/{part}" for part in ("backends", "tape", "limits", "paper", "sessions", "simulation"))
#: Which of them plants mistakes of its own.
LEFT = "tests/limits/test_mutations.py"
#: Times that the tests take without a mutant after which one is taken to hang.
HANGS = 3.0
_SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
_BOUNDS = {"maximum": "minimum", "minimum": "maximum"}
_COMPARES = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq}


@dataclass(frozen=True)
class Mutant:
    """One change: the file, its line, what stood there and what stands there now, and the whole text."""

    path: Path
    line: int
    before: str
    after: str
    text: str


def _changes(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Give each node that can be changed in a body of a function, with what it becomes."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in (inner for statement in function.body for inner in ast.walk(statement)):
            if isinstance(node, ast.BinOp) and type(node.op) in _SWAPS:
                yield node, ast.BinOp(node.left, _SWAPS[type(node.op)](), node.right)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BOUNDS:
                yield node, ast.Call(ast.Name(_BOUNDS[node.func.id], ast.Load()), node.args, node.keywords)
            elif isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARES:
                yield node, ast.Compare(node.left, [_COMPARES[type(node.ops[0])]()], node.comparators)
            elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
                yield node, ast.Constant(node.value + 1)


def mutants(seed: str, count: int) -> list[Mutant]:
    """Draw mutants, each place as likely as the next.

    Parameters
    ----------
    seed : str
    count : int

    Returns
    -------
    list of Mutant
    """
    places = []
    for room in ROOMS:
        for path in sorted((ROOT / "perfmodel" / room).rglob("*.py")):
            tree = ast.parse(path.read_text("utf-8"))
            places += [(path, at) for at, _ in enumerate(_changes(tree))]
    drawn = random.Random(hashlib.sha256(seed.encode()).hexdigest()).sample(places, min(count, len(places)))
    return [_mutant(path, at) for path, at in drawn]


def _mutant(path: Path, at: int) -> Mutant:
    text = path.read_text("utf-8")
    node, new = list(_changes(ast.parse(text)))[at]
    lines = text.splitlines(keepends=True)
    assert isinstance(node, ast.expr)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    encoded = [line.encode() for line in lines]
    start = sum(map(len, encoded[: node.lineno - 1])) + node.col_offset
    end = sum(map(len, encoded[: node.end_lineno - 1])) + node.end_col_offset
    whole = text.encode()
    after = f"({ast.unparse(ast.fix_missing_locations(new))})"
    return Mutant(
        path, node.lineno, whole[start:end].decode(), after, (whole[:start] + after.encode() + whole[end:]).decode()
    )


def killed(mutant: Mutant, limit: float | None = None) -> tuple[bool, float]:
    """Run the tests on a copy of the package with one change in it.

    Parameters
    ----------
    mutant : Mutant
    limit : float, optional
        Time after which a mutant that hangs is killed [s].

    Returns
    -------
    tuple of bool and float
        Whether a test failed, and the time it took [s].
    """
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "main"
        left = shutil.ignore_patterns("__pycache__", "build", ".git", ".venv", ".*_cache", ".hypothesis")
        shutil.copytree(ROOT, place, ignore=left)
        (place / mutant.path.relative_to(ROOT)).write_text(mutant.text, "utf-8")
        words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:benchmark"]
        words += ["-o", "addopts=--strict-markers", "-m", "not nightly", "-n", "0"]
        # One seed, so that a test that draws judges every mutant by the same questions.
        words += ["--hypothesis-seed=0", f"--ignore={LEFT}", *TESTS]
        env = os.environ | {"PYTHONPATH": str(place), "PERFMODEL_CACHE": str(Path(folder) / "cache")}
        try:
            done = subprocess.run(words, cwd=place, env=env, capture_output=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return True, time.monotonic() - begun
    return done.returncode != 0, time.monotonic() - begun


def main() -> None:
    """Print each mutant as it is judged, and the score."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--sample", type=int, default=60)
    reader.add_argument("--seed", default="", help="the commit's hash if none")
    reader.add_argument("--workers", type=int, default=2)
    asked = reader.parse_args()
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    seed = asked.seed or head.stdout.strip()
    drawn = mutants(seed, asked.sample)
    sound = replace(drawn[0], text=drawn[0].path.read_text("utf-8"))
    dead, whole = killed(sound)
    if dead:
        raise SystemExit(f"the tests fail without a mutant, after {whole:.0f} s")
    print(f"without a mutant the tests pass in {whole:.0f} s", flush=True)
    survivors = 0
    with ThreadPoolExecutor(asked.workers) as pool:
        for at, (mutant, (dead, taken)) in enumerate(
            zip(drawn, pool.map(lambda one: killed(one, HANGS * whole * asked.workers), drawn), strict=True), 1
        ):
            survivors += not dead
            where = f"{mutant.path.relative_to(ROOT)}:{mutant.line}"
            said = "killed  " if dead else "SURVIVED"
            print(f"{said} {where}  {mutant.before!r} -> {mutant.after!r}  {taken:.0f} s", flush=True)
            print(f"  score {1 - survivors / at:.0%} of {at}, seed {seed[:12]}", flush=True)


if __name__ == "__main__":
    main()
