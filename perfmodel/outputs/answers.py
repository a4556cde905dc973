"""Answers as a tidy file: one row a scenario, CSV or Parquet, with a data dictionary of its columns."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from perfmodel.errors import UserError
from perfmodel.prediction import METRICS, Prediction
from perfmodel.results import unit_of
from perfmodel.specs.release import numbers_version
from perfmodel.version import __version__
from perfmodel.writing import check_file, text_cell, whole

#: What a column means, by its name or by how it begins.
_MEANINGS = {
    "model": "architecture",
    "system": "machine",
    "chips": "chips that the deployment uses: TP x PP x DP",
    "plan_name": "name of the layout; given where the question fixed it",
    "plan_tp": "tensor-parallel degree",
    "plan_pp": "pipeline stages",
    "plan_ep": "expert-parallel degree",
    "plan_dp": "replicas",
    "plan_engine": "serving engine",
    "plan_precision": "storage of the weights",
    "plan_kv_precision": "storage of the KV cache",
    "traffic_name": "traffic; given where prompt and output were",
    "traffic_prompt": "prompt tokens of a request",
    "traffic_output": "output tokens of a request",
    "traffic_concurrency": "requests at once in the whole deployment",
    "ttft_s": "mean time to first token",
    "ttft_median_s": "median time to first token",
    "tpot_s": "time per output token after the first",
    "request_latency_s": "time of a whole request",
    "output_tokens_per_s": "output tokens per second of the deployment",
    "input_tokens_per_s": "input tokens per second of the deployment",
    "output_tokens_per_s_per_user": "1/TPOT: ot/s/u",
    "input_tokens_per_s_per_user": "prompt tokens over TTFT: it/s/u",
    "tokens_per_s_per_chip": "input plus output tokens per second of one chip",
    "mfu": "achieved share of the peak FLOP/s of all chips used",
    "mbu": "achieved share of the peak memory bandwidth of all chips used",
    "power_w": "mean power of all chips with their share of the nodes while serving; no PUE is in it",
    "joules_per_output_token": "that power over output tokens",
    "usd_per_mtok_input": "a million prompt tokens: their share of the cost is that of prefill in the chips' time",
    "usd_per_mtok_output": "a million output tokens, which bear the rest",
    "usd_per_mtok_blended": "a million tokens, input and output together",
    "fits": "whether weights and at least one request fit",
    "max_concurrency": "requests that fit the whole deployment",
    "prefill_limited_by": "where most of TTFT goes",
    "decode_limited_by": "where most of TPOT goes",
    "reason": "why there is no answer; empty where there is one",
    "assumed": "what the question left open and the answer assumed",
    "warnings": "what to mind",
    "perfmodel": "version that gave the answer",
    "numbers_version": "release of prices, and a digest of calibrations, power models, engines and prices in use",
}
_BEGINNINGS = {
    "prefill_": "part of TTFT by cause; the parts add up to TTFT",
    "decode_": "part of TPOT by cause; the parts add up to TPOT",
    "memory_": "memory of one chip of the fullest stage by use",
}


def meaning(column: str) -> str:
    """Return what a column holds, in words."""
    for ending in ("_low", "_high"):
        if column.endswith(ending):
            return f"{ending[1:]} end of the 80 % band of {column.removesuffix(ending)}"
    if column in _MEANINGS:
        return _MEANINGS[column]
    begun = [words for start, words in _BEGINNINGS.items() if column.startswith(start)]
    return begun[0] if begun else column.replace("_", " ")


def full_row(answer: Prediction) -> dict[str, Any]:
    """Return the flat columns of ``--csv``, and the band."""
    ends = {f"{name}_{end}": answer.band.get(name, {}).get(end) for name in METRICS for end in ("low", "high")}
    return {**answer.row(), **ends, "perfmodel": __version__, "numbers_version": numbers_version()}


def full_rows(answers: Iterable[Prediction]) -> list[dict[str, Any]]:
    """Return the rows of answers, each with all columns, whichever of them have a value."""
    rows = [full_row(answer) for answer in answers]
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in columns} for row in rows]


def dictionary(rows: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Return name, type, unit and meaning of each column of rows."""
    entries = []
    for name in rows[0]:
        is_text = name == "reason" or name.endswith("_limited_by") or any(isinstance(row[name], str) for row in rows)
        kind = "boolean" if name == "fits" else "text" if is_text else "number"
        bare = name.removesuffix("_low").removesuffix("_high")
        unit = "1" if name.startswith(("plan_", "traffic_")) else unit_of(bare)
        entries.append(
            {"column": name, "type": kind, "unit": unit if kind == "number" else "", "meaning": meaning(name)}
        )
    return entries


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return text_cell(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return value


def write_csv(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write rows of the same columns as CSV, whole or not at all."""
    with whole(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\r\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _cell(value) for name, value in row.items()})


def _write_parquet(rows: Sequence[dict[str, Any]], path: Path) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise UserError("Parquet needs pyarrow: pip install 'perfmodel[distributed]'") from None
    kinds = {"number": pa.float64(), "text": pa.string(), "boolean": pa.bool_()}
    fields = [
        pa.field(entry["column"], kinds[entry["type"]], metadata={"unit": entry["unit"], "meaning": entry["meaning"]})
        for entry in dictionary(rows)
    ]
    with whole(path) as partial:
        pq.write_table(pa.Table.from_pylist(list(rows), schema=pa.schema(fields)), partial)


def save(answers: Sequence[Prediction], path: Path) -> None:
    """Write answers as CSV (RFC 4180, UTF-8, ISO numbers) or, by the file's ending, as Parquet.

    Parameters
    ----------
    answers : sequence of Prediction
        One row each.
    path : Path
        Ends in ``.csv`` or ``.parquet``; written whole or not at all.
    """
    check_file(path, [".csv", ".parquet"], "--csv")
    rows = full_rows(answers)
    if path.suffix == ".parquet":
        _write_parquet(rows, path)
    else:
        write_csv(rows, path)


def save_dictionary(answers: Sequence[Prediction], path: Path) -> None:
    """Write the data dictionary of :func:`save` as CSV: column, type, unit, meaning."""
    check_file(path, [".csv"], "--dictionary")
    write_csv(dictionary(full_rows(answers)), path)
