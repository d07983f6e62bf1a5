"""A job whose input is known exactly: what its workers measure with any knobs, second by second. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from itertools import product
from random import Random

import msgspec

from elastichost.tuner.input.candidates import CONNECTIONS, DECODE_THREADS, RANGE_BYTES
from elastichost.tuner.input.decide import InputState, decide
from elastichost.tuner.input.facts import InputDecision, InputLook, InputTotals, InputTunerSettings
from elastichost.wire.facts import InputKnobs

EVERY_S = 0.5


@dataclass(frozen=True)
class Source:
    """bandwidth: bytes/s of a connection. link: bytes/s of all. sample_bytes: of a sample, in the source. compute_s,
    decode_s: CPU seconds of a worker for a sample."""

    bandwidth: float = 7.4e6
    latency_s: float = 0.0
    link: float = 1e12
    sample_bytes: float = 368.0
    compute_s: float = 1.2e-5
    decode_s: float = 2e-6
    workers: int = 2

    def speed(self, knobs: InputKnobs) -> float:
        """Samples/s of all workers."""
        each = knobs.range_bytes / (self.latency_s + knobs.range_bytes / self.bandwidth)
        received = min(self.workers * knobs.connections * each, self.link) / self.sample_bytes
        return min(received, self.workers / (self.compute_s + self.decode_s))

    def best(self) -> float:
        """The speed of the best knobs of all."""
        every = product(CONNECTIONS, RANGE_BYTES)
        return max(self.speed(InputKnobs(connections=c, range_bytes=u)) for c, u in every)

    def totals(self, knobs: InputKnobs) -> InputTotals:
        """What is measured in EVERY_S."""
        speed, seconds = self.speed(knobs), EVERY_S * self.workers
        samples = speed * EVERY_S
        received = samples * self.sample_bytes
        requests = received / knobs.range_bytes
        alone_s = self.latency_s + knobs.range_bytes / self.bandwidth
        busy_s = self.compute_s * samples
        # Workers that wait have every connection busy: a link that is full makes every transfer longer.
        is_waiting = speed < 0.999 * self.workers / (self.compute_s + self.decode_s)
        return InputTotals(
            samples=int(samples),
            seconds=seconds,
            training_cpu_s=busy_s,
            source_s=seconds * knobs.connections if is_waiting else requests * alone_s,
            first_byte_s=requests * self.latency_s,
            source_bytes=int(received),
            requests=max(1, int(requests)),
            decode_cpu_s=self.decode_s * samples,
            empty_s=max(0.0, seconds - busy_s - self.decode_s * samples),
            request_p50_s=alone_s,
            request_p99_s=alone_s,
        )


@dataclass(frozen=True)
class LocalFile(Source):
    """A file on the disk. unit_bytes: what a unit ahead is charged with. unseen_s: seconds of
    decoding a sample that no meter counts, so the model does not know them. most: samples/s of a worker that no number
    of threads exceeds, which the model does not know either."""

    unit_samples: int = 16_384
    unit_bytes: int = 12_000_000
    unseen_s: float = 0.0
    most: float = math.inf

    def speed(self, knobs: InputKnobs) -> float:
        units = min(knobs.decode_threads, knobs.prefetch_bytes // self.unit_bytes)
        decode_s = self.decode_s + self.unseen_s
        if not units:
            return self.workers / (self.compute_s + decode_s)
        return self.workers * min(1 / self.compute_s, units / decode_s, self.most)

    def best(self) -> float:
        return max(self.speed(InputKnobs(decode_threads=d, prefetch_bytes=1 << 40)) for d in DECODE_THREADS)

    def totals(self, knobs: InputKnobs) -> InputTotals:
        samples, seconds = self.speed(knobs) * EVERY_S, EVERY_S * self.workers
        return InputTotals(
            samples=int(samples),
            seconds=seconds,
            training_cpu_s=self.compute_s * samples,
            decode_cpu_s=self.decode_s * samples,
            empty_s=max(0.0, seconds - self.compute_s * samples),
            unit_bytes=self.unit_bytes,
        )


@dataclass(frozen=True)
class UnevenSource(Source):
    """A source whose units are fetched as a whole, by threads that decode them then. Requests wait longer than
    `latency_s` by times that are evenly spread up to `jitter_s`, so a unit is late by the latest of its requests.
    told_late_s: the quantiles say that requests are later than they are by so much."""

    unit_samples: int = 16_384
    unit_bytes: int = 12_000_000
    jitter_s: float = 0.0
    told_late_s: float = 0.0

    def speed(self, knobs: InputKnobs) -> float:
        size, requests = self._pieces(knobs)
        received = min(knobs.connections * size / self._mean_s(size), self.link) / self.sample_bytes
        units = min(knobs.decode_threads, knobs.prefetch_bytes // self.unit_bytes)
        rounds = math.ceil(requests / knobs.connections)
        at_once = requests / rounds
        latest_s = self.latency_s + self.jitter_s * at_once / (at_once + 1) + size / self.bandwidth
        each_s = rounds * latest_s / self.unit_samples + self.decode_s
        if not units:
            return self.workers / (self.compute_s + each_s)
        return self.workers * min(received, units / each_s, 1 / self.compute_s)

    def best(self) -> float:
        every = product(CONNECTIONS, DECODE_THREADS, RANGE_BYTES)
        return max(self.speed(InputKnobs(c, d, prefetch_bytes=1 << 40, range_bytes=u)) for c, d, u in every)

    def totals(self, knobs: InputKnobs) -> InputTotals:
        samples, seconds = self.speed(knobs) * EVERY_S, EVERY_S * self.workers
        size, _ = self._pieces(knobs)
        requests = samples * self.sample_bytes / size
        least_s = self.latency_s + size / self.bandwidth
        is_full = samples * self.sample_bytes >= 0.999 * self.link * EVERY_S  # every transfer is longer then
        return InputTotals(
            samples=int(samples),
            seconds=seconds,
            training_cpu_s=self.compute_s * samples,
            source_s=seconds * knobs.connections if is_full else requests * self._mean_s(size),
            first_byte_s=requests * (self.latency_s + self.jitter_s / 2),
            source_bytes=int(samples * self.sample_bytes),
            requests=max(1, int(requests)),
            decode_cpu_s=self.decode_s * samples,
            empty_s=max(0.0, seconds - self.compute_s * samples),
            request_p50_s=least_s + 0.5 * self.jitter_s,
            request_p90_s=least_s + 0.9 * self.jitter_s + self.told_late_s,
            request_p99_s=least_s + 0.99 * self.jitter_s + self.told_late_s,
            unit_bytes=self.unit_bytes,
        )

    def _pieces(self, knobs: InputKnobs) -> tuple[float, int]:
        """(bytes of a request, requests of a unit)."""
        unit = self.unit_samples * self.sample_bytes
        requests = math.ceil(unit / knobs.range_bytes)
        return unit / requests, requests

    def _mean_s(self, size: float) -> float:
        return self.latency_s + self.jitter_s / 2 + size / self.bandwidth


@dataclass
class Run:
    """A run of the tuner of the input in such a world."""

    source: Source
    settings: InputTunerSettings = field(
        default_factory=lambda: InputTunerSettings(cores=2, batch_size=512, sample_bytes=368.0)
    )
    knobs: InputKnobs = field(default_factory=InputKnobs)
    memory_bytes: int = 1 << 30
    cache_bytes: int = 0
    noise: float = 0.0  # the link has up to this share more or less from one look to the next
    state: InputState = field(default_factory=InputState)
    now_s: float = 100.0
    decisions: list[InputDecision] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(7)
        self.settings = msgspec.structs.replace(self.settings, cores=max(self.settings.cores, self.source.workers))

    def pass_time(self, seconds: float, *, is_steady: bool = True) -> None:
        for _ in range(int(seconds / EVERY_S)):
            self.now_s += EVERY_S
            factor = 1.0 + self.noise * self.random.uniform(-1.0, 1.0)
            totals = replace(self.source, link=factor * self.source.link).totals(self.knobs)
            args = (self.now_s, self.knobs, is_steady, self.source.workers, totals, self.memory_bytes, self.cache_bytes)
            look = msgspec.json.decode(msgspec.json.encode(InputLook(*args)), type=InputLook)
            self.state, decision = decide(self.state, look, self.settings)
            if decision is not None:
                self.decisions.append(decision)
                self.knobs = decision.knobs

    def change(self, **changes: float) -> None:
        """The source or the job changes."""
        self.source = replace(self.source, **changes)

    @property
    def share_of_best(self) -> float:
        return self.source.speed(self.knobs) / self.source.best()
