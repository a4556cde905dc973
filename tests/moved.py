"""What moved between two versions, for the notes of a release: ``python -m tests.moved v0.1.0``.

The same questions are answered by the version that a tag or commit names and by the working tree, and every number that
moved by more than a share is printed as a table for CHANGELOG.md, with both versions of the numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
#: Fixed questions: each kind of machine, dense and experts, alone and loaded, long and short, with and without a draft.
QUESTIONS = [
    f"{model} --on {on} {load}".split()
    for model in ("llama-3.1-8b", "llama-3.3-70b", "gpt-oss-120b", "deepseek-v3")
    for on in ("dgx-h100", "dgx-h200", "dgx-b200", "mi300x-8", "lpu-v1", "sn40l-16")
    for load in (
        "--traffic chat",
        "--traffic chat --concurrency 64",
        "--prompt 30000 --output 500 --concurrency 8",
    )
]
QUESTIONS += [
    f"llama-3.3-70b --on {on} --draft llama-3.2-1b --k 4 --alpha 0.7".split() for on in ("dgx-h100", "sn40l-16")
]
NUMBERS = ("ttft_s", "tpot_s", "output_tokens_per_s", "power_w", "usd_per_mtok_blended")
#: Runs in the version that is asked.
_ASK = """
import contextlib, io, json, sys
from perfmodel.cli import run
answers = {}
for words in json.load(sys.stdin):
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        run(["predict", *words, "--json"])
    answers[" ".join(words)] = json.loads(out.getvalue() or "{}")
print(json.dumps(answers))
"""


def answers(root: Path, questions: list[list[str]]) -> dict[str, dict[str, Any]]:
    """Return the answers that the version in a folder gives.

    Parameters
    ----------
    root : Path
        A checkout.
    questions : list of list of str
        Words after ``predict``.

    Returns
    -------
    dict of str to dict
        The JSON of each question.
    """
    done = subprocess.run(
        [sys.executable, "-c", _ASK],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


def numbers(answer: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the numbers of an answer that are compared; none where it has none."""
    body = answer["answers"][0] if "answers" in answer else answer
    return {name: body.get(name) for name in NUMBERS}


def moved(before: Mapping[str, Any], after: Mapping[str, Any], least: float) -> list[tuple[str, str, Any, Any]]:
    """Return question, number, before and after, of what moved by more than a share.

    Parameters
    ----------
    before, after : mapping of str to dict
        JSON by question.
    least : float
        Share [1].
    """
    rows = []
    for question, answer in after.items():
        old, new = numbers(before.get(question, {})), numbers(answer)
        for name in NUMBERS:
            a, b = old[name], new[name]
            if (a is None) != (b is None) or (a is not None and b is not None and abs(b - a) > least * abs(a)):
                rows.append((question, name, a, b))
    return rows


def main() -> None:
    """Print what moved."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("version", help="a tag or commit to compare with")
    reader.add_argument("--least", type=float, default=0.005, help="share below which nothing is printed")
    asked = reader.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder) / "main"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", str(there), asked.version], cwd=ROOT, check=True)
        try:
            before = answers(there, QUESTIONS)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(there)], cwd=ROOT, check=True)
    after = answers(ROOT, QUESTIONS)
    rows = moved(before, after, asked.least)
    versions = [{str(each.get("numbers_version", "unknown")) for each in side.values()} for side in (before, after)]
    print(f"{len(rows)} of {len(after) * len(NUMBERS)} numbers moved by more than {asked.least:.1%}; numbers", end=" ")
    print(f"{', '.join(sorted(versions[0]))} then, {', '.join(sorted(versions[1]))} now\n")
    if rows:
        print("| question | number | before | after | change |\n|---|---|--:|--:|--:|")
    for question, name, old, new in rows:
        change = "" if old is None or new is None or not old else f"{new / old - 1:+.1%}"
        shown = ["-" if value is None else f"{value:.4g}" for value in (old, new)]
        print(f"| {question} | {name} | {shown[0]} | {shown[1]} | {change} |")


if __name__ == "__main__":
    main()
