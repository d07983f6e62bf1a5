"""Kernels that generate samples with planted truth. Each sample is a function of (seed, sample index).

So any range has the same bits, in whatever order its samples are generated.

id      a rank x from a bounded power law, P(x) ~ x^-zipf, by the inverse of its cumulative distribution;
        an affine bijection scatters the ranks over [0, table_rows)
effect  of an id: a hash of (table, rank), about normal, smaller for rare ids (a model cannot learn those)
logit   main effects + products of the factors of pairs of ids + linear, quadratic and sine terms of the dense values
label   Bernoulli(sigmoid(logit))
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import exactly_compiled

__all__ = ["DENSE_PART", "MAIN_PART", "NUM_PARTS", "PAIR_PART", "Draws", "Truth", "draw_samples", "label_samples"]

MAIN_PART, PAIR_PART, DENSE_PART, NUM_PARTS = 0, 1, 2, 3

MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
S11, S16, S27, S30, S31, S32, S48 = (np.uint64(n) for n in (11, 16, 27, 30, 31, 32, 48))
LOW_16 = np.uint64(0xFFFF)
ONE = np.uint64(1)
UNIT_53 = 1.0 / 9007199254740992.0  # 2^-53
# Of the sum of four uniform 16-bit numbers: the mean, and 1 / standard deviation.
FOUR_MEAN = 2.0 * 65535.0
FOUR_SCALE = 1.0 / math.sqrt(4.0 * (65536.0**2 - 1.0) / 12.0)

# Random streams of one sample. Element k of the ids of table t uses stream ID_STREAM + t * 128 + k.
DENSE_STREAM, LABEL_STREAM, ID_STREAM = np.uint64(1 << 32), np.uint64(2 << 32), np.uint64(3 << 32)
LENGTH_ELEMENT = 127


class Truth(NamedTuple):
    """The parameters of the planted truth.

    seed           uint64
    rows           number of ids of every table
    power_low, power_span, inverse_power   the inverse cumulative distribution of ranks; inverse_power 0: zipf is 1
    shrink_per_rank   the effect of an id is divided by 1 + rank * shrink_per_rank
    multipliers, addends   int64 [tables]: id = (rank * multiplier + addend) mod rows
    main_weights   float64 [tables]
    pairs          int64 [interactions, 2]: the two tables of each pair
    in_pair        bool [tables]: whether the table is in a pair
    dense_weights  float64 [dense]
    single_tables  tables before this index have one id per sample, the others lists of up to `list_length` ids
    """

    seed: np.uint64
    rows: int
    power_low: float
    power_span: float
    inverse_power: float
    shrink_per_rank: float
    multipliers: npt.NDArray[np.int64]
    addends: npt.NDArray[np.int64]
    main_weights: npt.NDArray[np.float64]
    pairs: npt.NDArray[np.int64]
    in_pair: npt.NDArray[np.bool_]
    dense_weights: npt.NDArray[np.float64]
    single_tables: int
    list_length: int


class Draws(NamedTuple):
    """Arrays that `draw_samples` fills for n samples.

    dense float32 [n, dense]; single_keys int64 [single_tables, n]; list_keys int64 [lists, n * list_length], packed
    at the front; list_lengths int32 [lists, n]; parts float64 [n, 3]: the raw main, pair and dense part of the logit
    """

    dense: npt.NDArray[np.float32]
    single_keys: npt.NDArray[np.int64]
    list_keys: npt.NDArray[np.int64]
    list_lengths: npt.NDArray[np.int32]
    parts: npt.NDArray[np.float64]


@exactly_compiled
def mix(value: np.uint64) -> np.uint64:
    """A bijection of uint64 in which every input bit affects every output bit (splitmix64's finaliser)."""
    value = (value ^ (value >> S30)) * MIX_1
    value = (value ^ (value >> S27)) * MIX_2
    return value ^ (value >> S31)


@exactly_compiled
def uniform(bits: np.uint64) -> float:
    """A float64 in [0, 1) from 53 of the bits."""
    return np.float64(bits >> S11) * UNIT_53


@exactly_compiled
def about_normal(bits: np.uint64) -> float:
    """A number with an about normal distribution: mean 0, variance 1, within +-3.5."""
    total = (bits & LOW_16) + ((bits >> S16) & LOW_16) + ((bits >> S32) & LOW_16) + (bits >> S48)
    return (np.float64(total) - FOUR_MEAN) * FOUR_SCALE


@exactly_compiled
def draw_rank(truth: Truth, bits: np.uint64) -> int:
    """A rank in [0, rows)."""
    base = truth.power_low + uniform(bits) * truth.power_span
    place = math.exp(base) if truth.inverse_power == 0.0 else base**truth.inverse_power
    return min(max(int(place + 0.5) - 1, 0), truth.rows - 1)


@exactly_compiled
def draw_list(
    truth: Truth, draws: Draws, sample_bits: np.uint64, at: int, table: int, end: int
) -> tuple[int, float, float]:
    """Writes the keys of one list after position `end`. Returns (new end, mean effect, mean factor)."""
    column = table - truth.single_tables
    stream = ID_STREAM + np.uint64(table * 128)
    length = int(uniform(mix(sample_bits + (stream + np.uint64(LENGTH_ELEMENT)) * GOLDEN)) * (truth.list_length + 1))
    draws.list_lengths[column, at] = length
    effect, factor = 0.0, 0.0
    for element in range(length):
        rank = draw_rank(truth, mix(sample_bits + (stream + np.uint64(element)) * GOLDEN))
        draws.list_keys[column, end + element] = (rank * truth.multipliers[table] + truth.addends[table]) % truth.rows
        own_effect, own_factor = id_effect(truth, table, rank)
        effect += own_effect
        factor += own_factor
    return end + length, effect / max(length, 1), factor / max(length, 1)


@exactly_compiled
def id_effect(truth: Truth, table: int, rank: int) -> tuple[float, float]:
    """The (effect, factor) of an id. The factor is 0 for tables that are in no pair."""
    bits = mix(truth.seed ^ mix((np.uint64(table) << S32) + np.uint64(rank) + ONE))
    shrink = 1.0 / (1.0 + rank * truth.shrink_per_rank)
    effect = about_normal(bits) * shrink * truth.main_weights[table]
    factor = about_normal(mix(bits + GOLDEN)) * shrink if truth.in_pair[table] else 0.0
    return effect, factor


@exactly_compiled
def draw_dense(truth: Truth, row: npt.NDArray[np.float32], sample_bits: np.uint64) -> float:
    """Fills one row of dense values, and returns their part of the logit."""
    total = 0.0
    for column in range(row.shape[0]):
        value = about_normal(mix(sample_bits + (DENSE_STREAM + np.uint64(column)) * GOLDEN))
        row[column] = value
        if column % 3 == 0:
            shape = value
        elif column % 3 == 1:
            shape = (value * value - 1.0) * 0.7
        else:
            shape = math.sin(2.0 * value) * 1.4
        total += shape * truth.dense_weights[column]
    return total


@exactly_compiled
def draw_samples(truth: Truth, indices: npt.NDArray[np.int64], draws: Draws) -> None:
    """Fills `draws` for the samples `indices` int64 [n]."""
    tables = truth.main_weights.shape[0]
    factors = np.zeros(tables, dtype=np.float64)
    ends = np.zeros(tables, dtype=np.int64)
    for at in range(indices.shape[0]):
        sample_bits = mix(truth.seed + mix(np.uint64(indices[at])))
        main = 0.0
        for table in range(truth.single_tables):
            rank = draw_rank(truth, mix(sample_bits + (ID_STREAM + np.uint64(table * 128)) * GOLDEN))
            key = (rank * truth.multipliers[table] + truth.addends[table]) % truth.rows
            draws.single_keys[table, at] = key
            effect, factors[table] = id_effect(truth, table, rank)
            main += effect
        for table in range(truth.single_tables, tables):
            ends[table], effect, factors[table] = draw_list(truth, draws, sample_bits, at, table, ends[table])
            main += effect
        pair = 0.0
        for index in range(truth.pairs.shape[0]):
            pair += factors[truth.pairs[index, 0]] * factors[truth.pairs[index, 1]]
        draws.parts[at, MAIN_PART] = main
        draws.parts[at, PAIR_PART] = pair
        draws.parts[at, DENSE_PART] = draw_dense(truth, draws.dense[at], sample_bits)


@exactly_compiled
def label_samples(
    truth: Truth,
    indices: npt.NDArray[np.int64],
    parts: npt.NDArray[np.float64],
    bias: float,
    slopes: npt.NDArray[np.float64],
    labels: npt.NDArray[np.float32],
    probabilities: npt.NDArray[np.float32],
) -> None:
    """Fills `probabilities` with sigmoid(bias + parts @ slopes), and `labels` with labels that are drawn from them.

    indices int64 [n]; parts float64 [n, 3]; slopes float64 [3]; labels and probabilities float32 [n].
    """
    for at in range(indices.shape[0]):
        logit = bias
        for part in range(slopes.shape[0]):
            logit += parts[at, part] * slopes[part]
        probability = 1.0 / (1.0 + math.exp(-logit))
        sample_bits = mix(truth.seed + mix(np.uint64(indices[at])))
        drawn = uniform(mix(sample_bits + LABEL_STREAM * GOLDEN))
        labels[at] = np.float32(1.0) if drawn < probability else np.float32(0.0)
        probabilities[at] = probability
