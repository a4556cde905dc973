"""Accepted lengths of speculative decoding."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence

from perfmodel.equations import speculative
from perfmodel.evidence.validate.metrics import form_key
from perfmodel.evidence.validate.reading import plain
from perfmodel.evidence.validate.rows import Row

#: Methods that draft a chain; trees do not follow the chain formula.
_CHAIN = re.compile(r"mtp|n-gram|draft model|readme|none|chain", re.IGNORECASE)
_POSITION = re.compile(r"^acceptance_rate_position_(\d+)$")


def accepted_lengths(rows: Sequence[Row]) -> None:
    """Predict accepted lengths from the acceptances that stand beside them, position by position or one for all."""

    def run_of(row: Row) -> tuple[str, ...]:
        return tuple(row.given.get(name, "") for name in ("source_url", "model", "method", "dataset"))

    chances: dict[tuple[str, ...], dict[int, float]] = defaultdict(dict)
    alphas: dict[tuple[str, ...], float] = {}
    for row in rows:
        metric = row.given["metric"].casefold()
        if not math.isfinite(row.value):
            continue
        if metric == "conditional_acceptance_position" and plain(row.given, "k") >= 1:
            chances[run_of(row)][int(plain(row.given, "k"))] = row.value
        elif metric == "acceptance_rate_alpha":
            alphas[(*run_of(row), row.given.get("k", ""), row.given.get("temperature", ""))] = row.value
    for row in rows:
        if form_key(row.given["metric"]) != "accepted" or not row.value > 0:
            continue
        depth = plain(row.given, "k")
        if depth == 0:
            row.predicted = 1.0
        elif not depth >= 1 or not _CHAIN.search(row.given.get("method", "")):
            continue
        elif vector := chances.get(run_of(row)):
            reached, length = 1.0, 1.0
            for position in range(1, int(depth) + 1):
                known = vector.get(position, vector[max(vector)])
                reached = speculative.reached(before=reached, acceptance=known)
                length += reached
            row.predicted = float(length)
            if depth > max(vector):
                row.notes.append(f"acceptance beyond position {max(vector)} is taken as that of the last")
        elif (*run_of(row), row.given.get("k", ""), row.given.get("temperature", "")) in alphas:
            alpha = alphas[(*run_of(row), row.given.get("k", ""), row.given.get("temperature", ""))]
            row.predicted = float(speculative.accepted_length(acceptance=alpha, drafted=depth))
        if math.isfinite(row.predicted):
            row.reason = ""
