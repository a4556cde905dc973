"""From a session file to the law that the caches of a machine see."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from perfmodel.serving.sessions import Quantiles, SessionTraffic
from perfmodel.specs import quantiles
from perfmodel.specs.sessions import Session

#: Shares at which a table is handed over, beside its own.
_SHARES = (5e-5, 1e-3, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1 - 5e-5)


def law_of(table: Mapping[str, Any], most: float = math.inf) -> Quantiles:
    """Return the law of a table of quantiles.

    Parameters
    ----------
    table : mapping of str to float
    most : float
        Where values are cut off, in the unit of the table.

    Returns
    -------
    Quantiles
    """
    # Laws are kept, for a mean takes a while to find.
    return _law(tuple((key, float(value)) for key, value in table.items()), most)


@functools.lru_cache(maxsize=256)
def _law(entries: tuple[tuple[str, float], ...], most: float) -> Quantiles:
    table = dict(entries)
    own = {int(key[1:]) / 100 for key in table if key not in ("mean", "p0", "p100")}
    shares = np.array(sorted({*_SHARES, *own}))
    values = np.minimum(quantiles.at(table, shares), most)
    if values[0] == values[-1]:
        return Quantiles.fixed(float(values[0]))
    mean = float(table["mean"]) if "mean" in table and values[-1] < most else None
    return Quantiles(tuple(shares.tolist()), tuple(np.maximum.accumulate(values).tolist()), mean)


def session_traffic(session: Session, longest: float = math.inf) -> SessionTraffic:
    """Return what sessions of a file look like to a machine.

    Parameters
    ----------
    session : Session
    longest : float
        Tokens of prompt and answer that the model takes [1]; prompts beyond it are cut to it.

    Returns
    -------
    SessionTraffic
    """
    output = law_of(session.output)
    most = max(1.0, longest - output.mean)
    compaction, prefix = session.compaction, session.shared_prefix
    limit = most if compaction is None or compaction.at is None else min(most, float(compaction.at))
    human = float(session.human_share)
    more: dict[str, Any] = {}
    if session.tool_gap:
        more["tool_gap"] = law_of(session.tool_gap)
    if session.human_gap:
        more["human_gap"] = law_of(session.human_gap)
    if compaction is not None:
        more |= {"compaction_share": float(compaction.share), "compacted_to": min(float(compaction.to), limit / 2)}
    elif math.isfinite(most):
        more["compacted_to"] = most / 2
    if prefix is not None:
        more |= {"shared_tokens": min(float(prefix.tokens), limit), "shared_groups": float(prefix.groups)}
    return SessionTraffic(
        turns=law_of(session.calls),
        first=law_of(session.first_context, limit),
        growth=law_of(session.growth),
        output=output,
        human_share=human,
        context=law_of(session.context, most) if session.context else None,
        new=law_of(session.appended) if session.appended else None,
        resent=float(session.resent_output),
        longest=limit,
        fan_out=float(session.fan_out),
        rounds="" if session.order == "free" else session.order,  # type: ignore[arg-type]
        population=1.0 if session.population is None else float(session.population),
        ttl=math.inf if session.ttl is None else float(session.ttl),
        **more,
    )
