"""Predicts the speed of a job with given knobs of its input: X = min(source, link, decode, prepare, workers, cores).

Pure. The equations are in the docstring of the package.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from elastichost.tuner.input.facts import InputTunerSettings
from elastichost.tuner.input.window import InputWindow
from elastichost.wire.facts import InputKnobs

__all__ = ["InputModel", "Prediction", "fitted", "needed_batches", "needed_bytes", "roomy_knobs", "units_ahead"]

MARGIN = 1.15  # bytes of a unit ahead: units differ in size
MEASURED_MARGIN = 1.02  # the same where charges are measured: later units may be a little larger than all before
UNEVEN_BATCHES = 8  # batches ahead, where units are decoded ahead: threads that share cores are uneven
PREPARED = 3  # batches that wait for a worker whatever the knobs are
LEAST_SHARE = 0.03  # of the time that workers compute; less is not measured well
LEAST_JITTER_S = 0.02  # a request that is later by less is covered by the prepared batches


class Prediction(msgspec.Struct, frozen=True):
    """A predicted speed, and what bounds it."""

    samples_per_s: float
    limit: str


class InputModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a window tells about the input. Costs are seconds for one sample.

    latency_s: from a request to its first byte. bandwidth: bytes/s of one connection after that; 0.0: there is no
    source that is measured. tail_s, jitter_s: by how much one request in ten, and in a hundred, is later than most.
    link: bytes/s of all connections together; inf: not known. source_bytes: of one sample, in the source.
    workers_rate: samples/s of all workers if they never wait for input. measured: the speed of the window, which is
    possible whatever is predicted. charged_bytes: of the largest unit ahead; 0: not measured."""

    workers: int
    latency_s: float
    bandwidth: float
    link: float
    source_bytes: float
    decode_s: float
    prepare_s: float
    cpu_s: float
    workers_rate: float
    jitter_s: float
    tail_s: float = 0.0
    measured: float = 0.0
    charged_bytes: int = 0

    def request_s(self, size_bytes: float) -> float:
        """Seconds of one request of this size."""
        return self.latency_s + size_bytes / self.bandwidth

    def late_s(self, requests: int) -> float:
        """Seconds by which the latest of so many requests is later than most. The latest of n values is, in the mean,
        near their quantile n / (n + 1); it lies on the lines through those that are measured, 0.5, 0.9 and 0.99."""
        share = requests / (requests + 1)
        return float(np.interp(share, (0.5, 0.9, 0.99), (0.0, self.tail_s, max(self.tail_s, self.jitter_s))))

    def rate_of(self, knobs: InputKnobs, settings: InputTunerSettings) -> float:
        """Bytes/s that one worker receives over its connections, if the link is no bound; inf: no source is
        measured."""
        if self.bandwidth <= 0:
            return math.inf
        size = self._pieces(knobs, settings)[1]
        return knobs.connections * size / self.request_s(size)

    def predict(self, knobs: InputKnobs, settings: InputTunerSettings) -> Prediction:
        """The speed with these knobs, in samples/s of all workers."""
        rate = self.rate_of(knobs, settings)
        limits = {
            "source": self.workers * rate / self.source_bytes if self.source_bytes > 0 else math.inf,
            "link": self.link / self.source_bytes if self.source_bytes > 0 else math.inf,
            "decoding": self.decoding_rate(knobs, settings),
            "preparing": self.workers / self.prepare_s if self.prepare_s > 0 else math.inf,
            "workers": self.workers_rate,
            "cores": max(self.measured, settings.cores / self.cpu_s) if self.cpu_s > 0 else math.inf,
        }
        limit = min(limits, key=lambda name: limits[name])
        return Prediction(limits[limit], limit)

    def _pieces(self, knobs: InputKnobs, settings: InputTunerSettings) -> tuple[int, float]:
        """(requests of a unit, bytes of each). Where units are not fetched as a whole: (1, size of a range)."""
        unit = settings.unit_samples * self.source_bytes
        if not settings.is_fetched or unit <= 0:
            return 1, float(knobs.range_bytes)
        requests = math.ceil(unit / knobs.range_bytes)
        return requests, unit / requests

    def decoding_rate(self, knobs: InputKnobs, settings: InputTunerSettings, slower: float = 1.0) -> float:
        """Samples/s of all workers that the threads fetch and decode, one unit at a time each. The requests of a unit
        that is fetched alone are in rounds of all connections, and each round lasts as long as the latest of its
        requests. slower: fetching takes that many times as long."""
        seconds = self.decode_s
        if settings.is_fetched and settings.unit_samples and self.bandwidth > 0:
            requests, size = self._pieces(knobs, settings)
            rounds = math.ceil(requests / knobs.connections)
            round_s = self.request_s(size) + self.late_s(math.ceil(requests / rounds))
            seconds += slower * rounds * round_s / settings.unit_samples
        threads = min(knobs.decode_threads, units_ahead(knobs, self, settings))
        if threads == 0:
            return self._decoding_in_turn(seconds + self.prepare_s, settings)
        return self.workers * threads / seconds if seconds > 0 else math.inf

    def _decoding_in_turn(self, seconds: float, settings: InputTunerSettings) -> float:
        """The same with no unit ahead: workers wait while a unit is decoded, except for the prepared batches."""
        if not settings.unit_samples:
            return self.workers / seconds if seconds > 0 else math.inf
        each_s = self.workers / max(self.workers_rate, 1e-9)
        hidden_s = PREPARED * settings.batch_size * each_s / settings.unit_samples
        return self.workers / (each_s + max(0.0, seconds - hidden_s))


