"""The one reader of request traces: CSV, Mooncake, WEKA, Dynamo, AIPerf and conversations of vLLM's benchmark.

What a line is shows by its fields.  A trace says when requests came and how long they were; most say which blocks of
the prompt are the same as elsewhere, to which session a request belongs, or who sent it.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perfmodel.errors import UserError

#: Bytes of a trace at the most, unpacked; the longest public one has 80 MB.
MOST_BYTES = 2**30
#: Tokens of a request at the most; no model takes a thousandth of it.
MOST_TOKENS = 1e9
#: Tokens of a block of the Mooncake traces, which do not say it.
BLOCK_TOKENS = 512
#: Characters of a token where a file holds text and no lengths.
_LETTERS = 4.0

#: Columns of a plain trace, by any of their usual names; the first is the time of arrival [s].
_COLUMNS = {
    "arrival": ("arrival_s", "timestamp", "arrival"),
    "prompt": ("input_tokens", "input_length", "prompt_tokens", "ContextTokens"),
    "output": ("output_tokens", "output_length", "GeneratedTokens"),
}


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival.

    Attributes
    ----------
    name : str
    form : str
        Who writes such files.
    arrival, end : ndarray
        Times, the first arrival at 0 [s]; NaN where the file does not say.
    prompt, output : ndarray
        Tokens [1].
    blocks : tuple of tuple
        Names of the prompt's blocks, the same for the same text behind the same text; none where the file has none.
    block_tokens : float
        Tokens of a block [1].
    session : ndarray
        Number of the session of a request [1]; -1 where the file does not say.
    by_user : ndarray
        1 where a person sent what is new, 0 where a tool did; NaN where the file does not say.
    notes : tuple of str
        What was taken for what the file does not say.
    """

    name: str
    form: str
    arrival: Any
    prompt: Any
    output: Any
    end: Any
    blocks: tuple[tuple[Any, ...], ...]
    block_tokens: float
    session: Any
    by_user: Any
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.prompt)


@dataclass(frozen=True)
class _Request:
    """One request of a file, whatever its form."""

    arrival: float
    prompt: float
    output: float
    end: float = np.nan
    blocks: tuple[Any, ...] = ()
    session: Any = None
    by_user: float = np.nan


def read_trace(path: str | Path) -> Trace:
    """Read a trace file.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    Trace

    Raises
    ------
    UserError
        Where the file or a field is missing, or a row is no request.
    """
    file = Path(path)
    try:
        rows = _rows(file)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, EOFError, ValueError, RecursionError, csv.Error, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read as a trace ({why})") from None
    if not rows:
        raise UserError(f"{path}: a trace needs at least one request")
    if not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: every line must be an object of a request")
    form, requests, block_tokens, notes = _requests(rows, file)
    if not requests:
        raise UserError(f"{path}: a trace needs at least one request")
    return _trace(path, form, requests, block_tokens, notes)


def reusable(trace: Trace) -> Any:
    """Return the tokens of each prompt that a cache without limit holds when the request comes.

    Parameters
    ----------
    trace : Trace

    Returns
    -------
    ndarray
        [1]; without blocks, what the session's request before held and was answered.
    """
    reused = np.zeros(len(trace))
    if trace.blocks:
        seen: set[Any] = set()
        for at, blocks in enumerate(trace.blocks):
            hits = next((place for place, block in enumerate(blocks) if block not in seen), len(blocks))
            reused[at] = min(hits * trace.block_tokens, trace.prompt[at])
            seen.update(blocks)
        return reused
    cached: dict[int, float] = {}
    for at, session in enumerate(trace.session.tolist()):
        if session >= 0:
            reused[at] = min(cached.get(session, 0.0), trace.prompt[at] - 1)
            cached[session] = trace.prompt[at] + trace.output[at]
    return reused


