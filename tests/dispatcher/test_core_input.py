"""Jobs that wait on a source which all of them share, beside jobs that compute: the measured input decides."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from elastichost.dispatcher.facts import JobSample
from elastichost.runs.events import JobStarted
from elastichost.runs.events.text import text_of
from elastichost.tuner.colocation.facts import PolicyName
from elastichost.tuner.colocation.settings import ColocationSettings
from tests.dispatcher.jobs import Hosted, hosted

CORES = 4
SOURCE_BYTES_PER_S = 10e6
STEP_S = 2.0


@dataclass
class Truth:
    """A job as it is. bytes: read for a sample; such a job keeps a tenth of a core busy while it has the source alone.
    Other jobs compute 1 ms for a sample."""

    samples: float
    bytes: float = 0.0
    trained: float = 0.0

    @property
    def cpu_s(self) -> float:
        return 1e-4 if self.bytes else 1e-3


@dataclass
class World:
    """A host on which the jobs train as their truth says: the source and the cores are divided equally."""

    host: Hosted
    jobs: dict[str, Truth]
    now_s: float = 0.0
    ended: list[str] = field(default_factory=list)
    starts: list[JobStarted] = field(default_factory=list)

    def run(self) -> float:
        """Returns the seconds until all jobs have ended."""
        for job, truth in self.jobs.items():
            facts = {"least": 1, "most": 1 if truth.bytes else CORES, "samples": int(truth.samples)}
            self.host.submit(job, 900, twin="disk" if truth.bytes else "compute", worker_mb=1, **facts)
        while len(self.ended) < len(self.jobs):
            assert self.now_s < 2000, "the jobs do not end"
            self.host.tick(self.now_s)
            self.starts += self.host.noted(JobStarted)
            self._step()
        return self.now_s

    def _step(self) -> None:
        live = list(self.host.live)
        workers = {job: max(1, self.host.job(job).workers) for job in live}
        reading = [job for job in live if self.jobs[job].bytes]
        rates = {job: SOURCE_BYTES_PER_S / len(reading) / self.jobs[job].bytes for job in reading}
        free = CORES - sum(rates[job] * self.jobs[job].cpu_s for job in reading)
        threads = sum(workers[job] for job in live if job not in rates)
        rates |= {job: workers[job] * min(1.0, free / threads) / 1e-3 for job in live if job not in rates}
        busy = sum(rates[job] * self.jobs[job].cpu_s for job in live) / CORES
        self.now_s += STEP_S
        for job in live:
            truth, many = self.jobs[job], rates[job] * STEP_S
            truth.trained += many
            cpu_s = many * truth.cpu_s
            wait_s = STEP_S * workers[job] - cpu_s if truth.bytes else 0.0
            sample = JobSample(
                STEP_S, many, cpu_s, cpu_s, workers[job], busy, read_bytes=many * truth.bytes, input_wait_s=wait_s
            )
            self.host.see(job, self.now_s, trained=int(truth.trained), at=sample, workers=workers[job])
            if truth.trained >= truth.samples:
                self.ended.append(job)
                self.host.end(job, 0, self.now_s)


def world(
    *,
    disk_first: bool,
    input_tracking: bool = True,
    policy: PolicyName = "complementary",
    unsure_gain: float = ColocationSettings().unsure_gain,
) -> World:
    """8 jobs that need the source alone for 20 s each, and 8 jobs that need all cores for 20 s each. Four of them fit
    into the memory."""
    disk = {f"disk-{at}": Truth(20_000, bytes=10_000) for at in range(8)}
    compute = {f"compute-{at}": Truth(80_000) for at in range(8)}
    jobs = disk | compute if disk_first else compute | disk
    settings = ColocationSettings(policy=policy, input_tracking=input_tracking, unsure_gain=unsure_gain)
    return World(hosted(4000, settings), jobs)


@pytest.mark.parametrize("disk_first", [True, False], ids=["disk_first", "compute_first"])
def test_jobs_that_share_a_source_leave_memory_to_jobs_that_compute(disk_first: bool) -> None:
    tracked = world(input_tracking=True, disk_first=disk_first)
    untracked = world(input_tracking=False, disk_first=disk_first)
    with_s, without_s = tracked.run(), untracked.run()
    assert without_s >= 1.2 * with_s
    assert world(policy="rmixer_type", disk_first=disk_first).run() >= 1.2 * with_s


@pytest.mark.parametrize("disk_first", [True, False], ids=["disk_first", "compute_first"])
def test_before_the_source_is_known_jobs_that_compute_start_first(disk_first: bool) -> None:
    """They would wait for the memory that jobs on the full source hold."""
    assert world(disk_first=disk_first).run() <= 0.9 * world(disk_first=disk_first, unsure_gain=1.0).run()


def test_the_demand_and_its_origin_are_told() -> None:
    one = world(disk_first=True, unsure_gain=1.0)
    one.run()
    assert one.host.core._power.input_bytes_per_s == pytest.approx(SOURCE_BYTES_PER_S, rel=0.05)
    disk, compute = one.host.job("disk-7"), one.host.job("compute-7")
    assert disk.demand[2] == pytest.approx(1.0, rel=0.05) and disk.demand_basis[2] == "measured"
    assert disk.read_bytes_per_s == pytest.approx(SOURCE_BYTES_PER_S, rel=0.05)
    assert compute.demand[2] == 0.0 and compute.demand_basis[1] == "estimated"


def test_a_start_tells_its_demands_and_which_of_them_are_estimates() -> None:
    one = world(disk_first=True, unsure_gain=1.0)
    one.run()
    of_disks = [event for event in one.starts if event.job.startswith("disk")]
    first, last = of_disks[0], of_disks[-1]
    assert first.basis["cores"] == "estimated" and "input" not in first.demand
    assert last.basis["cores"] == last.basis["input"] == "measured" and last.demand["input"] > 0.9
    assert last.basis.get("memory_bandwidth", "estimated") == "estimated", "nothing counts the traffic of this host"
    assert "estimated: its demand for cores" in text_of(first)
