"""Who may take how much of the memory that is left on a host. Pure.

What is granted and not taken yet is *open*. Of what can be taken at most half is open while nobody is refused anything:
so the last of it can still go to whoever needs it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = ["MOST_OPEN_BYTES", "ServerShare", "Shares", "share_out"]

MOST_OPEN_BYTES = 512 << 20  # of a PS: more than a round of buckets that come from another host


class ServerShare(msgspec.Struct, frozen=True):
    """Bytes of one PS, counted since the arena was made: granted and taken. wanted: what it was refused since the last
    look, 0: nothing."""

    server: int
    granted: int
    taken: int
    wanted: int = 0

    @property
    def open(self) -> int:
        return max(0, self.granted - self.taken)


class Shares(msgspec.Struct, frozen=True):
    """granted: of each PS from now on. short: PS whose want cannot be granted; is_full: nor could it be if the others
    gave up what they have open."""

    granted: dict[int, int]
    short: tuple[int, ...] = ()
    is_full: bool = False


def share_out(left_bytes: int, shares: Sequence[ServerShare]) -> Shares:
    """left_bytes: what can still be taken on the host, open grants included; below zero when more is used than there
    should be. What is open afterwards is never more than that."""
    left = max(0, left_bytes)
    opened = {share.server: share.open for share in shares}
    if sum(opened.values()) > left:
        opened = _cut(opened, left)
    free = left - sum(opened.values())
    for share in sorted(shares, key=lambda one: -one.wanted):
        most = max(min(MOST_OPEN_BYTES, left // (2 * len(shares))), share.wanted)
        is_low = opened[share.server] < max(most // 2, share.wanted)
        more = min(free, most - opened[share.server]) if is_low else 0
        opened[share.server] += max(0, more)
        free -= max(0, more)
    short = tuple(share.server for share in shares if opened[share.server] < share.wanted)
    is_full = any(share.wanted > left for share in shares)
    if short and not is_full:
        # The others give back what they were not asked for: measured at the next look, it goes to who wants it.
        opened = {s.server: opened[s.server] if s.wanted else opened[s.server] // 2 for s in shares}
        is_full = not any(s.wanted == 0 and s.open > 0 for s in shares)
    return Shares({share.server: share.taken + opened[share.server] for share in shares}, short, is_full)


def _cut(opened: dict[int, int], left: int) -> dict[int, int]:
    """The same shares of less."""
    total = sum(opened.values())
    return {server: size * left // total for server, size in opened.items()}