def _trace(
    path: str | Path, form: str, requests: Sequence[_Request], block_tokens: float, notes: tuple[str, ...]
) -> Trace:
    """Return checked requests in order of arrival."""
    columns = [[getattr(each, name) for each in requests] for name in ("arrival", "prompt", "output", "end", "by_user")]
    arrival, prompt, output, end, by_user = (np.array(column, dtype=float) for column in columns)
    timed = bool(np.isfinite(arrival).all())
    if not (np.all(prompt >= 1) and np.all(output >= 0)) or not (timed or np.isnan(arrival).all()):
        raise UserError(f"{path}: arrivals must be finite, prompts at least 1 token and outputs not negative")
    if not (np.all(prompt <= MOST_TOKENS) and np.all(output <= MOST_TOKENS)):
        raise UserError(f"{path}: prompts and outputs have at most {MOST_TOKENS:,.0f} tokens")
    numbers: dict[Any, int] = {}
    session = [-1 if each.session is None else numbers.setdefault(each.session, len(numbers)) for each in requests]
    order = np.argsort(arrival, kind="stable") if timed else np.arange(len(requests))
    began = float(arrival.min()) if timed else 0.0
    blocks = tuple(requests[at].blocks for at in order) if any(each.blocks for each in requests) else ()
    return Trace(
        Path(path).name.split(".")[0],
        form,
        arrival[order] - began,
        prompt[order],
        output[order],
        end[order] - began,
        blocks,
        block_tokens,
        np.array(session)[order],
        by_user[order],
        notes,
    )


def is_json(name: str) -> bool:
    """Whether a file holds objects and no table, by its name.

    Parameters
    ----------
    name : str

    Returns
    -------
    bool
    """
    return name.endswith((".jsonl", ".jsonl.gz", ".json", ".json.gz"))


def _rows(file: Path) -> list[Any]:
    if not is_json(file.name):
        with file.open(newline="", encoding="utf-8-sig") as table:
            return list(csv.DictReader(table))
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
        raw = opened.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise ValueError(f"more than {MOST_BYTES:,} B")
    text = raw.decode("utf-8-sig")
    if file.name.endswith((".json", ".json.gz")):
        whole = json.loads(text)
        return whole if isinstance(whole, list) else [whole]
    return [json.loads(line) for line in text.splitlines() if line.strip()]


# --- forms -------------------------------------------------------------------------------------------------------

_Read = tuple[str, list[_Request], float, tuple[str, ...]]


def _requests(rows: list[dict[str, Any]], file: Path) -> _Read:
    """Return form, requests, tokens of a block and notes of rows, by the fields that they have."""
    for name, tells, reads in _FORMS:
        if any(tells(row) for row in rows[:10]):
            try:
                return name, *reads(rows)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                missing = f"field {error}" if isinstance(error, KeyError) else error
                raise UserError(f"{file}: no request of {name}: {missing} is missing or of another type") from None
    return _plain(rows, file)


def _plain(rows: list[dict[str, Any]], file: Path) -> _Read:
    names = {kind: next((name for name in known if name in rows[0]), None) for kind, known in _COLUMNS.items()}
    sessions = "session_id" if "session_id" in rows[0] else None
    for kind, name in names.items():
        if name is None:
            raise UserError(f"{file}: no column of {kind}; name it {' or '.join(_COLUMNS[kind])}")
    # JSON lines count milliseconds.
    unit = 1e3 if is_json(file.name) and names["arrival"] == "timestamp" else 1.0
    requests: list[_Request] = []
    late: dict[Any, float] = {}
    for row in rows:
        session = row.get(sessions) if sessions else None
        values = []
        for kind, name in names.items():
            written = row.get(str(name))
            if kind == "arrival" and written is None and session in late and "delay" in row:
                written = (late[session] + float(row["delay"]) / 1e3) * unit
            try:
                values.append(float(written))  # type: ignore[arg-type]
            except (TypeError, ValueError):
                raise UserError(f"{file}: column {name} must be numbers in every row") from None
        late[session] = values[0] / unit
        hashes = row.get("hash_ids") or ()
        if not isinstance(hashes, list | tuple):
            raise UserError(f"{file}: hash_ids must be a list in every row")
        requests.append(_Request(late[session], values[1], values[2], blocks=tuple(hashes), session=session))
    hashed = any(one.blocks for one in requests)
    tokens = float(rows[0].get("block_size") or BLOCK_TOKENS)
    notes = (f"blocks of {tokens:g} tokens, as Mooncake's",) if hashed and not rows[0].get("block_size") else ()
    return "Mooncake" if hashed else "plain", requests, tokens, notes


def _weka(rows: list[dict[str, Any]]) -> tuple[list[_Request], float, tuple[str, ...]]:
    requests = []
    for number, row in enumerate(rows):
        scope = number if row.get("hash_id_scope") != "global" else None
        requests += list(_weka_calls(row["requests"], scope, (number,)))
    sizes = {float(row["block_size"]) for row in rows if row.get("block_size")}
    if len(sizes) > 1:
        raise ValueError(f"one block_size (found {', '.join(map(str, sorted(sizes)))})")
    return (
        requests,
        sizes.pop() if sizes else 64.0,
        ("all sessions start at once: the file does not say when they did",),
    )


