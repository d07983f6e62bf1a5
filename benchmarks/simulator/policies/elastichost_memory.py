"""The memory that jobs are granted: enough for the growth that is forecast until the next decision. Pure."""

from __future__ import annotations

import math

from benchmarks.simulator.cluster.views import JobView
from elastichost.history.features import Estimates
from elastichost.tuner.facts import Configuration
from elastichost.tuner.memory.growth import GrowthState, forecast, observe, quantile

__all__ = ["ForecastMemory"]

AHEAD_S = 600.0  # a grant suffices this long; it is renewed if it suffices for less than half of that
SHORT_S = 90.0  # a job with a grant that does not suffice this long gets memory before anything else
SURE = 0.995  # probability that a new grant suffices for AHEAD_S
SAFE = 0.95  # least probability that a grant suffices for half of AHEAD_S; below it the grant is renewed
MARGIN = 1.02  # factor on all needed bytes, because measurements may be slightly wrong
FIRST_GROWTH = 0.15  # assumed growth without measurements, as a share of the fixed tables
KILLED = 2.0  # factor on the granted memory after a kill; the result is the least grant from then on
EXPECTED = 2.0  # standard deviations that are added to the growth of similar jobs
TOO_MUCH = 1.25  # a grant above this multiple of the needed bytes is reduced


class ForecastMemory:
    """The memory grants of all jobs. predicts: False: a job gets what its user requested, and twice as much after each
    kill."""

    def __init__(self, *, predicts: bool) -> None:
        self._predicts = predicts
        self._growth: dict[int, GrowthState] = {}
        self._seen: dict[int, int] = {}
        self._expected: dict[int, float] = {}  # bytes of growth, from similar jobs
        self._ooms: dict[int, int] = {}
        self._least: dict[int, float] = {}  # least grant in bytes, since the last kill
        # results by job, valid for this number of measurements, configuration and grant: nothing else changes them much
        self._short: dict[int, tuple[int, Configuration, int, bool]] = {}
        self._lasting: dict[int, tuple[int, Configuration, int]] = {}

    def expect(self, job: int, memory: Estimates) -> None:
        if "growth_bytes" in memory.mean:
            self._expected[job] = math.exp(memory.mean["growth_bytes"] + EXPECTED * memory.sd["growth_bytes"])

    def observe(self, job: JobView) -> None:
        count = len(job.memory)
        if count == self._seen.get(job.job):
            return
        state = self._growth.get(job.job, GrowthState())
        row_bytes = 4.0 * max(job.features.mean_dim, 1.0) + 16
        for sample, one in zip(
            job.memory[self._seen.get(job.job, 0) :], job.observations[self._seen.get(job.job, 0) :], strict=True
        ):
            # includes the fixed rows, which do not grow
            rows = sample.used_bytes - _processes(job, one.configuration)
            state = observe(state, int(sample.samples), max(0.0, rows), row_bytes)
        self._growth[job.job], self._seen[job.job] = state, count

    def is_short(self, job: JobView, samples_per_s: float) -> bool:
        """True if the grant does not suffice for SHORT_S. Then the job gets more memory before its configuration
        changes."""
        if job.running is None or not self._predicts:
            return False
        asked = self._seen.get(job.job, 0), job.running, job.granted_memory_bytes
        known = self._short.get(job.job)
        if known is None or known[:3] != asked:
            needed = self._needed(job, job.running, samples_per_s, SHORT_S, sure=SAFE, margin=1.0)
            known = self._short[job.job] = (*asked, needed > job.granted_memory_bytes)
        return known[3]

    def granted(self, job: JobView, target: Configuration, samples_per_s: float) -> int:
        """Returns the bytes to grant to all processes of the job together."""
        killed = job.ooms > self._ooms.get(job.job, 0)
        self._ooms[job.job] = job.ooms
        if not self._predicts:
            doubled = 2 * job.granted_memory_bytes if killed else 0
            return max(job.granted_memory_bytes, job.requested_memory_bytes, doubled)
        if killed:
            self._least[job.job] = KILLED * job.granted_memory_bytes
        asked = self._seen.get(job.job, 0), target, job.granted_memory_bytes
        if self._lasting.get(job.job) == asked and not killed:
            return job.granted_memory_bytes
        least, half = self._least.get(job.job, 0.0), math.inf
        if job.granted_memory_bytes and not killed:
            half = self._needed(job, target, samples_per_s, AHEAD_S / 2, sure=SAFE, margin=1.0)
        whole = half  # a lower bound of the bytes for the whole time
        if not half <= job.granted_memory_bytes <= max(least, TOO_MUCH * half):
            whole = self._needed(job, target, samples_per_s, AHEAD_S)
        if half <= job.granted_memory_bytes <= max(least, TOO_MUCH * whole):
            self._lasting[job.job] = asked
            return job.granted_memory_bytes
        return int(max(least, whole))

    def _needed(
        self,
        job: JobView,
        target: Configuration,
        samples_per_s: float,
        ahead_s: float,
        *,
        sure: float = SURE,
        margin: float = MARGIN,
    ) -> float:
        processes, fixed = _processes(job, target), _fixed(job)
        expected = self._expected.get(job.job)
        if not job.memory:
            if expected is None:
                return max(margin * (processes + fixed * (1 + FIRST_GROWTH) + 1e9), float(job.requested_memory_bytes))
            return margin * (processes + fixed * (1 + FIRST_GROWTH) + expected)
        newest, before = job.memory[-1], job.observations[-1].configuration
        rows = newest.used_bytes - _processes(job, before)
        ahead = min(job.samples_left, samples_per_s * ahead_s)
        found = forecast(self._growth[job.job], newest.samples + ahead)
        if found is None:
            # With one measurement rows are assumed to grow no faster than before; all rows beyond the fixed ones have
            # grown.
            more = max(0.0, rows - fixed / (1 + FIRST_GROWTH)) * ahead / max(newest.samples, 1.0)
            return margin * (processes + rows + min(more, rows))
        return margin * (processes + rows + quantile(found, sure))

    def learnt(self, job: JobView) -> Estimates:
        """Forgets the job, and returns the log of its growth in bytes, for similar jobs."""
        for known in (self._growth, self._seen, self._expected, self._ooms, self._least, self._short, self._lasting):
            known.pop(job.job, None)
        if not job.memory:
            return Estimates()
        grown = job.memory[-1].used_bytes - _processes(job, job.observations[-1].configuration) - _fixed(job)
        return Estimates({"growth_bytes": math.log(max(grown, 1e6))}, {"growth_bytes": 0.1})


def _processes(job: JobView, configuration: Configuration) -> float:
    facts = job.facts
    return float(configuration.workers * facts.worker_bytes + configuration.servers * facts.server_bytes)


def _fixed(job: JobView) -> float:
    """Bytes of the rows and the optimizer state of the fixed tables, which are known before the start."""
    return float(job.features.rows * (4 * job.features.mean_dim + 4))
