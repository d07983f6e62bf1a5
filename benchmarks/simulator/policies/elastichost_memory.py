"""The memory of simulated jobs by the rules of live runs: charges as in the ledger of the dispatcher, and the forecast
that drops rows before the memory is used up. Pure."""

from __future__ import annotations

import math

import msgspec

from benchmarks.simulator.cluster.views import ClusterView, JobView
from elastichost.history.features import Estimates
from elastichost.tuner.colocation import ledger
from elastichost.tuner.colocation.facts import CPU
from elastichost.tuner.facts import Configuration
from elastichost.tuner.memory.facts import HostMemorySample, MemorySample
from elastichost.tuner.memory.forecast import MemoryState, begin, decide
from elastichost.tuner.memory.prior import GROWTH_BYTES, learnt

__all__ = ["JobMemory", "MemoryOfJobs"]


class JobMemory:
    """The memory of one job. margin: the factor on its estimates. drops_rows: the forecast has decided to drop rows."""

    def __init__(self, known: Estimates, margin: float, *, drops: bool) -> None:
        self._state: MemoryState = begin(known)
        self._known, self._margin, self._drops = known, margin, drops
        self._charge: ledger.Charge | None = None
        self._raised, self._ooms = 1.0, 0
        self.drops_rows = False

    @property
    def state(self) -> MemoryState:
        return self._state

    @property
    def charge(self) -> ledger.Charge | None:
        return self._charge

    def fold(self, job: JobView, number: int, view: ClusterView) -> None:
        """Gives one measured block to the forecast, and its peak to the charge."""
        sample, block = job.memory[number], job.observations[number]
        if self._charge is not None:
            self._charge = ledger.followed(self._charge, int(sample.used_bytes))
        if self.drops_rows:
            return
        rows = max(0.0, sample.used_bytes - job.process_bytes(block.configuration))
        # a job gets its own memory and an equal part of the free memory, as in the dispatcher
        budget = job.granted_memory_bytes + view.free_memory_bytes // max(1, len(view.jobs))
        look = MemorySample(
            samples=int(sample.samples),
            samples_left=int(job.samples_left),
            samples_per_s=block.samples_per_s,
            made_bytes=rows,
            row_bytes=job.row_bytes,
            live_bytes=rows,
            own_bytes=0.0,
            hosts=(HostMemorySample(0, max(1, budget), int(sample.used_bytes), rows, 1.0),),
            possible=("evict",) if self._drops else (),
        )
        self._state, decision = decide(self._state, look, block.at_s)
        self.drops_rows = decision.kind == "evict"

    def granted(self, job: JobView, target: Configuration) -> int:
        """The charge of the job in a configuration: what it was estimated to need, or what it was seen to use."""
        if job.ooms > self._ooms:
            peak, estimate = job.granted_memory_bytes, self._charge.estimate_bytes if self._charge is not None else 1
            self._raised *= ledger.oom_factor(estimate, peak)
            self._ooms = job.ooms
        estimate = int(self._raised * self._estimate(job, target))
        admitted = round(estimate * self._margin)
        before = self._charge or ledger.Charge(str(job.job), job.features.family, CPU, estimate, 0, 0)
        charge = msgspec.structs.replace(
            before, estimate_bytes=estimate, admitted_bytes=max(before.admitted_bytes, admitted)
        )
        self._charge = ledger.followed(charge, max(charge.peak_bytes, self._present_bytes(job, target)))
        return self._charge.charged_bytes

    def _present_bytes(self, job: JobView, target: Configuration) -> int:
        """What the present rows and the processes of a configuration need."""
        if not job.memory:
            return 0
        rows = job.memory[-1].used_bytes - job.process_bytes(job.observations[-1].configuration)
        return int(rows) + job.process_bytes(target)

    def _estimate(self, job: JobView, target: Configuration) -> float:
        """The peak in a configuration: with the growth of similar jobs, or else what the user states for the user's
        configuration."""
        grown = self._known.mean.get(GROWTH_BYTES)
        if grown is None:
            more = job.process_bytes(target) - job.process_bytes(job.request)
            return float(job.requested_memory_bytes + max(0, more))
        return job.process_bytes(target) + job.fixed_bytes + math.exp(grown)


class MemoryOfJobs:
    """The memory of all jobs. drops: False: no job drops rows."""

    def __init__(self, *, drops: bool) -> None:
        self._drops = drops
        self._jobs: dict[int, JobMemory] = {}
        self._margins = ledger.Margins()

    def begin(self, job: JobView, known: Estimates) -> None:
        """Begins a job with estimates from similar jobs."""
        margin = ledger.margin(self._margins, job.features.family)
        self._jobs[job.job] = JobMemory(known, margin, drops=self._drops)

    def of(self, job: JobView) -> JobMemory:
        if job.job not in self._jobs:
            self.begin(job, Estimates())
        return self._jobs[job.job]

    def learnt(self, job: JobView, *, is_complete: bool) -> Estimates:
        """Forgets the job, and returns estimates of its growth for similar jobs."""
        memory = self._jobs.pop(job.job, None)
        if memory is None or not job.memory:
            return Estimates()
        charge = memory.charge
        if is_complete and charge is not None:
            self._margins = ledger.learnt(self._margins, charge.kind, charge.estimate_bytes, charge.peak_bytes)
        newest, before = job.memory[-1], job.observations[-1].configuration
        grown = newest.used_bytes - job.process_bytes(before) - job.fixed_bytes
        return learnt(memory.state.growth, grown if is_complete and not memory.drops_rows else 0.0)
