"""XXH64 (seed 0) of strings: the key of a string id. It is the same in all versions, machines and languages.

The kernel reads Arrow's string buffers directly, without making Python strings. The algorithm is the published XXH64;
tests compare it with the published vectors.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elastichost.arena.compiled import exactly_compiled

__all__ = ["hash_arrow_strings", "hash_bytes", "hash_slices", "xxh64_kernel"]

# The kernels compute with uint64 only: in numba, uint64 with int64 gives float64.
PRIME_1 = np.uint64(0x9E3779B185EBCA87)
PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
PRIME_3 = np.uint64(0x165667B19E3779F9)
PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
PRIME_5 = np.uint64(0x27D4EB2F165667C5)
# Seeds of the four lanes for seed 0: P1 + P2, P2, 0, -P1 (all modulo 2^64).
LANE_1 = np.uint64((0x9E3779B185EBCA87 + 0xC2B2AE3D27D4EB4F) % 2**64)
LANE_2 = PRIME_2
LANE_3 = np.uint64(0)
LANE_4 = np.uint64(2**64 - 0x9E3779B185EBCA87)

U1, U4, U7, U8 = np.uint64(1), np.uint64(4), np.uint64(7), np.uint64(8)
U11, U12, U16, U18 = np.uint64(11), np.uint64(12), np.uint64(16), np.uint64(18)
U23, U24, U27, U29 = np.uint64(23), np.uint64(24), np.uint64(27), np.uint64(29)
U31, U32, U33, U40, U48, U56, U64 = (np.uint64(n) for n in (31, 32, 33, 40, 48, 56, 64))
U2, U3, U5, U6 = np.uint64(2), np.uint64(3), np.uint64(5), np.uint64(6)


@exactly_compiled
def rotate_left(value: np.uint64, bits: np.uint64) -> np.uint64:
    return (value << bits) | (value >> (U64 - bits))


@exactly_compiled
def load_4(data: npt.NDArray[np.uint8], at: np.uint64) -> np.uint64:
    """The four bytes at an offset, as a little-endian number."""
    return (
        np.uint64(data[at])
        | (np.uint64(data[at + U1]) << U8)
        | (np.uint64(data[at + U2]) << U16)
        | (np.uint64(data[at + U3]) << U24)
    )


@exactly_compiled
def load_8(data: npt.NDArray[np.uint8], at: np.uint64) -> np.uint64:
    """The eight bytes at an offset, as a little-endian number. LLVM compiles the shifts to one load."""
    return (
        np.uint64(data[at])
        | (np.uint64(data[at + U1]) << U8)
        | (np.uint64(data[at + U2]) << U16)
        | (np.uint64(data[at + U3]) << U24)
        | (np.uint64(data[at + U4]) << U32)
        | (np.uint64(data[at + U5]) << U40)
        | (np.uint64(data[at + U6]) << U48)
        | (np.uint64(data[at + U7]) << U56)
    )


@exactly_compiled
def lane_round(lane: np.uint64, word: np.uint64) -> np.uint64:
    return rotate_left(lane + word * PRIME_2, U31) * PRIME_1


@exactly_compiled
def merge_lane(total: np.uint64, lane: np.uint64) -> np.uint64:
    return (total ^ lane_round(LANE_3, lane)) * PRIME_1 + PRIME_4


@exactly_compiled
def hash_stripes(data: npt.NDArray[np.uint8], start: np.uint64, stripes: np.uint64) -> np.uint64:
    """The part of XXH64 with four lanes, for `stripes` >= 1 blocks of 32 bytes."""
    lane_1, lane_2, lane_3, lane_4 = LANE_1, LANE_2, LANE_3, LANE_4
    at = start
    for _ in range(stripes):
        lane_1 = lane_round(lane_1, load_8(data, at))
        lane_2 = lane_round(lane_2, load_8(data, at + U8))
        lane_3 = lane_round(lane_3, load_8(data, at + U16))
        lane_4 = lane_round(lane_4, load_8(data, at + U24))
        at += U32
    total = rotate_left(lane_1, U1) + rotate_left(lane_2, U7) + rotate_left(lane_3, U12) + rotate_left(lane_4, U18)
    total = merge_lane(total, lane_1)
    total = merge_lane(total, lane_2)
    total = merge_lane(total, lane_3)
    return merge_lane(total, lane_4)


@exactly_compiled
def xxh64_kernel(data: npt.NDArray[np.uint8], start: np.uint64, stop: np.uint64) -> np.uint64:
    """XXH64 (seed 0) of data[start:stop]. `start` and `stop` must be uint64."""
    length = stop - start
    at = start
    if length >= U32:
        stripes = length // U32
        total = hash_stripes(data, start, stripes)
        at += stripes * U32
    else:
        total = PRIME_5
    total += length
    while at + U8 <= stop:
        total = rotate_left(total ^ lane_round(LANE_3, load_8(data, at)), U27) * PRIME_1 + PRIME_4
        at += U8
    if at + U4 <= stop:
        total = rotate_left(total ^ (load_4(data, at) * PRIME_1), U23) * PRIME_2 + PRIME_3
        at += U4
    while at < stop:
        total = rotate_left(total ^ (np.uint64(data[at]) * PRIME_5), U11) * PRIME_1
        at += U1
    total = (total ^ (total >> U33)) * PRIME_2
    total = (total ^ (total >> U29)) * PRIME_3
    return total ^ (total >> U32)


@exactly_compiled
def hash_slices(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64 | np.int32], keys: npt.NDArray[np.int64]
) -> None:
    """Sets keys[i] = XXH64(data[offsets[i]:offsets[i + 1]]), reinterpreted as int64. `offsets`: int64 or int32."""
    for position in range(keys.shape[0]):
        keys[position] = np.int64(xxh64_kernel(data, np.uint64(offsets[position]), np.uint64(offsets[position + 1])))


def hash_bytes(value: bytes) -> int:
    """XXH64 (seed 0) of the bytes, reinterpreted as int64: the key of one string id."""
    keys = np.empty(1, dtype=np.int64)
    hash_slices(np.frombuffer(value, dtype=np.uint8), np.array([0, len(value)], dtype=np.int64), keys)
    return int(keys[0])


def hash_arrow_strings(array: pa.Array) -> npt.NDArray[np.int64]:
    """The keys, int64 [len(array)], of an array of strings, binary values, or dictionary-encoded strings.

    The key of a null is arbitrary; the caller must handle nulls. Each distinct value of a dictionary is hashed once.
    """
    if pa.types.is_dictionary(array.type):
        unique_keys = hash_arrow_strings(array.dictionary)
        if len(unique_keys) == 0:
            return np.zeros(len(array), dtype=np.int64)
        indices = array.indices.fill_null(0) if array.indices.null_count else array.indices
        taken: npt.NDArray[np.int64] = unique_keys[indices.to_numpy()]
        return taken
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        array = array.cast(pa.large_binary())
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    keys = np.empty(len(array), dtype=np.int64)
    if len(array) == 0:
        return keys
    _, offset_buffer, data_buffer = array.buffers()
    all_offsets: npt.NDArray[np.int64 | np.int32] = np.frombuffer(offset_buffer, dtype=np.int64 if wide else np.int32)
    offsets = all_offsets[array.offset : array.offset + len(array) + 1]
    data = np.empty(0, dtype=np.uint8) if data_buffer is None else np.frombuffer(data_buffer, dtype=np.uint8)
    hash_slices(data, offsets, keys)
    return keys
