"""Which blocks of KV lie at each decode host already, and so are not moved again. Pure; called by serving.

A block is named by a hash that stands for all tokens up to its end, so what counts is the leading run of a
prompt's blocks: a block behind a gap is moved although an equal one may lie there. Blocks are alike in size.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Sequence


class PrefixCache:
    """The blocks at every destination, each with room for `capacity_bytes`; the least recently used go first.

    `block_bytes` is the KV of one block. `capacity_bytes` None: room for all; less than a block: no cache.
    ValueError for a size that is none.
    """

    def __init__(self, capacity_bytes: int | None, block_bytes: int) -> None:
        if block_bytes < 1 or (capacity_bytes is not None and capacity_bytes < 0):
            raise ValueError("needs a positive block and a capacity that is not negative")
        self._room = None if capacity_bytes is None else capacity_bytes // block_bytes
        self._blocks: defaultdict[str, OrderedDict[int, None]] = defaultdict(OrderedDict)

    def hits(self, dst: str, blocks: Sequence[int]) -> int:
        """Return how many of the leading `blocks` lie at `dst`."""
        held = self._blocks[dst]
        return next((number for number, block in enumerate(blocks) if block not in held), len(blocks))

    def missing(self, dst: str, blocks: Sequence[int]) -> Sequence[int]:
        """Return the blocks that must be moved to `dst`: all after the leading run that lies there."""
        return blocks[self.hits(dst, blocks) :]

    def insert(self, dst: str, blocks: Sequence[int]) -> None:
        """Note that all of `blocks` lie at `dst` now and were used; older ones make room.

        A prompt's beginning counts as used last: it is worth most, and its end is worth nothing without it.
        """
        held = self._blocks[dst]
        for block in reversed(blocks):
            held[block] = None
            held.move_to_end(block)
        while self._room is not None and len(held) > self._room:
            held.popitem(last=False)

    def held(self, dst: str) -> int:
        """Return how many blocks lie at `dst`."""
        return len(self._blocks[dst])