def _weka_calls(entries: Sequence[Mapping[str, Any]], scope: Any, session: tuple[Any, ...]) -> Iterator[_Request]:
    stopped = ""
    for entry in entries:
        if entry.get("type") == "subagent":
            yield from _weka_calls(entry["requests"], scope, (*session, entry.get("agent_id")))
            continue
        kinds = entry.get("input_types")
        by_user = np.nan
        if kinds:
            by_user = 0.0 if "tool_result" in kinds else 1.0
        elif stopped:
            by_user = 0.0 if stopped == "tool_use" else 1.0
        stopped = entry.get("stop") or ""
        at = float(entry["t"])
        blocks = tuple(block if scope is None else (scope, block) for block in entry.get("hash_ids") or ())
        took = entry.get("api_time")
        end = np.nan if took is None else at + float(took)
        yield _Request(at, float(entry["in"]), float(entry["out"]), end, blocks, session, by_user)


def _dynamo(rows: list[dict[str, Any]]) -> tuple[list[_Request], float, tuple[str, ...]]:
    requests, sizes = [], set()
    for row in rows:
        event = row.get("event", row)
        request = event.get("request")
        if event.get("event_type", "request_end") != "request_end" or not isinstance(request, dict):
            continue
        context, replay = event.get("agent_context") or {}, request.get("replay") or {}
        prompt = replay.get("input_length", request.get("input_tokens"))
        began = request.get("request_received_ms", event.get("event_time_unix_ms"))
        took = request.get("total_time_ms")
        trigger = str(context.get("input_trigger") or "")
        by_user = 0.0 if trigger.startswith("tool") else 1.0 if trigger.startswith("user") else np.nan
        if replay:
            sizes.add(float(replay["trace_block_size"]))
        if began is None or prompt is None:
            raise KeyError("request_received_ms" if began is None else "input_length")
        requests.append(
            _Request(
                float(began) / 1e3,
                float(prompt),
                float(request["output_tokens"]),
                np.nan if took is None else (float(began) + float(took)) / 1e3,
                tuple(replay.get("input_sequence_hashes") or ()),
                context.get("trajectory_id") or context.get("session_id"),
                by_user,
            )
        )
    if len(sizes) > 1:
        raise ValueError(f"one trace_block_size (found {', '.join(map(str, sorted(sizes)))})")
    return requests, sizes.pop() if sizes else 64.0, ()


def _aiperf(rows: list[dict[str, Any]]) -> tuple[list[_Request], float, tuple[str, ...]]:
    requests = []
    for row in rows:
        told, numbers = row["metadata"], row["metrics"]
        if row.get("error") or told.get("was_cancelled"):
            continue
        prompt, output = (float(numbers[f"{way}_sequence_length"]["value"]) for way in ("input", "output"))
        session = told.get("x_correlation_id") or told.get("conversation_id")
        began, ended = (float(told[f"request_{point}_ns"]) / 1e9 for point in ("start", "end"))
        requests.append(_Request(began, prompt, output, ended, session=session))
    return requests, 1.0, ("a prompt holds the one before it in its session and its answer: the file has no blocks",)


def _conversations(rows: list[dict[str, Any]]) -> tuple[list[_Request], float, tuple[str, ...]]:
    requests = []
    for number, row in enumerate(rows):
        context = 0.0
        for message in row.get("messages") or row.get("conversations") or ():
            role, said = message.get("role", message.get("from")), message.get("content", message.get("value"))
            tokens = max(1.0, len(str(said)) / _LETTERS)
            if role in ("assistant", "gpt") and context:
                session = (number, row.get("id"))
                requests.append(_Request(np.nan, np.round(context), np.round(tokens), session=session, by_user=1.0))
            context += tokens
    return (
        requests,
        1.0,
        (f"tokens are characters over {_LETTERS:g}: the file holds text", "there are no times in the file"),
    )


#: Who writes a form, how it shows in a row, and what reads it.
_FORMS: tuple[tuple[str, Callable[[dict[str, Any]], bool], Callable[..., Any]], ...] = (
    ("WEKA", lambda row: isinstance(row.get("requests"), list), _weka),
    (
        "Dynamo",
        lambda row: str(row.get("event", row).get("schema", "")).startswith("dynamo.") or "event_type" in row,
        _dynamo,
    ),
    ("AIPerf", lambda row: isinstance(row.get("metadata"), dict) and isinstance(row.get("metrics"), dict), _aiperf),
    ("vLLM multi-turn", lambda row: isinstance(row.get("messages", row.get("conversations")), list), _conversations),
)
