"""The hash that places a dynamic table's key: top bits choose the bucket, low bits the slot, bits 32-54 tag the row."""

from __future__ import annotations

import hashlib

import numpy as np

from elastichost.arena.compiled import compiled

__all__ = ["initial_stream", "mix64"]


@compiled
def mix64(key: int | np.uint64) -> np.uint64:
    """splitmix64's finaliser of an int64 (or uint64) key, uint64; equals `elastichost.sharding.mix64`."""
    x = np.uint64(key)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def initial_stream(seed: int, name: str) -> np.uint64:
    """The stream of initial weights of one embedding: a function of the job's seed and the embedding's name only."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))
