"""Jobs in any order of events: no job is lost, no job runs twice, and the charges never exceed the memory."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elastichost.dispatcher.core.effects import (
    Effect,
    ExamineJob,
    FreezeJob,
    KillJob,
    ReniceJob,
    ResizeJob,
    StartJob,
    StopJob,
    ThawJob,
)
from elastichost.dispatcher.facts import ENDED_STATES, JobFailure
from elastichost.errors import ConfigError
from elastichost.tuner.colocation.settings import ColocationSettings
from tests.dispatcher.jobs import INVENTORY, MB, Hosted, ended, examined, hosted, look, request, seen
from tests.effort import examples

TOTAL_MB = 4000
LIVE = frozenset({"starting", "running", "paused", "stopping"})
FAILURES = (None, JobFailure("NonFiniteError", "nan"), JobFailure("MemoryBudgetError", "too little"))
WHICH = st.integers(0, 50)
SIZES = st.fixed_dictionaries(
    {
        "memory_mb": st.sampled_from([1, 300, 900, 1700, 3900, 4500]),
        "least": st.integers(1, 3),
        "more": st.integers(0, 3),
        "samples": st.sampled_from([0, 100, 10**7]),
        "reader": st.sampled_from([0.0, 100.0, 1e5]),
        "twin": st.sampled_from(["x", "y", "z"]),
    }
)


class Jobs(RuleBasedStateMachine):
    """Stands for the host: a process lives from its StartJob until it ends, and the core hears of each end."""

    def __init__(self) -> None:
        super().__init__()
        self.host: Hosted = hosted(TOTAL_MB)
        self.now_s = 0.0
        self.number = 0
        self.submitted: list[str] = []
        self.examining: list[str] = []
        self.live: dict[str, StartJob] = {}
        self.incarnations: dict[str, int] = {}
        self.told: set[str] = set()  # asked to stop, in this incarnation
        self.frozen: set[str] = set()
        self.cancelled = set[str]()
        self.over: dict[str, str] = {}
        self.is_stopping = False

    @initialize(policy=st.sampled_from(["complementary", "rmixer_type", "fifo", "random", "exclusive"]))
    def begins(self, policy: str) -> None:
        self.host = hosted(TOTAL_MB, msgspec.convert({"policy": policy, "most_jobs": 0}, ColocationSettings))

    # --- effects --------------------------------------------------------------------------------------------

    def does(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case ExamineJob(job):
                    assert self.state(job) == "waiting" and job not in self.examining
                    self.examining.append(job)
                case StartJob(job):
                    self._spawned(effect)
                case StopJob(job):
                    assert job in self.live
                    assert job not in self.told, "a second request kills the supervisor before it has saved"
                    self.told.add(job)
                    self.frozen.discard(job)
                case KillJob(job):
                    if job in self.examining:
                        self.examining.remove(job)
                    else:
                        assert job in self.live or self.state(job) in ("cancelled", "stopped")
                case FreezeJob(job):
                    assert job in self.live and job not in self.frozen
                    self.frozen.add(job)
                case ThawJob(job):
                    assert job in self.frozen
                    self.frozen.discard(job)
                case ResizeJob(job, size, cores):
                    assert job in self.live
                    assert cores is None or (set(cores) <= set(INVENTORY.cores) and cores)
                    assert size is None or size.workers >= 1
                case ReniceJob(job):
                    assert job in self.live
        if any(isinstance(effect, StartJob) for effect in effects):
            assert self.host.status().charged_bytes <= TOTAL_MB * MB

    def _spawned(self, spawn: StartJob) -> None:
        job = spawn.job
        assert not self.is_stopping
        assert job not in self.live and job not in self.examining
        assert spawn.incarnation > self.incarnations.get(job, 0)
        out_of_memory = {one.job for one in self.host.status().jobs if one.out_of_memory}
        if job in out_of_memory:
            assert not self.live, "a job that ran out of memory starts alone"
        assert not out_of_memory & self.live.keys(), "no job starts beside one that must run alone"
        self.incarnations[job] = spawn.incarnation
        self.live[job] = spawn
        self.told.discard(job)

    def state(self, job: str) -> str:
        return self.host.job(job).state

    def one_of(self, jobs: list[str], which: int) -> str:
        return sorted(jobs)[which % len(jobs)]

    # --- events ---------------------------------------------------------------------------------------------

    @precondition(lambda self: not self.is_stopping and len(self.submitted) < 12)
    @rule(
        weight=st.sampled_from([0.5, 1.0, 3.0]),
        has_run=st.booleans(),
        shape=st.sampled_from(["", "", "s", "t"]),
        found=SIZES | st.none(),
    )
    def submits(self, weight: float, has_run: bool, shape: str, found: dict[str, Any] | None) -> None:
        """found: the result of its examination, which ends at once; None: the examination goes on."""
        job, self.number = f"job-{self.number}", self.number + 1
        self.submitted.append(job)
        self.does(self.host.core.submit(request(job, weight, shape), self.now_s, has_run=has_run))
        if found is not None and job in self.examining:
            self.is_examined(job, found)

    @precondition(lambda self: self.examining)
    @rule(which=WHICH, found=SIZES)
    def are_examined(self, which: int, found: dict[str, Any]) -> None:
        self.is_examined(self.one_of(self.examining, which), found)

    def is_examined(self, job: str, found: dict[str, Any]) -> None:
        self.examining.remove(job)
        facts = dict(found)
        most = facts["least"] + facts.pop("more")
        self.does(self.host.core.examined(examined(job, **facts, most=most, row_bytes=400), self.now_s))

    @precondition(lambda self: self.examining)
    @rule(which=WHICH, code=st.sampled_from([0, 1, 3, -9, None]), failure=st.sampled_from(FAILURES))
    def cannot_be_examined(self, which: int, code: int | None, failure: JobFailure | None) -> None:
        job = self.one_of(self.examining, which)
        self.examining.remove(job)
        self.does(self.host.core.ended(ended(job, code, "its cause"), failure, self.now_s))
        is_lost = code is None or (code == -9 and failure is None)
        assert self.state(job) == "failed" or is_lost, (
            "an examination that could not be forked or was killed is tried again"
        )

    @precondition(lambda self: self.live)
    @rule(
        trained=st.sampled_from([0, 1, 5000]),
        shares=st.lists(st.sampled_from([0.1, 0.9, 1.0, 1.2, 1.3, 2.0, 5.0]), min_size=3, max_size=3),
        samples=st.sampled_from([0.0, 10.0, 1e4]),
        cpu_s=st.sampled_from([0.0, 0.1, 2.0]),
        host_share=st.sampled_from([0.0, 0.5, 1.0]),
        has_look=st.booleans(),
    )
    def all_are_seen(
        self, trained: int, shares: list[float], samples: float, cpu_s: float, host_share: float, has_look: bool
    ) -> None:
        """shares: the memory of each job as a share of its estimate."""
        for at, job in enumerate(sorted(self.live)):
            status = self.host.job(job)
            memory_mb = int(shares[at % 3] * status.estimated_bytes / MB)
            one = look(2.0, samples, cpu_s, 1.1 * cpu_s, max(1, status.workers), host_share) if has_look else None
            self.does(self.host.core.seen(seen(job, trained=trained, memory_mb=memory_mb, at=one), self.now_s))

    @precondition(lambda self: self.live)
    @rule(which=WHICH, code=st.sampled_from([0, 0, 1, 75, 143, -9, None]), failure=st.sampled_from(FAILURES))
    def ends(self, which: int, code: int | None, failure: JobFailure | None) -> None:
        job = self.one_of(list(self.live), which)
        del self.live[job]
        self.frozen.discard(job)
        before = self.host.job(job)
        failure = failure if code else None
        self.does(self.host.core.ended(ended(job, code, "its cause"), failure, self.now_s))
        after = self.host.job(job)
        assert after.state == "waiting" or after.state in ENDED_STATES
        assert code != 0 or after.state == "done"
        assert before.out_of_memory < 1 or after.out_of_memory < 2 or after.state == "failed", (
            "after the second time out of memory a job fails"
        )
        assert after.charged_bytes == 0

    @precondition(lambda self: len(self.submitted) > 2)
    @rule(which=WHICH)
    def is_cancelled(self, which: int) -> None:
        job = self.one_of(list(self.live) if which % 3 and self.live else self.submitted, which)
        before, was_examined = self.state(job), job in self.examining
        try:
            self.does(self.host.core.cancel(job, self.now_s))
        except ConfigError:
            assert before in ENDED_STATES
        else:
            assert before not in ENDED_STATES
            assert self.state(job) == ("cancelled" if before == "waiting" else "stopping")
            self.cancelled.add(job)
            if was_examined:  # its examination was killed, and the core hears of that
                self.does(self.host.core.ended(ended(job, -9, "signal 9"), None, self.now_s))

    @rule(seconds=st.sampled_from([0.2, 3.0, 20.0, 700.0]), times=st.integers(1, 4))
    def ticks(self, seconds: float, times: int) -> None:
        for _ in range(times):
            self.now_s += seconds
            self.does(self.host.core.tick(self.now_s))

    @precondition(lambda self: len(self.submitted) > 9)
    @rule()
    def the_host_stops(self) -> None:
        self.is_stopping = True
        examined_now = list(self.examining)
        self.does(self.host.core.stop(self.now_s))
        for job in examined_now:
            self.does(self.host.core.ended(ended(job, -9, "signal 9"), None, self.now_s))
        assert not self.examining

    # --- what always holds ----------------------------------------------------------------------------------

    @invariant()
    def no_job_is_lost(self) -> None:
        states = {one.job: one.state for one in self.host.status().jobs}
        assert sorted(states) == sorted(self.submitted)
        for job, state in states.items():
            assert (job in self.live) == (state in LIVE), (job, state)
            assert job not in self.examining or state == "waiting"
            assert len(self.examining) <= len(INVENTORY.cores)
            assert (state == "paused") == (job in self.frozen)
            assert self.over.get(job, state) == state, "a job that has ended stays in its state"
            if state in ENDED_STATES:
                self.over[job] = state
        assert not self.is_stopping or "waiting" not in states.values()
        assert self.host.core.is_empty == all(state in ENDED_STATES for state in states.values())

    @invariant()
    def unfinished_jobs_go_to_the_next_dispatcher(self) -> None:
        kept = {request.job for request, _ in self.host.core.unfinished()}
        states = {one.job: one.state for one in self.host.status().jobs}
        left = {job for job, state in states.items() if state not in ENDED_STATES - {"stopped"}}
        assert kept == left - self.cancelled, "a job that was cancelled and still saves is not continued"

    @invariant()
    def only_live_jobs_are_charged(self) -> None:
        status = self.host.status()
        assert status.charged_bytes == sum(one.charged_bytes for one in status.jobs if one.job in self.live)
        assert all(one.charged_bytes > 0 for one in status.jobs if one.job in self.live)
        assert all(one.starts <= 5 for one in status.jobs)

    def teardown(self) -> None:
        """When nothing prevents it, all jobs that are left come to an end."""
        if self.is_stopping:
            for job in list(self.live):
                self.does(self.host.core.ended(ended(job, 75, ""), None, self.now_s))
            assert self.host.core.is_empty
            return
        while self.examining:
            job = self.examining.pop()
            self.does(self.host.core.examined(examined(job, 100), self.now_s))
        for _ in range(200):
            if self.host.core.is_empty:
                break
            self.now_s += 10.0
            self.does(self.host.core.tick(self.now_s))
            for job in list(self.live):
                if job in self.frozen:
                    continue
                del self.live[job]
                self.does(self.host.core.ended(ended(job, 0, ""), None, self.now_s))
        assert self.host.core.is_empty, self.host.status().jobs


TestJobs = Jobs.TestCase
TestJobs.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
