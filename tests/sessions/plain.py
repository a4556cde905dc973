"""A prefix cache that keeps every block of 64 tokens in one list by last use: nothing is shared with the package."""

from __future__ import annotations

from collections import OrderedDict


class BlockCache:
    """Blocks by last use; the head of a context is used after its tail, so the tail goes first."""

    def __init__(self, capacity, ttl=float("inf")):
        self.capacity, self.ttl, self.blocks, self.names = capacity, ttl, OrderedDict(), {}

    def call(self, session, group, time, reusable, whole, shared):
        """Return the blocks found; those behind what can be used again get new contents."""
        names = self.names.setdefault(session, [])
        own = max(0, reusable - shared)
        names[own:] = []
        while len(names) < whole - shared:
            names.append((session, len(names), time))
        context = [(group, at) for at in range(shared)] + names
        stale = [block for block, used in self.blocks.items() if used < time - self.ttl]
        for block in stale:
            del self.blocks[block]
        found = 0
        while found < reusable and context[found] in self.blocks:
            found += 1
        for block in reversed(context):
            self.blocks[block] = time
            self.blocks.move_to_end(block)
        while len(self.blocks) > self.capacity:
            self.blocks.popitem(last=False)
        return found
