"""From a trace to a kind of session: what lies between calls of the same session, as tables of quantiles."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel import shapes
from perfmodel.errors import UserError
from perfmodel.serving.session_spec import session_traffic
from perfmodel.serving.sessions import drawn_calls
from perfmodel.serving.traces import Trace, read_trace, reusable
from perfmodel.shown import Shown
from perfmodel.specs import catalog, quantiles
from perfmodel.specs.sessions import Session
from perfmodel.writing import whole

#: Quantiles of a table; those that fewer values than a tenth of their tail stand behind are left out.
_SHARES = (1, 5, 10, 25, 50, 75, 90, 95, 99)
#: A prompt that is shorter than the one before it by so many tokens, and by a quarter, was compacted.
_DROP = 2000.0


@dataclass(frozen=True)
class Calls:
    """Calls of sessions, one after the other, the first of a session first.

    Attributes
    ----------
    session : ndarray
        Number of the session that a call belongs to [1].
    prompt, output : ndarray
        Tokens [1].
    reusable : ndarray
        Tokens of the prompt that a cache without limit holds [1]; of a first call those of the shared prefix.
    gap : ndarray
        From the end of the session's call before to the start of this one [s]; NaN of first calls and where unknown.
    by_user : ndarray
        1 where a person sent what is new, 0 where a tool did; NaN where unknown.
    """

    session: Any
    prompt: Any
    output: Any
    reusable: Any
    gap: Any
    by_user: Any

    def __len__(self) -> int:
        return len(self.session)

    @property
    def first(self) -> Any:
        """Whether a call is the first of its session."""
        return np.diff(self.session, prepend=-1) != 0


@dataclass(frozen=True)
class CallFigures:
    """What calls say without any machine.

    Attributes
    ----------
    sessions, calls, tasks : int
        A task lies between two messages of a person; where nobody knows who sent what, it is a session.
    hit_ceiling : float
        Share of prompt tokens that a cache without limit holds [1].
    read_per_written : float
        Tokens that such a cache gives for one that is prefilled [1].
    input_per_output : float
        Prompt tokens for one of an answer [1].
    mean_context, mean_new, mean_output : float
        Prompt, prefilled and answered tokens of a call [1].
    """

    sessions: int
    calls: int
    tasks: int
    hit_ceiling: float
    read_per_written: float
    input_per_output: float
    mean_context: float
    mean_new: float
    mean_output: float


def figures(calls: Calls) -> CallFigures:
    """Return hit ceiling, read over written and input over output of calls."""
    asked, tokens = float(calls.prompt.sum()), float(calls.reusable.sum())
    count, sessions = len(calls), int(calls.first.sum())
    # The first call of a session begins a task whoever sent it.
    tasks = int(np.sum(calls.first | (calls.by_user == 1)))
    return CallFigures(
        sessions,
        count,
        tasks,
        tokens / asked,
        tokens / max(1.0, asked - tokens),
        asked / max(1.0, float(calls.output.sum())),
        asked / count,
        (asked - tokens) / count,
        float(calls.output.sum()) / count,
    )


@dataclass(frozen=True, repr=False)
class Imported(Shown):
    """A kind of session, and what its calls say by themselves.

    Attributes
    ----------
    name : str
    form : str
        Who writes such files; ``session`` for a spec.
    figures : CallFigures
    content : dict
        What a session file holds.
    notes : tuple of str
        What was taken for what the file does not say.
    path : str
        The file that was written; empty where none was.
    """

    name: str
    form: str
    figures: CallFigures
    content: Mapping[str, Any]
    notes: tuple[str, ...]
    path: str = ""

    def to_dict(self) -> shapes.TrafficImport:
        """Return the documented JSON object."""
        return {
            "name": self.name,
            "form": self.form,
            "sessions": self.figures.sessions,
            "calls": self.figures.calls,
            "tasks": self.figures.tasks,
            "hit_ceiling": self.figures.hit_ceiling,
            "read_per_written": self.figures.read_per_written,
            "input_per_output": self.figures.input_per_output,
            "mean_context": self.figures.mean_context,
            "mean_new": self.figures.mean_new,
            "mean_output": self.figures.mean_output,
            "path": self.path or None,
            "assumed": list(self.notes),
        }


def show(name: str) -> Imported:
    """Return what the calls of a kind of session say by themselves.

    Parameters
    ----------
    name : str
        Name or path of a session spec.

    Returns
    -------
    Imported
    """
    session = catalog.load_session(name)
    return Imported(session.name, "session", figures(drawn(session)), asdict(session), ())


def drawn(session: Session) -> Calls:
    """Return calls that stand for a kind of session, whatever model answers them.

    Parameters
    ----------
    session : Session

    Returns
    -------
    Calls
    """
    calls = drawn_calls(session_traffic(session))
    gap = np.where(calls.first, np.nan, np.diff(calls.thought, prepend=0.0))
    return Calls(calls.session, calls.prompt, calls.output, calls.reusable, gap, calls.human.astype(float))


def read(path: str | Path, out: str | Path | None = None) -> Imported:
    """Make a kind of session of a trace.

    Parameters
    ----------
    path : str or path
        The trace.
    out : str or path, optional
        Session file to write, whole or not at all.

    Returns
    -------
    Imported
    """
    if out is not None and not str(out).endswith((".yaml", ".yml")):
        raise UserError(f"--out {out}: a session file ends in .yaml")
    trace = read_trace(path)
    calls, notes = calls_of(trace, str(path))
    name = re.sub(r"[^a-z0-9._-]+", "-", trace.name.lower()).strip("-.") or "traffic"
    if out is not None:
        name = Path(out).stem
    content, more = _content(name, trace, calls)
    said = (*trace.notes, *notes, *more)
    imported = Imported(name, trace.form, figures(calls), content, said, "" if out is None else str(out))
    if out is not None:
        with whole(Path(out)) as partial:
            partial.write_text(as_yaml(content, Path(path).name, imported), encoding="utf-8")
        catalog.load_session(str(out))
    return imported


def calls_of(trace: Trace, path: str) -> tuple[Calls, list[str]]:
    """Return the calls of a trace session by session, and what was taken for what it does not say.

    Parameters
    ----------
    trace : Trace
    path : str
        Its file, for errors.

    Returns
    -------
    tuple of Calls and list of str
    """
    notes = []
    session = trace.session
    if np.any(session < 0):
        if not trace.blocks:
            raise UserError(f"{path}: no sessions can be told apart: give each request a session_id, or hash_ids")
        session = _chained(trace)
        notes.append("a request continues the session whose last blocks it begins with: the file names none")
    order = np.lexsort((np.arange(len(trace)), session))
    number = session[order]
    number = np.cumsum(np.diff(number, prepend=number[0]) != 0)
    first = np.diff(number, prepend=-1) != 0
    begun, ended = trace.arrival[order], trace.end[order]
    left = np.concatenate(([np.nan], np.where(np.isfinite(ended), ended, begun)[:-1]))
    if np.isfinite(trace.arrival).all() and not np.isfinite(trace.end).all():
        notes.append("gaps are from start to start: the file does not say when calls ended")
    gap = np.where(first, np.nan, np.maximum(0.0, begun - left))
    by_user = trace.by_user[order]
    if np.isnan(by_user[~first]).any():
        notes.append("a task is a session: the file does not say what a person sent")
        by_user = np.where(first, by_user, 0.0)
    return Calls(number, trace.prompt[order], trace.output[order], reusable(trace)[order], gap, by_user), notes


def _chained(trace: Trace) -> Any:
    """Return the session of each request by its blocks: that of whose last whole block it holds the furthest one."""
    last: dict[Any, int] = {}
    chains = np.empty(len(trace), dtype=int)
    count = 0
    for at, blocks in enumerate(trace.blocks):
        known = next((block for block in reversed(blocks[1:]) if block in last), None)
        if known is None:
            chains[at], count = count, count + 1
        else:
            chains[at] = last.pop(known)
        # What a request and its answer fill goes on from its last whole block.
        end = blocks[-2] if len(blocks) > 2 else blocks[-1] if len(blocks) > 1 else None
        if end is not None:
            last[end] = int(chains[at])
    return chains


def table(values: Any) -> dict[str, float]:
    """Return quantiles of values and, where a law through them can have it, their mean.

    Parameters
    ----------
    values : ndarray

    Returns
    -------
    dict of str to float
    """
    values = np.asarray(values, dtype=float)
    kept = [share for share in _SHARES if min(share, 100 - share) * len(values) >= 100]
    found = {f"p{share}": _short(np.quantile(values, share / 100)) for share in kept or (50,)}
    found |= {"p0": _short(values.min()), "p100": _short(values.max())} if values.max() > values.min() else {}
    with_mean = {**found, "mean": _short(values.mean())}
    return found if quantiles.fault(with_mean) else with_mean


def _short(value: float) -> float:
    return float(f"{float(value):.5g}")


def _content(name: str, trace: Trace, calls: Calls) -> tuple[dict[str, Any], list[str]]:
    """Return what a session file holds."""
    first = calls.first
    later = ~first
    notes = []
    content: dict[str, Any] = {"name": name, "calls": table(np.bincount(calls.session))}
    content["first_context"] = table(calls.prompt[first])
    growth = np.diff(calls.prompt, prepend=0.0)
    before = np.concatenate(([0.0], calls.prompt[:-1]))
    cut = later & (growth < -_DROP) & (growth < -0.25 * before)
    grown = later & ~cut
    content["growth"] = table(np.maximum(0.0, growth[grown])) if grown.any() else {"mean": 0.0}
    content["output"] = table(np.maximum(1.0, calls.output))
    user = later & (calls.by_user == 1)
    share = float(user.sum()) / max(1, int(later.sum()))
    for key, mine in (("tool_gap", later & ~user), ("human_gap", user)):
        if mine.any() or (key == "tool_gap" and share == 0):
            times = calls.gap[mine]
            content[key] = table(times) if len(times) and np.isfinite(times).all() else {"mean": 0.0}
    if later.any() and np.isnan(calls.gap[later]).any():
        notes.append("each call follows the one before at once: there are no times in the file")
    if share:
        content["human_share"] = _short(share)
    content["context"] = table(calls.prompt)
    if later.any():
        content["appended"] = table(np.maximum(0.0, (calls.prompt - calls.reusable)[later & ~cut]))
    if cut.any():
        content["compaction"] = {"to": _short(np.median(calls.prompt[cut])), "share": _short(cut.sum() / len(calls))}
    tokens, groups = _shared(trace, calls)
    held = min(tokens, content["first_context"].get("p50", tokens), content.get("compaction", {"to": tokens})["to"])
    if held:
        content["shared_prefix"] = {"tokens": _short(held), "groups": groups}
    return content, notes


def _shared(trace: Trace, calls: Calls) -> tuple[float, int]:
    """Return the mean tokens that first prompts share with another session's, and how many such prefixes there are."""
    if not trace.blocks:
        return 0.0, 1
    opened: dict[int, tuple[Any, ...]] = {}
    session = trace.session if np.all(trace.session >= 0) else _chained(trace)
    for at, number in enumerate(session.tolist()):
        opened.setdefault(number, trace.blocks[at])
    held = Counter(block for blocks in opened.values() for block in set(blocks))
    lengths, ends = [], set()
    for blocks in opened.values():
        length = next((at for at, block in enumerate(blocks) if held[block] < 2), len(blocks))
        lengths.append(length)
        if length:
            ends.add(blocks[0])
    return float(np.mean(lengths)) * trace.block_tokens, max(1, len(ends))


def as_yaml(content: Mapping[str, Any], source: str, imported: Imported) -> str:
    """Return a session file with what it was made of.

    Parameters
    ----------
    content : mapping
    source : str
        Name of the trace.
    imported : Imported

    Returns
    -------
    str
    """
    told = imported.figures
    said = f"Made by 'perfmodel traffic import' of {source}: {told.sessions} sessions, {told.calls} calls."
    lines = [
        f"name: {content['name']}",
        f"description: {_quoted(said)}",
        "source: own-trace",
        "kind_of_numbers: measured",
    ]
    lines += [f"# {note}" for note in imported.notes]
    for key, value in content.items():
        unit = " s" if key.endswith("_gap") else ""
        if isinstance(value, Mapping):
            lines.append(f"{key}: {{{', '.join(f'{name}: {entry:g}{unit}' for name, entry in value.items())}}}")
        elif key != "name":
            lines.append(f"{key}: {value:g}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "").replace('"', "'") + '"'
