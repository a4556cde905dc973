"""How a run with speculative decoding drafted, and how many tokens its steps brought: measured, so no prediction."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from perfmodel.evidence import dataflow_fit
from perfmodel.evidence.validate.metrics import form_key
from perfmodel.evidence.validate.reading import Unanswered, bundled_path, plain, read_rows


@dataclass(frozen=True)
class Drafting:
    """How a step drafts.

    Attributes
    ----------
    draft : str
        A draft model, or the word of a method, as ``--draft`` takes it.
    passes : float
        Passes of the draft a step.
    verified : float
        Tokens of a sequence that the target's pass takes in, the last known one included.
    length : float
        Tokens a step as measured, the target's own one included.
    note : str
    fitted : bool
        Whether something was fitted on this run.
    conditions : mapping of str to float
        Inputs of the machine that the run differs in, by path.
    """

    draft: str
    passes: float
    verified: float
    length: float
    note: str
    fitted: bool = False
    conditions: Mapping[str, float] = field(default_factory=dict)


#: Draft, passes and verified tokens of Spec-Bench's methods, as its scripts set them (github.com/hemingkx/Spec-Bench).
_TREES = {
    "eagle": ("eagle", 5.0, 26.0),
    "eagle2": ("eagle", 6.0, 60.0),
    "eagle3": ("eagle", 6.0, 60.0),
    "samd[eagle2]": ("eagle", 6.0, 60.0),
    "pld": ("ngram", 10.0, 11.0),
    "lookahead": ("ngram", 56.0, 57.0),
}
_CHAIN = re.compile(r"mtp|n-gram|eagle", re.IGNORECASE)
#: Draft models by their size, as rows name them after a plus.
_LLAMAS = {"1b": "llama-3.2-1b", "3b": "llama-3.2-3b", "8b": "llama-3.1-8b"}


def target_of(model: str) -> str:
    """Return the target of a pair that is written as one name."""
    return model.partition(" + ")[0]


def _run(row: Mapping[str, str]) -> tuple[str, ...]:
    names = [row.get(name, "").casefold() for name in ("model", "hardware", "method", "k", "dataset")]
    # Runs of one model on one card are named with and without the suffix of its tuning.
    return (names[0].removesuffix("-instruct"), *names[1:])


@functools.cache
def _lengths() -> dict[tuple[str, ...], float]:
    """Return accepted lengths that were measured, by model, hardware, method, k and data set."""
    rows = read_rows(bundled_path("speculative"))
    return {_run(row): float(row["value"]) for row in rows if form_key(row["metric"]) == "accepted"}


def measured_length(row: Mapping[str, str]) -> float | None:
    """Return the accepted length that was measured in the run of a row."""
    return _lengths().get(_run(row))


def drafting(row: Mapping[str, str]) -> Drafting:
    """Return how the run of a row drafts.

    Raises
    ------
    Unanswered
        Where its draft has no form, or no accepted length of the run stands in the data.
    """
    metric, method, k = row["metric"].casefold(), row.get("method", "").strip(), plain(row, "k")
    if "vs_eagle" in metric:
        raise Unanswered("a ratio between two drafts, of which neither has a measured speed")
    if "range" in metric or metric == "slowdown":
        raise Unanswered("a value over several loads, which the row does not tell apart")
    if " + " in row["model"]:
        return _pair(row, k)
    length, word = measured_length(row), method.casefold()
    if length is None:
        raise Unanswered("no accepted length of this run stands in the data, and acceptance is an input of the models")
    if "spec-bench" in row.get("source_url", "").casefold():
        if word not in _TREES:
            raise Unanswered(f"the draft of {method} has no form here")
        draft, passes, verified = _TREES[word]
        shape = f"{passes:g} passes of one layer" if draft == "eagle" else "drafts that cost nothing"
        note = f"accepted length {length:g} is the measured one; {shape}, {verified:g} tokens verified"
        return Drafting(draft, passes, verified, length, note)
    if not _CHAIN.search(word) or not k >= 1:
        raise Unanswered(f"the draft of {method or 'this run'} has no form here")
    draft = "mtp" if "mtp" in word else "ngram" if "n-gram" in word else "eagle"
    note = f"accepted length {length:g} is the measured one; k + 1 tokens verified"
    return Drafting(draft, k, k + 1, length, note)


def _pair(row: Mapping[str, str], k: float) -> Drafting:
    """Return the drafting of a pair of the dataflow paper; its acceptance is that of Table 1 on HumanEval."""
    target, _, size = row["model"].partition(" + ")
    pair = f"{target.rpartition('-')[2]}/{size}"
    draft = _LLAMAS.get(size.casefold())
    if draft is None or pair not in dataflow_fit.figures()["table1_AR"] or k not in (5, 9):
        raise Unanswered("no acceptance of this pair stands in the data")
    length = dataflow_fit.human_eval(pair, k) * (k + 1)
    fitted = f"{pair.replace('/', '-')} 4k" == dataflow_fit.TABLE_4_ROW
    note = (
        f"{length:g} tokens a step: Table 1 of the paper, HumanEval; schedules are offloaded for drafts only, so that "
        "the host is asked for each token of the target alone"
    )
    return Drafting(draft, k, k + 1, length, note, fitted, {"system.efficiency.offloaded_tokens": 1.0})