def units_ahead(knobs: InputKnobs, model: InputModel, settings: InputTunerSettings) -> int:
    """Number of units that `knobs.prefetch_bytes` has room for."""
    unit = unit_bytes(model, settings)
    return int(knobs.prefetch_bytes / unit) if unit > 0 else knobs.decode_threads


def unit_bytes(model: InputModel, settings: InputTunerSettings) -> float:
    """Bytes that one unit ahead is charged with, as measured, or else roughly; 0.0: data is not decoded by units."""
    if not settings.unit_samples:
        return 0.0
    if model.charged_bytes:
        return MEASURED_MARGIN * model.charged_bytes
    return MARGIN * settings.unit_samples * (settings.sample_bytes + model.source_bytes)


def needed_bytes(knobs: InputKnobs, model: InputModel, settings: InputTunerSettings) -> int:
    """Bytes ahead that these knobs use: the units in decoding, and the batches that wait."""
    batches = knobs.prefetch_batches * settings.batch_size * settings.sample_bytes
    return math.ceil(knobs.decode_threads * unit_bytes(model, settings) + MARGIN * batches)


def roomy_knobs(
    knobs: InputKnobs, model: InputModel, memory_bytes: int, settings: InputTunerSettings
) -> InputKnobs | None:
    """The knobs with what they use of bytes ahead. Where it fits, a unit waits decoded while others are being decoded,
    and batches wait: both even out threads that share cores with workers. None: not even the units in decoding fit."""
    roomy = msgspec.structs.replace(knobs, prefetch_batches=max(knobs.prefetch_batches, UNEVEN_BATCHES))
    roomy = msgspec.structs.replace(roomy, **settings.fixed) if settings.unit_samples else knobs
    decoded = math.ceil(unit_bytes(model, settings))
    for chosen, more in ((roomy, decoded), (roomy, 0), (knobs, 0)):
        size = needed_bytes(chosen, model, settings) + more
        if size <= memory_bytes:
            return msgspec.structs.replace(chosen, prefetch_bytes=size)
    return None


def needed_batches(speed: float, model: InputModel, settings: InputTunerSettings) -> int:
    """Batches ahead that cover a late request, by Little's law: speed of a worker x lateness."""
    if model.jitter_s < LEAST_JITTER_S:
        return 0
    return min(64, math.ceil(speed / model.workers * model.jitter_s / settings.batch_size))


def fitted(window: InputWindow, link: float) -> InputModel:
    """The model of a complete window. link: what is known of the link, in bytes/s."""
    totals, samples = window.totals, max(1, window.totals.samples)
    latency_s = totals.first_byte_s / totals.requests if totals.requests else 0.0
    moving_s = max(totals.source_s - totals.first_byte_s, 1e-9)
    cpu_s = totals.training_cpu_s + totals.source_cpu_s + totals.decode_cpu_s + totals.prepare_cpu_s
    computing = max(LEAST_SHARE, 1.0 - totals.wait_share)
    return InputModel(
        workers=max(1, window.workers),
        latency_s=latency_s,
        bandwidth=totals.source_bytes / moving_s if totals.source_bytes else 0.0,
        link=link,
        source_bytes=totals.source_bytes / samples,
        decode_s=(totals.decode_cpu_s + totals.decode_other_s) / samples,
        prepare_s=(totals.prepare_cpu_s + totals.prepare_other_s) / samples,
        cpu_s=cpu_s / samples,
        workers_rate=window.samples_per_s / computing,
        jitter_s=max(0.0, totals.request_p99_s - totals.request_p50_s),
        tail_s=max(0.0, totals.request_p90_s - totals.request_p50_s),
        measured=window.samples_per_s,
        charged_bytes=totals.unit_bytes,
    )
