"""Memory that jobs are granted: for what their growth, as it was seen, will reach while nothing is decided. Pure."""

from __future__ import annotations

import math

from benchmarks.simulator.cluster.views import JobView
from elastichost.history.features import Estimates
from elastichost.tuner.facts import Configuration
from elastichost.tuner.memory.growth import GrowthState, forecast, observe, quantile

__all__ = ["ForecastMemory"]

AHEAD_S = 600.0  # a grant reaches so far; it is renewed when it reaches less than half as far
SHORT_S = 90.0
SURE = 0.995
SAFE = 0.95  # with which a grant lasts half as long, or it is renewed
MARGIN = 1.02  # of everything: what is measured may be a little wrong
FIRST_GROWTH = 0.15  # of the fixed tables, before anything is known
KILLED = 2.0  # times as much after a kill, from then on
EXPECTED = 2.0  # standard deviations that a job may grow more than jobs like it did
TOO_MUCH = 1.25  # times what is needed is given back


class ForecastMemory:
    """predicts False: what the user asked for, and twice as much after each kill."""

    def __init__(self, *, predicts: bool) -> None:
        self._predicts = predicts
        self._growth: dict[int, GrowthState] = {}
        self._seen: dict[int, int] = {}
        self._expected: dict[int, float] = {}  # bytes of growth, from jobs like it
        self._ooms: dict[int, int] = {}
        self._least: dict[int, float] = {}  # bytes, since the last kill
        # by job, what was found of so many samples and such a grant: nothing else changes it much
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
            rows = sample.used_bytes - _processes(job, one.configuration)  # the fixed ones too: they do not grow
            state = observe(state, int(sample.samples), max(0.0, rows), row_bytes)
        self._growth[job.job], self._seen[job.job] = state, count

    def is_short(self, job: JobView, samples_per_s: float) -> bool:
        """What was granted will not last until much can be decided: that comes first."""
        if job.running is None or not self._predicts:
            return False
        asked = self._seen.get(job.job, 0), job.running, job.granted_memory_bytes
        known = self._short.get(job.job)
        if known is None or known[:3] != asked:
            needed = self._needed(job, job.running, samples_per_s, SHORT_S, sure=SAFE, margin=1.0)
            known = self._short[job.job] = (*asked, needed > job.granted_memory_bytes)
        return known[3]

    def granted(self, job: JobView, target: Configuration, samples_per_s: float) -> int:
        """Bytes of all processes together."""
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
        whole = half  # at least
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
            # one look: rows grow no faster than up to now, if all that is not known to be fixed has grown
            more = max(0.0, rows - fixed / (1 + FIRST_GROWTH)) * ahead / max(newest.samples, 1.0)
            return margin * (processes + rows + min(more, rows))
        return margin * (processes + rows + quantile(found, sure))

    def learnt(self, job: JobView) -> Estimates:
        """For jobs like it: how much it has grown."""
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
    """Rows and state of the fixed tables: known before the start."""
    return float(job.features.rows * (4 * job.features.mean_dim + 4))
