"""The hashes that place a key of a dynamic table: `mix64` chooses the bucket, `slot_hash` the slot and the tag.

`mix64` is public and invertible, so an attacker can craft ids that share a bucket. The slot within the bucket depends
on a secret key of the arena, which is not known outside the run.
"""

from __future__ import annotations

import hashlib

import numpy as np

from elastichost.arena.compiled import compiled

__all__ = ["initial_stream", "mix64", "slot_hash"]


@compiled
def mix64(key: int | np.uint64) -> np.uint64:
    """The finaliser of splitmix64, from an int64 or uint64 key to uint64. Equal to `elastichost.sharding.mix64`."""
    x = np.uint64(key)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled
def slot_hash(mixed: np.uint64, index_key: int) -> np.uint64:
    """Hash of a key within its bucket, uint64: the low half chooses the slot, bits 32-54 are the tag.

    mixed: `mix64` of the key; index_key: the secret key of the arena, 63 bits.

    Multiply-shift with a random odd factor is universal (Dietzfelbinger et al., 1997): two ids that were chosen without
    knowledge of the factor share the upper n bits with a probability of at most 2**(1 - n). One round leaves arithmetic
    progressions in clusters, so there are two rounds with a fold between them. wyhash needs a product of 128 bits,
    which numba lacks. SipHash-1-3 costs five rounds of 14 operations for an id; this hash costs two multiplications.

    Without the secret key an attacker cannot choose ids that share a slot. An attacker that can time single lookups
    might gain information about the key; `table.MOST_PROBES` bounds the damage.
    """
    key = np.uint64(index_key)
    # Both depend on the secret key alone, so the compiler moves them out of the loop over ids.
    first = mix64(key ^ np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
    second = mix64(key ^ np.uint64(0xD1B54A32D192ED03)) | np.uint64(1)
    x = (mixed ^ key) * first
    x = (x ^ (x >> np.uint64(32))) * second
    return x ^ (x >> np.uint64(32))


def initial_stream(seed: int, name: str) -> np.uint64:
    """The random stream of an embedding's initial weights, uint64. It depends on the job's seed and `name` alone, see
    `ModelSpec.initial_name`."""
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))
