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
DECODE_THREADS = (1, 2, 3, 4, 6, 8)
RANGE_BYTES = (1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22, 1 << 23)
SMALL_BYTES = 1 << 18  # smaller requests are for sources that are not fast enough with these
TIE = 0.02  # predicted speeds that differ by less are equally good
LESS_AT_ONCE = 0.9  # of the bytes that a worker may hold, when there were more ahead
HEADROOM = 1.3  # the source gets this much more bandwidth and time than is needed, because its speed varies


def candidates(
    present: InputKnobs, model: InputModel, memory_bytes: int, settings: InputTunerSettings
) -> Iterator[InputKnobs]:
    """All sets of knobs within the memory of a worker. Knobs that the job file fixes stay; the size of ranges changes
    only where it matters, that is, where a request has a latency."""
    ranges = RANGE_BYTES if model.latency_s > 0 else (present.range_bytes,)
    threads = DECODE_THREADS if settings.unit_samples else (present.decode_threads,)
    batches = needed_batches(model.workers_rate, model, settings)
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
    """The cheapest knobs whose predicted speed is within TIE of the best, with connections and threads to spare: both
    wait for the source most of their time, and take no core meanwhile."""
    share = _seen_share(present, model, settings)

    def predicted(knobs: InputKnobs) -> Prediction:
        prediction = model.predict(knobs, settings)
        if share == 1.0 or units_ahead(knobs, model, settings):
            return prediction
        return Prediction(share * prediction.samples_per_s, "decoding")

    found = {knobs: predicted(knobs) for knobs in candidates(present, model, memory_bytes, settings)}
    if not found:
        return present, model.predict(present, settings)
    best = max(prediction.samples_per_s for prediction in found.values())
    good = [knobs for knobs, prediction in found.items() if prediction.samples_per_s >= (1 - TIE) * best]
    wanted = HEADROOM * best * model.source_bytes / model.workers
    fast = [knobs for knobs in good if model.rate_of(knobs, settings) >= wanted] or good
    roomy = [knobs for knobs in fast if model.decoding_rate(knobs, settings, HEADROOM) >= (1 - TIE) * best] or fast
    chosen = min(roomy, key=lambda knobs: _cost(knobs, present))
    return chosen, found[chosen]


def _seen_share(present: InputKnobs, model: InputModel, settings: InputTunerSettings) -> float:
    """What is measured over what is predicted, at most 1, for knobs that decode in turn as the present ones do: how
    much of the decoding the prepared batches hide is a guess. 1.0 where the present knobs decode ahead."""
    if not settings.unit_samples or units_ahead(present, model, settings):
        return 1.0
    return min(1.0, model.measured / max(1e-9, model.predict(present, settings).samples_per_s))


def within_memory(knobs: InputKnobs, memory_bytes: int) -> InputKnobs:
    """The knobs with no more bytes ahead than a worker may hold. Where they are cut, they are cut to less, because
    memory that has just become short becomes shorter, and each cut begins a new measurement."""
    if knobs.prefetch_bytes <= memory_bytes:
        return knobs
    return msgspec.structs.replace(knobs, prefetch_bytes=int(LESS_AT_ONCE * memory_bytes))


def _cost(knobs: InputKnobs, present: InputKnobs) -> tuple[bool, int, int, int, int]:
    """In this order: small requests, which stores charge for by number; threads, which hold a unit in memory each;
    connections, which hold nothing; bytes ahead; another size of requests than now."""
    held = knobs.decode_threads, knobs.connections, knobs.prefetch_bytes
    return knobs.range_bytes < SMALL_BYTES, *held, abs(knobs.range_bytes - present.range_bytes)
