"""Fields of a run's set-up: which there are, what they can be, and which a run of a kind must have."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence

from perfmodel.errors import UserError
from perfmodel.evidence.runs.run import Run, Stated
from perfmodel.evidence.validate.names import find_model, find_precision, find_system
from perfmodel.evidence.validate.reading import MOST, MOST_CHIPS, Unanswered
from perfmodel.options import unknown
from perfmodel.specs import catalog
from perfmodel.specs.naming import find_engine

AUTO = "auto"


def _positive(text: str) -> str:
    return "" if 0 < _number(text) <= MOST else f"expected a number from above 0 to {MOST:g}"


def _count(text: str) -> str:
    value = _number(text)
    return "" if 0 <= value <= MOST and value == int(value) else "expected a whole number"


def _degree(text: str) -> str:
    value = _number(text)
    return "" if 1 <= value <= MOST_CHIPS and value == int(value) else "expected a whole number from 1"


def _share(text: str) -> str:
    return "" if 0 <= _number(text) <= 1 else "expected a share from 0 to 1"


def _warmup(text: str) -> str:
    return "" if text in ("yes", "no") or not _count(text) else "expected yes, no or a number of requests"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _known(find: Callable[[str], object]) -> Callable[[str], str]:
    def look(text: str) -> str:
        try:
            find(text)
        except (Unanswered, UserError) as why:
            return str(why)
        return ""

    return look


def _precision(text: str) -> str:
    return "" if text == AUTO else _known(lambda named: find_precision(named, "it"))(text)


def _engine(text: str) -> str:
    return "" if find_engine(text) or text == "nccl" else "expected an engine with its release, as in 'vllm 0.18.0'"


def _mode(text: str) -> str:
    return "" if text in ("agg", "disagg") else "expected agg or disagg"


def _any(text: str) -> str:
    return ""


_POOLS = {
    f"{pool}_{name}": _degree
    for pool in ("prefill", "decode")
    for name in ("workers", "tp", "attention_dp", "ep", "batch")
}
#: What a field can be, by column, in the order of the file: a check says what is wrong, or nothing.
COLUMNS: dict[str, Callable[[str], str]] = {
    "date": _any,
    "model": _known(find_model),
    "hardware": _known(find_system),
    "n_chips": _degree,
    "tp": _degree,
    "pp": _degree,
    "ep": _degree,
    "dp": _degree,
    "attention_dp": _degree,
    "engine": _engine,
    "dtype_weights": _precision,
    "dtype_kv": _precision,
    "mode": _mode,
    **_POOLS,
    "isl": _positive,
    "osl": _positive,
    "concurrency_or_batch": _positive,
    "rate": _positive,
    "requests": _degree,
    "length_spread": _share,
    "warmup": _warmup,
    "prefix_hits": _share,
    "failures": _count,
    "in_flight": _positive,
    "method": _any,
    "k": _positive,
    "accept_length": _positive,
    "message_bytes": _positive,
    "notes": _any,
}
#: What the answer depends on, by kind of run.
_SETUP = ("model", "hardware", "n_chips", "tp", "engine", "dtype_weights", "dtype_kv")
_POOLED = ("prefill_workers", "prefill_tp", "decode_workers", "decode_tp")
_LOAD = ("isl", "osl", "requests", "length_spread", "warmup", "prefix_hits", "failures")
_NEEDED = {
    "serving": (*_SETUP, *_LOAD),
    "power": (*_SETUP, "isl", "osl"),
    "server": (*_SETUP,),
    "collective": ("hardware", "tp", "message_bytes"),
}


def read_fields(given: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """Read fields that a user gives, as a mapping or as ``NAME=VALUE``.

    Raises
    ------
    UserError
        Where there is no such field, it is given twice, or its value is none.
    """
    if isinstance(given, str) or not isinstance(given, Mapping | Sequence):
        raise UserError(f"--field {reprlib.repr(given)}: expected a mapping of columns to values, or texts NAME=VALUE")
    pairs = given.items() if isinstance(given, Mapping) else [_pair(text) for text in given]
    fields: dict[str, str] = {}
    for name, value in pairs:
        if name not in COLUMNS:
            close = unknown(name, COLUMNS).partition(": ")[2]
            listed = close if close.startswith("did") else f"expected one of {', '.join(COLUMNS)}"
            raise UserError(f"--field {name}: there is no field of that name; {listed}")
        if name in fields:
            raise UserError(f"--field {name} is given twice")
        text = str(value).strip()
        if wrong := COLUMNS[name](text):
            raise UserError(f"--field {name}={text}: {wrong}")
        fields[name] = text
    return fields


def _pair(text: str) -> tuple[str, str]:
    name, mark, value = str(text).partition("=")
    if not mark or not value.strip():
        raise UserError(f"--field {text}: expected NAME=VALUE, as in tp=8")
    return name.strip(), value


def settle(run: Run) -> None:
    """Work out what follows from other fields: means of lengths that were asked for, and the chips of two pools."""
    spread = run.fields.get("length_spread")
    if run.longest and spread is not None:
        for name in ("isl", "osl"):
            said = run.fields[name]
            mean = float(said.value) / (1 + float(spread.value))
            run.fields[name] = Stated(f"{mean:.9g}", f"{said.origin} / (1 + length_spread)")
    for name in ("n_chips", "tp"):
        if name not in run.fields and "mode" in run.fields and run.fields["mode"].value == "disagg":
            _from_pools(run, name)


def _from_pools(run: Run, name: str) -> None:
    """Work out chips of two pools, where both are told; a row of two pools has no TP of its own."""
    if not all(pooled in run.fields for pooled in _POOLED):
        return
    if name == "n_chips":
        chips = 0.0
        for pool in ("prefill", "decode"):
            own = [run.fields.get(f"{pool}_{part}") for part in ("workers", "tp", "attention_dp")]
            chips += math.prod(float(one.value) if one else 1.0 for one in own)
        run.fields[name] = Stated(f"{chips:g}", "workers x tp x attention_dp of both pools")


def missing(run: Run) -> list[str]:
    """Return the fields that a run must have and does not."""
    needed: tuple[str, ...] = _NEEDED[run.kind]
    if "mode" in run.fields and run.fields["mode"].value == "disagg":
        needed = tuple(name for name in needed if name != "tp") + _POOLED
    lost = [name for name in needed if name not in run.fields]
    if run.kind in ("serving", "power") and not {"concurrency_or_batch", "rate"} & {*run.fields}:
        offline = run.values and all(value.metric == "output_throughput_max" for value in run.values)
        lost += [] if offline else ["concurrency_or_batch"]
    if (
        run.kind != "collective"
        and not lost
        and "ep" not in run.fields
        and "prefill_tp" not in run.fields
        and _has_experts(run)
    ):
        lost.append("ep")
    return lost


def _has_experts(run: Run) -> bool:
    """Whether the model has experts and there are several ranks to hold them."""
    if float(run.fields["n_chips"].value) <= 1 or COLUMNS["model"](run.fields["model"].value):
        return False
    model = catalog.load_model(find_model(run.fields["model"].value)[0])
    return any(layers.moe is not None for layers in model.layers)


def check(run: Run) -> None:
    """Refuse a field that is none, and a layout that does not add up.

    Raises
    ------
    UserError
        The message names the file, the field and the fix.
    """
    for name, stated in run.fields.items():
        if name in COLUMNS and (wrong := COLUMNS[name](stated.value)):
            raise UserError(f"{run.source}: {name} {stated.value} ({stated.origin}): {wrong}; give --field {name}=...")
    if run.kind == "collective" or "prefill_tp" in run.fields:
        return
    degrees = {name: float(run.fields[name].value) for name in ("tp", "pp", "dp", "attention_dp") if name in run.fields}
    chips, ranks = float(run.fields["n_chips"].value), math.prod(degrees.values())
    if chips != ranks:
        said = " x ".join(f"{name} {value:g}" for name, value in degrees.items())
        raise UserError(
            f"{run.source}: n_chips {chips:g} but {said}; give what is missing of --field pp=... --field dp=... "
            "--field attention_dp=..."
        )
