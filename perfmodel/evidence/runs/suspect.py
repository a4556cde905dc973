"""Runs that do not go with those beside them: another layout than stated, another unit, a warm cache, a cold start.

What a model is wrong by is alike for runs of one group (chip, engine, model, precision) and changes slowly with load
and lengths.  So the logarithm of measured over predicted is a constant of the group and a smooth function, a Gaussian
process; what the other runs say of a run, and how sure, follows by leaving it out.  A run is suspect where one of the
known mistakes, with the shift that the model gives it, is much likelier than none.  The worst is taken out first, for
it spoils what is said of its neighbours.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfmodel.evidence.validate import score_rows
from perfmodel.evidence.validate.rows import Row

_NAN = math.nan
#: Log likelihood by which a mistake must be likelier than none.
THRESHOLD = 4.0
#: What a mistake costs beforehand that has no shift of its own to match: a slow first token, a fast one, a token time.
_FREE = {"late": 0.7, "early": 1.0, "pace": 1.5}
_UNIT = math.log(1000.0)
#: Share of prompts that a run has in a cache which its row does not name.
_HITS = 0.9


@dataclass(frozen=True)
class Spread:
    """How errors spread: of a group, over its loads, of a run, and the least that is believed [1]."""

    group: float
    load: float
    run: float
    least: float


#: From the groups of serving.csv, rounded and widened by hand.
_SPREADS = {"TPOT": Spread(0.15, 0.08, 0.03, 0.04), "TTFT": Spread(0.6, 0.3, 0.12, 0.15)}
#: Logarithms over which errors stay alike: of clients, prompt, output, chips, TP and attention-DP.
_LENGTHS = np.array([1.5, 1.5, 1.5, 1.0, 1.0, 1.0])
_AT = ("concurrency_or_batch", "isl", "osl", "n_chips", "tp", "attention_dp")


@dataclass(frozen=True)
class Suspect:
    """A run that does not go with the others.

    Attributes
    ----------
    rows : tuple of int
        Positions of its values.
    why : str
        Which mistake is the likeliest.
    """

    rows: tuple[int, ...]
    why: str


@dataclass
class _Run:
    at: list[float]
    rows: list[int] = field(default_factory=list)
    error: dict[str, float] = field(default_factory=dict)
    shifts: dict[str, dict[str, float]] = field(default_factory=dict)


def find(rows: Sequence[Row]) -> list[Suspect]:
    """Return the runs that do not go with those beside them.

    Parameters
    ----------
    rows : sequence of Row
        Scored values.

    Returns
    -------
    list of Suspect
    """
    groups = _groups(rows)
    suspects = [Suspect((at,), row.notes[-1]) for at, row in enumerate(rows) if _misfit(row)]
    taken = {at for one in suspects for at in one.rows}
    for runs in groups:
        for index, why in _worst_first(runs):
            if not taken & {*runs[index].rows}:
                suspects.append(Suspect(tuple(runs[index].rows), why))
    return suspects


def mark(rows: Sequence[Row]) -> list[str]:
    """Note in the rows of suspect runs what is wrong with them, and return it in words, a line a run.

    Parameters
    ----------
    rows : sequence of Row
        Scored values.

    Returns
    -------
    list of str
    """
    lines = []
    for suspect in find(rows):
        for at in suspect.rows:
            rows[at].notes.append(f"suspect: {suspect.why}")
        given = rows[suspect.rows[0]].given
        name = given.get("run") or given.get("row_id") or f"row {suspect.rows[0] + 1}"
        lines.append(f"{name} is suspect: {suspect.why}")
    return lines


def _misfit(row: Row) -> bool:
    return any("does not fit" in note or "cannot be used" in note for note in row.notes)


def _log_error(row: Row) -> float:
    good = row.value > 0 and row.predicted > 0
    return math.log(row.value / row.predicted) if good else _NAN


def _number(given: Mapping[str, str], name: str) -> float:
    try:
        value = float(given.get(name) or 1.0)
    except ValueError:
        return 0.0
    return math.log(value) if value > 0 else 0.0


def _groups(rows: Sequence[Row]) -> list[list[_Run]]:
    """Return the runs of each group, with the shift that each mistake would give them."""
    used = [at for at, row in enumerate(rows) if row.metric in _SPREADS and math.isfinite(_log_error(row))]
    changed: dict[str, dict[int, float]] = {}
    for name, change in _CHANGES.items():
        cells = {at: other for at in used if (other := change(rows[at].given)) is not None}
        again = score_rows(("suspect", other) for other in cells.values()).rows
        changed[name] = {
            at: math.log(rows[at].predicted / row.predicted)
            for at, row in zip(cells, again, strict=True)
            if row.predicted > 0 and not _misfit(row)
        }
    groups: dict[tuple[str, ...], dict[tuple[str, ...], _Run]] = defaultdict(dict)
    for at in used:
        given = rows[at].given
        group = (rows[at].system, given.get("engine", ""), rows[at].model, *(given.get(n, "") for n in _ALIKE))
        key = tuple(given.get(name, "") for name in ("run", "row_id", *_AT))
        run = groups[group].setdefault(key, _Run([_number(given, name) for name in _AT]))
        run.rows.append(at)
        if rows[at].metric in run.error:
            continue
        run.error[rows[at].metric] = _log_error(rows[at])
        for name, shifts in changed.items():
            if at in shifts:
                # A run that had the mistake would measure what the model predicts with it.
                run.shifts.setdefault(name, {})[rows[at].metric] = -shifts[at]
    return [list(runs.values()) for runs in groups.values()]


_ALIKE = ("dtype_weights", "mode")


def _half(given: Mapping[str, str]) -> dict[str, str] | None:
    """Return a row on half of its chips, None where it has one or two pools."""
    name = next((name for name in ("tp", "attention_dp") if _number(given, name) > 0), None)
    if name is None or "disagg" in given.get("mode", ""):
        return None
    halved = {one: _halved(given[one]) for one in (name, "n_chips", "ep") if _number(given, one) > 0}
    # Some ids say the layout too, and would win.
    return {**given, **halved, "row_id": given.get("row_id", "").partition("_tp")[0]}


def _halved(text: str) -> str:
    return f"{max(1.0, float(text) / 2):g}"


_CHANGES: dict[str, Callable[[Mapping[str, str]], dict[str, str] | None]] = {
    "half": _half,
    "hits": lambda given: {**given, "prefix_hits": str(_HITS)},
}


def _worst_first(runs: list[_Run]) -> list[tuple[int, str]]:
    """Return index and mistake of the suspect runs of a group."""
    live = list(range(len(runs)))
    ranked: list[tuple[int, str]] = []
    while live and len(ranked) <= max(1, len(runs) // 3):
        said = _left_out([runs[at] for at in live])
        likeliest = [_likeliest(runs[at], said[place]) for place, at in enumerate(live)]
        worst = max(range(len(live)), key=lambda place: likeliest[place][0])
        if likeliest[worst][0] <= THRESHOLD:
            break
        ranked.append((live.pop(worst), likeliest[worst][1]))
    return ranked


def _left_out(runs: list[_Run]) -> list[dict[str, tuple[float, float]]]:
    """Return of each run, by metric, how far it is from what the others say, and how sure that is."""
    said: list[dict[str, tuple[float, float]]] = [{} for _ in runs]
    for metric, spread in _SPREADS.items():
        have = [place for place, run in enumerate(runs) if metric in run.error]
        if not have:
            continue
        at = np.array([runs[place].at for place in have]) / _LENGTHS
        errors = np.array([runs[place].error[metric] for place in have])
        away = ((at[:, None] - at[None]) ** 2).sum(-1)
        alike = spread.group**2 + spread.load**2 * np.exp(-away / 2)
        noise = spread.run
        for _ in range(3):
            far, sure = _leave_one_out(alike, errors, noise)
            # The spread of a group's own runs, as far as there are enough of them to tell; half of them may be bad.
            median = 1.4826 * float(np.median(np.abs(far) / sure))
            noise *= math.sqrt((6 + len(have) * median**2) / (6 + len(have)))
        far, sure = _leave_one_out(alike, errors, noise)
        for place, one, width in zip(have, far, np.maximum(sure, spread.least), strict=True):
            said[place][metric] = (float(one), float(width))
    return said


def _leave_one_out(alike: Any, errors: Any, noise: float) -> tuple[Any, Any]:
    """Return residuals and their spreads where each is left out: both follow from one inverse."""
    inverse = np.linalg.inv(alike + noise**2 * np.eye(len(errors)))
    diagonal = np.diag(inverse)
    return (inverse @ errors) / diagonal, 1 / np.sqrt(diagonal)


def _cost(far: float) -> float:
    """Return the negative log likelihood of a deviation in spreads; beyond six it grows by the first power."""
    size = abs(far)
    return size**2 / 2 if size < 6 else 18 + 6 * (size - 6)


def _likeliest(run: _Run, said: Mapping[str, tuple[float, float]]) -> tuple[float, str]:
    """Return by how much the likeliest mistake is likelier than none, and its name."""
    shifts = {f"{name} {sign:+d}": (of, sign) for name, of in run.shifts.items() for sign in _SIGNS[name]}
    shifts |= {f"unit {sign:+d}": (dict.fromkeys(said, _UNIT), sign) for sign in (1, -1)}
    best = (0.0, "")
    for name, (of, sign) in shifts.items():
        both = [(far, width, sign * of[metric]) for metric, (far, width) in said.items() if metric in of]
        gain = sum(_cost(far / width) - _cost((far - shift) / width) for far, width, shift in both)
        best = max(best, (gain, _WORDS[name]))
    if "TTFT" in said:
        far, width = said["TTFT"]
        name = "late" if far > 0 else "early"
        best = max(best, (_cost(far / width) - _FREE[name], f"{_WORDS[name]} ({_times(far)})"))
    if "TPOT" in said:
        far, width = said["TPOT"]
        best = max(best, (_cost(far / width) - _FREE["pace"], f"TPOT is {_times(far)} what the others say"))
    return best


def _times(far: float) -> str:
    return f"{math.exp(far):.3g} times"


_SIGNS = {"half": (1, -1), "hits": (1,)}
_WORDS = {
    "half +1": "as on half of the chips that it states",
    "half -1": "as on twice the chips that it states",
    "hits +1": "as with most of the prompts in a prefix cache",
    "unit +1": "1000 times what the others say: us for ms?",
    "unit -1": "a thousandth of what the others say: s for ms?",
    "late": "the first token is late, TPOT is not: a cold start inside the run?",
    "early": "the first token is early, TPOT is not: prompts in a prefix cache?",
}
