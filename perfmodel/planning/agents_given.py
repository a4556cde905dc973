"""Whether a question is about sessions, told without what answers it: most questions are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfmodel.errors import UserError
from perfmodel.options import Limits, flag, options_of

#: What a session says itself, or what is about other loads.
_NOT_WITH = (
    *("traffic", "prompt", "output", "concurrency", "images", "draft", "k", "alpha", "ar", "accept", "accept_logged"),
    *("rate", "arrival_scv", "prefix_hits", "lengths", "steady"),
)


def check_given(options: Mapping[str, Any], swept: bool = False, limited: bool = False) -> bool:
    """Return whether sessions are asked about, and refuse what does not go with them, or only with them.

    Parameters
    ----------
    options : mapping
        By name, as given.
    swept : bool
        Whether the users are an axis.
    limited : bool
        Whether objectives may be given.

    Returns
    -------
    bool
    """
    given = [name for name, value in options.items() if value is not None and value is not False]
    if "sessions" not in given:
        for name in ("tier",) if limited else ("users", "tier"):  # people may come with requests of their own, too
            if name in given:
                raise UserError(f"{flag(name)} is about sessions: give --sessions with it")
        return False
    if swept and "users" in given:
        raise UserError("--users is given twice: once as an axis")
    if "users" not in given and not swept:
        raise UserError("--sessions needs --users, the people who have them")
    for name in given:
        if name in _NOT_WITH or (name in options_of(Limits) and not limited):
            what = "have none" if name in options_of(Limits) else "have their own, or none"
            raise UserError(f"{flag(name)}: answers about sessions {what}; leave it out")
    return True
