"""Prices of a million tokens that say of which tokens, so that no two kinds are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from perfmodel.errors import UserError

Kind = Literal["input", "output", "total"]


@dataclass(frozen=True)
class TokenPrice:
    """Price of a million tokens of one kind [USD]; ``total`` counts input and output together."""

    usd: Any
    of: Kind

    def over(self, other: TokenPrice) -> Any:
        """Return this price over another of the same kind.

        Raises
        ------
        UserError
            Where the two count different tokens: at 8,000 in and 1,000 out they differ ninefold.
        """
        if self.of != other.of:
            raise UserError(f"a price of {self.of} tokens cannot be compared with one of {other.of} tokens")
        return self.usd / other.usd
