"""The sets of knobs that may be chosen, and the cheapest of those that are predicted to be as good as the best.
Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import msgspec

from elastichost.tuner.input.facts import InputTunerSettings
from elastichost.tuner.input.model import InputModel, Prediction, needed_batches, roomy_knobs, units_ahead
from elastichost.wire.facts import InputKnobs

__all__ = ["CONNECTIONS", "DECODE_THREADS", "best_knobs", "candidates", "within_memory"]

CONNECTIONS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32)
DECODE_THREADS = (1, 2, 3, 4)
RANGE_BYTES = (1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22, 1 << 23)
TIE = 0.02  # predicted speeds that differ by less are equally good
LESS_AT_ONCE = 0.9  # of the bytes that a worker may hold, when there were more ahead
HEADROOM = 1.3  # the source gets this much more than is needed, because its speed varies


def candidates(
    present: InputKnobs, model: InputModel, memory_bytes: int, settings: InputTunerSettings
) -> Iterator[InputKnobs]:
    """All sets of knobs within the memory of a worker. Knobs that the job file fixes stay; the size of ranges changes
    only where it matters, that is, where a request has a latency."""
    ranges = RANGE_BYTES if model.latency_s > 0 else (present.range_bytes,)
    threads = DECODE_THREADS if settings.unit_samples else (present.decode_threads,)
    batches = needed_batches(model.trainers, model, settings)
    for connections, decode_threads, range_bytes in product(CONNECTIONS, threads, ranges):
        knobs = InputKnobs(connections, decode_threads, batches, 0, range_bytes, present.cache)
        knobs = msgspec.structs.replace(knobs, **settings.fixed)
        if "prefetch_bytes" in settings.fixed:
            yield within_memory(knobs, memory_bytes)
            continue
        yield knobs
        roomy = roomy_knobs(knobs, model, memory_bytes, settings)
        if roomy is not None and roomy != knobs:
            yield roomy


def best_knobs(
    present: InputKnobs, model: InputModel, memory_bytes: int, settings: InputTunerSettings
) -> tuple[InputKnobs, Prediction]:
    """The cheapest knobs whose predicted speed is within TIE of the best, with some connections to spare."""
    found = {
        knobs: _known(model.predict(knobs, settings), knobs, present, model, settings)
        for knobs in candidates(present, model, memory_bytes, settings)
    }
    if not found:
        return present, model.predict(present, settings)
    best = max(prediction.samples_per_s for prediction in found.values())
    good = [knobs for knobs, prediction in found.items() if prediction.samples_per_s >= (1 - TIE) * best]
    wanted = HEADROOM * best * model.source_bytes / model.workers
    roomy = [knobs for knobs in good if model.rate_of(knobs, settings) >= wanted] or good
    chosen = min(roomy, key=lambda knobs: _cost(knobs, present))
    return chosen, found[chosen]


def _known(
    prediction: Prediction, knobs: InputKnobs, present: InputKnobs, model: InputModel, settings: InputTunerSettings
) -> Prediction:
    """The prediction, and no more than what was measured where knobs decode local units in turn as the present ones
    do: how much of the decoding the prepared batches hide is a guess."""
    in_turn = [units_ahead(one, model, settings) == 0 for one in (knobs, present)]
    if settings.is_fetched or not settings.unit_samples or not all(in_turn):
        return prediction
    return min(prediction, Prediction(model.measured, "decoding"), key=lambda one: one.samples_per_s)


def within_memory(knobs: InputKnobs, memory_bytes: int) -> InputKnobs:
    """The knobs with no more bytes ahead than a worker may hold. Where they are cut, they are cut to less, because
    memory that has just become short becomes shorter, and each cut begins a new measurement."""
    if knobs.prefetch_bytes <= memory_bytes:
        return knobs
    return msgspec.structs.replace(knobs, prefetch_bytes=int(LESS_AT_ONCE * memory_bytes))


def _cost(knobs: InputKnobs, present: InputKnobs) -> tuple[int, int, int, int]:
    return knobs.connections, knobs.decode_threads, knobs.prefetch_bytes, abs(knobs.range_bytes - present.range_bytes)
