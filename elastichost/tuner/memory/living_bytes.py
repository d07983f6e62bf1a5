"""The bytes of tensors that exist at the same time, from the events of one step. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from elastichost.wire.facts import TensorEvent

__all__ = ["living_bytes"]


def living_bytes(events: Iterable[TensorEvent], samples: int, block_bytes: int) -> tuple[float, float, float]:
    """The largest bytes that exist at the same time, for a batch of `samples` samples: of tensors below block_bytes, of
    larger ones, and of all tensors."""
    sizes: dict[int, float] = {}
    small = large = most_small = most_large = most = 0.0
    for event in events:
        if event.is_made:
            size = sizes[event.number] = event.fixed_bytes + event.sample_bytes * samples
        else:
            size = -sizes.pop(event.number, 0.0)
        if abs(size) < block_bytes:
            small += size
        else:
            large += size
        most_small, most_large, most = max(most_small, small), max(most_large, large), max(most, small + large)
    return most_small, most_large, most
