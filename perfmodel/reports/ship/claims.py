"""Claims as truth values over free values: whether they hold everywhere, and which value decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfmodel.reports.figures import Claim, Verdict


@dataclass(frozen=True)
class Judged:
    """A claim over the product of some free values.

    Attributes
    ----------
    short : str
        A few words for a panel of a map.
    text : str
    truth : array
        One axis a free value.
    axes : mapping of str to sequence of str
        Labels of each axis, in order.
    more : str
        What else the reader should know, with numbers.
    """

    short: str
    text: str
    truth: Any
    axes: Mapping[str, Sequence[str]]
    more: str = ""

    @property
    def share(self) -> float:
        """Share of the settings in which the claim holds."""
        return float(np.mean(self.truth))

    @property
    def verdict(self) -> Verdict:
        """Return ``holds`` or ``fails`` where every setting agrees."""
        return "holds" if np.all(self.truth) else "fails" if not np.any(self.truth) else "depends"

    def by(self, axis: str) -> dict[str, float]:
        """Return the share of settings in which the claim holds, by the values of one axis."""
        at = list(self.axes).index(axis)
        others = tuple(place for place in range(len(self.axes)) if place != at)
        return dict(zip(self.axes[axis], np.mean(self.truth, axis=others).tolist(), strict=True))

    def deciders(self) -> list[tuple[str, float]]:
        """Return the free values by how far the share moves along them, the strongest first."""
        moves = [(axis, max(shares.values()) - min(shares.values())) for axis in self.axes if (shares := self.by(axis))]
        return sorted((move for move in moves if move[1] > 0.02), key=lambda move: -move[1])

    def claim(self) -> Claim:
        """Return the claim in words."""
        if self.verdict != "depends":
            each = "in every setting" if self.verdict == "holds" else "in no setting"
            return Claim(self.text, self.verdict, f"{each} of {self.truth.size:,}. {self.more}".strip())
        words = []
        for axis, _ in self.deciders()[:2]:
            shares = self.by(axis)
            words.append(f"{axis} (" + ", ".join(f"{label} {share:.0%}" for label, share in shares.items()) + ")")
        decides = f"decided by {' and then '.join(words)}" if words else "no single free value decides"
        return Claim(
            self.text,
            "depends",
            f"holds in {self.share:.0%} of {self.truth.size:,} settings; {decides}. {self.more}".strip(),
        )

    def map_rows(self, across: Sequence[str], down: Sequence[str]) -> list[dict[str, Any]]:
        """Return the share over two groups of axes, for a map; empty where the claim has not these axes."""
        if not {*across, *down} <= set(self.axes):
            return []
        names = list(self.axes)
        kept = [*across, *down]
        others = tuple(at for at, name in enumerate(names) if name not in kept)
        shares = np.mean(self.truth, axis=others)
        order = [name for name in names if name in kept]
        shares = np.transpose(shares, [order.index(name) for name in kept])
        rows = []
        for place in np.ndindex(shares.shape):
            labels = [self.axes[name][at] for name, at in zip(kept, place, strict=True)]
            rows.append(
                {
                    "claim": self.short,
                    "across": ", ".join(labels[: len(across)]),
                    "down": ", ".join(labels[len(across) :]),
                    "share": float(shares[place]),
                }
            )
        return rows
