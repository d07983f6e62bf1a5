"""The hashes that place a dynamic table's key: `mix64` chooses the bucket, `slot_hash` the slot and the row's tag.

Anybody can compute and invert `mix64`, so anybody can craft ids that share a bucket. The slot within the bucket
depends on a key that only the arena's owner knows.
"""

from __future__ import annotations

import hashlib

import numpy as np

from elastichost.arena.compiled import compiled

__all__ = ["initial_stream", "mix64", "slot_hash"]


@compiled
def mix64(key: int | np.uint64) -> np.uint64:
    """splitmix64's finaliser of an int64 (or uint64) key, uint64; equals `elastichost.sharding.mix64`."""
    x = np.uint64(key)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def slot_hash(mixed: np.uint64, index_key: int) -> np.uint64:
    """Hash of a key within its bucket, uint64: its low half chooses the slot, bits 32-54 are the tag.

    mixed: `mix64` of the key. Multiply-shift with a random odd factor is universal (Dietzfelbinger et al., 1997): two
    ids that were chosen without knowing the factor share the upper n bits with probability 2**(1 - n) at most. One such
    round leaves arithmetic progressions in clusters, so there are two, with a fold between them. wyhash needs a
    product of 128 bits, which numba lacks; SipHash-1-3 costs five rounds of 14 operations for an id, here it is two
    multiplications. Without the key, nobody can aim; whoever can measure single lookups might learn about it, and
    `index.MOST_PROBES` is the bound on what that would do.
    """
    key = np.uint64(index_key)
    # Functions of the key alone: the compiler takes them out of the loop over ids.
    first = mix64(key ^ np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
    second = mix64(key ^ np.uint64(0xD1B54A32D192ED03)) | np.uint64(1)
    x = (mixed ^ key) * first
    x = (x ^ (x >> np.uint64(32))) * second
    return x ^ (x >> np.uint64(32))


def initial_stream(seed: int, name: str) -> np.uint64:
    """The stream of initial weights of one embedding: a function of the job's seed and the embedding's name only."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))
