"""The blocks of prompts that a replica keeps: what running requests hold, and what has ended in the room they leave."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any


class PrefixBlocks:
    """An LRU cache of prompt blocks, as engines keep them.

    A block lies in it once, however many requests have it.  Those of ended requests go first, the longest unused first
    and the last of a prompt before its first, so that every hit is one of a whole prefix.

    Parameters
    ----------
    block_bytes : float
        KV cache of a block [B].
    """

    def __init__(self, block_bytes: float) -> None:
        self.block_bytes = block_bytes
        self.held: dict[Any, int] = {}
        self.idle: OrderedDict[Any, None] = OrderedDict()

    def found(self, blocks: Sequence[Any]) -> int:
        """Return how many of the first blocks of a prompt are there."""
        return next(
            (at for at, block in enumerate(blocks) if block not in self.held and block not in self.idle), len(blocks)
        )

    def take(self, blocks: Sequence[Any]) -> None:
        """Let a request hold its blocks."""
        for block in blocks:
            self.idle.pop(block, None)
            self.held[block] = self.held.get(block, 0) + 1

    def give(self, blocks: Sequence[Any]) -> None:
        """Let go of the blocks of a request."""
        for block in reversed(blocks):
            self.held[block] -= 1
            if not self.held[block]:
                del self.held[block]
                self.idle[block] = None

    def fit(self, room: float) -> None:
        """Forget until what nobody holds fits.

        Parameters
        ----------
        room : float
            What running requests leave [B].
        """
        while self.idle and len(self.idle) * self.block_bytes > room:
            self.idle.popitem(last=False)
