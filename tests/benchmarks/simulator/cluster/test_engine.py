"""The cluster engine neither loses nor gains work, never exceeds capacity, and repeats its result for the same seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulator.cluster import calibration
from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.cluster.hosts import ClusterHost
from benchmarks.simulator.cluster.jobs import JobMix, SimulatedJob, draw_jobs
from benchmarks.simulator.cluster.memory_curve import MemoryCurve
from benchmarks.simulator.cluster.outcome import SimulationResult
from benchmarks.simulator.cluster.random_streams import IncidentRates
from benchmarks.simulator.cluster.settings import STOP_AND_RESTART, ClusterSettings
from benchmarks.simulator.cluster.views import ClusterView, Grant, JobView
from benchmarks.simulator.policies.static import StaticPolicy
from benchmarks.simulator.queueing import truth_tables
from elastichost.tuner.facts import Configuration
from tests.benchmarks.simulator.closed_network import ClosedNetwork, job
from tests.effort import examples

GB = 10**9
QUIET = IncidentRates(0.0, 0.0, 0.0, 0.0)
ROUGH = IncidentRates(process_failures=2.0, stragglers=2.0, hot=2.0, host_failures=0.5)
HOSTS = (ClusterHost(16, 64 * GB),) * 3
CALM = ClusterSettings(hosts=HOSTS, rates=QUIET)
Segments = list[tuple[int, float, float, float]]


class Scripted:
    """A policy whose grants come from a function. It keeps the views of all decisions."""

    name = "scripted"

    def __init__(self, choose: Callable[[ClusterView], Mapping[int, Grant | None]]) -> None:
        self._choose = choose
        self.views: list[ClusterView] = []

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        assert view.now_s == now_s
        self.views.append(view)
        return self._choose(view) if view.jobs else {}


class Restless:
    """A policy that changes jobs at random, within the limits of a job. Its grants may not fit on the hosts."""

    name = "restless"

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        check_capacity(view)
        return {one.job: self._grant(one) for one in view.jobs if self._random.random() < 0.3 or one.running is None}

    def _grant(self, view: JobView) -> Grant:
        draw = self._random.integers
        configuration = Configuration(int(draw(1, 9)), int(draw(1, 5)), int(draw(1, 5)), int(draw(1, 5)))
        memory = int(draw(4, 12)) * GB
        return Grant(configuration, memory, bool(draw(2)), bool(draw(2)))


def check_capacity(view: ClusterView) -> None:
    running = [one for one in view.jobs if one.running is not None]
    assert all(host.free_cores >= 0 and host.free_memory_bytes >= 0 for host in view.hosts)
    allocated = sum(one.running.cores for one in running if one.running is not None)
    assert allocated == view.cores - view.free_cores
    granted = sum(one.granted_memory_bytes for one in running)
    taken = view.memory_bytes - view.free_memory_bytes
    assert granted - 64 * len(running) <= taken <= granted, "bytes that do not divide evenly stay free"


def run(
    policy: object, *specs: object, options: ClusterSettings = CALM, seed: int = 0
) -> tuple[SimulationResult, Segments]:
    """Returns the result and the segments: (job, since_s, until_s, samples/s)."""
    segments: Segments = []
    jobs = [one for one in specs if one]
    found = simulate_jobs(jobs, policy, options, seed, lambda *piece: segments.append(piece))  # type: ignore[arg-type]
    return found, segments


# --- exactness --------------------------------------------------------------------------------------------------------


def test_a_job_alone_ends_exactly_at_samples_over_rate() -> None:
    spec = job(samples=10_000_000, arrived_s=7.0)
    found, _ = run(StaticPolicy(), spec)
    one = found.jobs[0]
    rate = spec.truth.speed(spec.request).samples_per_s
    assert one.ended_s == 7.0 + calibration.RESTART_S + spec.samples / rate
    assert (one.outcome, one.waited_s, one.changes) == ("completed", 0.0, 0)
    assert one.core_s == pytest.approx(spec.request.cores * one.completion_s)
    assert found.busy_share == 0.0, "there is no time between the first arrival and the last"


def test_used_cores_follow_from_the_true_cpu_times() -> None:
    spec = job()
    found, _ = run(StaticPolicy(), spec)
    speed = spec.truth.speed(spec.request)
    iterations = spec.samples / spec.truth.workload.batch_size
    assert found.jobs[0].used_core_s == pytest.approx(iterations * (speed.worker_cpu_s + speed.server_cpu_s))


def test_used_memory_is_integrated() -> None:
    spec = job(memory=MemoryCurve(1e9, 2e9, 1.0, 15e6, 250e6, 100e6))
    found, _ = run(StaticPolicy(), spec)
    one = found.jobs[0]
    constant, training_s = 1e9 + 4 * 250e6 + 2 * 100e6, one.completion_s - calibration.RESTART_S
    assert one.used_byte_s == pytest.approx(constant * one.completion_s + 1e9 * training_s), "half of 2 GB on average"
    assert one.memory_byte_s == pytest.approx(8e9 * one.completion_s)


@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 1000), restarts=st.booleans(), varies=st.booleans())
def test_no_work_is_lost_or_gained(seed: int, restarts: bool, varies: bool) -> None:
    random = np.random.default_rng(seed)
    specs = [
        job(
            number,
            arrived_s=float(random.uniform(0, 600)),
            samples=int(random.integers(2_000_000, 60_000_000)),
            seed=seed,
        )
        for number in range(8)
    ]
    options = ClusterSettings(hosts=HOSTS, rates=ROUGH, varies=varies)
    if restarts:
        options = msgspec.structs.replace(options, style=STOP_AND_RESTART)
    found, segments = run(Restless(seed), *specs, options=options, seed=seed)
    for one in found.jobs:
        pieces = [piece for piece in segments if piece[0] == one.job]
        integral = sum((until - since) * rate for _, since, until, rate in pieces)
        assert integral == pytest.approx(one.work, rel=1e-9)
        assert all(before[2] <= after[1] for before, after in pairwise(pieces)), "segments of a job must not overlap"
        if one.outcome == "completed":
            assert one.work - one.rolled_back == pytest.approx(one.samples, rel=1e-9)
        else:
            assert one.outcome == "died" and one.ooms == options.most_oom_kills + 1
        assert one.used_core_s <= one.core_s * (1 + 1e-9)


def test_same_seed_same_result_bit_for_bit() -> None:
    specs = [job(number, arrived_s=100.0 * number) for number in range(6)]
    options = ClusterSettings(hosts=HOSTS, rates=ROUGH)
    first, again = (run(Restless(5), *specs, options=options, seed=3)[0] for _ in range(2))
    assert first == again
    assert run(Restless(5), *specs, options=options, seed=4)[0] != first, "hosts fail at other times"


def test_chance_does_not_depend_on_the_policy() -> None:
    """The k-th block of a job has the same noise whatever it runs in."""
    noises = []
    for configuration in (Configuration(2, 1, 2, 2), Configuration(6, 2, 1, 1)):
        grant = Grant(configuration, 8 * GB)
        policy = Scripted(lambda view, grant=grant: {one.job: grant for one in view.jobs if one.running is None})
        spec = job(samples=60_000_000)
        run(policy, spec)
        seen = policy.views[20].jobs[0].observations
        true = spec.truth.speed(configuration).samples_per_s
        noises.append([one.samples_per_s / true for one in seen[:10]])
    assert noises[0] == pytest.approx(noises[1], rel=1e-9)


# --- capacity and waiting ---------------------------------------------------------------------------------------------


def test_a_job_that_does_not_fit_waits() -> None:
    specs = [job(number, request=Configuration(6, 2, 4, 4)) for number in range(3)]  # 32 of 48 cores each
    found, _ = run(StaticPolicy(), *specs)
    ends = sorted(one.ended_s for one in found.jobs)
    waits = sorted(one.waited_s for one in found.jobs)
    assert waits[0] == 0.0 and waits[1] == ends[0] and waits[2] == ends[1], "one after the other, without a gap"


def test_a_grant_that_does_not_fit_on_hosts_is_refused() -> None:
    big = Grant(Configuration(1, 1, 10, 10), 4 * GB)  # two do not fit on a host of 16 cores
    policy = Scripted(lambda view: {one.job: big for one in view.jobs if one.running is None})
    found, _ = run(policy, job(0), job(1), options=ClusterSettings(hosts=(ClusterHost(16, 64 * GB),) * 2, rates=QUIET))
    assert found.refused > 0
    assert {one.outcome for one in found.jobs} == {"completed"}
    assert min(one.waited_s for one in found.jobs) == 0.0 < max(one.waited_s for one in found.jobs)


def test_as_many_new_workers_join_as_fit() -> None:
    small, large = Configuration(2, 1, 4, 4), Configuration(9, 1, 4, 4)  # workers: 36 cores, PS: 4, on two hosts of 16
    policy = first_then(Grant(small, 4 * GB), Grant(large, 6 * GB))
    found, _ = run(
        policy, job(samples=60_000_000), options=ClusterSettings(hosts=(ClusterHost(16, 64 * GB),) * 2, rates=QUIET)
    )
    assert found.jobs[0].final == Configuration(7, 1, 4, 4) and found.refused == 0


def test_decisions_come_on_time() -> None:
    policy = Scripted(lambda view: {one.job: Grant(one.request, 8 * GB) for one in view.jobs if one.running is None})
    run(policy, job(0, arrived_s=10.0), job(1, arrived_s=50.0))
    moments = [(view.now_s, view.trigger) for view in policy.views]
    assert moments[:4] == [(10.0, "arrival"), (30.0, "tick"), (50.0, "arrival"), (60.0, "tick")]
    assert [trigger for _, trigger in moments].count("end") == 2
    ended = [one for view in policy.views for one in view.ended]
    assert [one.outcome for one in ended] == ["completed"] * 2 and ended[0].first == Configuration(4, 2, 2, 2)


def test_impossible_grants_are_refused() -> None:
    for grant, text in (
        (Grant(Configuration(99, 1), 8 * GB), "is outside the limits of a job"),
        (Grant(Configuration(1, 1), 0), "memory_bytes=0 must be positive"),
    ):
        policy = Scripted(lambda view, grant=grant: {0: grant})
        with pytest.raises(ValueError, match=text):
            run(policy, job())
    with pytest.raises(ValueError, match="the policy granted resources to the unknown job"):
        run(Scripted(lambda view: {7: Grant(Configuration(1, 1), 8 * GB)}), job())


def test_a_simulation_ends_even_if_no_job_is_ever_started() -> None:
    options = msgspec.structs.replace(CALM, drain_s=3600.0)
    found, _ = run(Scripted(lambda view: {}), job(), options=options)
    assert found.jobs[0].outcome == "unfinished" and found.jobs[0].waited_s == 3600.0


# --- changes ----------------------------------------------------------------------------------------------------------


def first_then(first: Grant, then: Grant, at_s: float = 100.0) -> Scripted:
    """A policy that grants `first`, and once `then`, at the first decision from at_s on."""
    done: list[float] = []

    def choose(view: ClusterView) -> Mapping[int, Grant | None]:
        one = view.jobs[0]
        if one.running is None:
            return {one.job: first}
        if view.now_s >= at_s and not done:
            done.append(view.now_s)
            return {one.job: then}
        return {}

    return Scripted(choose)


def test_a_change_costs_the_time_of_a_join_or_of_a_restart() -> None:
    small, large = Configuration(2, 2, 2, 2), Configuration(8, 2, 2, 2)
    spec = job(samples=50_000_000)
    found, segments = run(first_then(Grant(small, 8 * GB), Grant(large, 9 * GB)), spec)
    rates = [spec.truth.speed(one).samples_per_s for one in (small, large)]
    pieces = [(until - since, rate) for _, since, until, rate in segments if rate > 0]
    assert [rate for _, rate in pieces] == pytest.approx([rates[0], calibration.PARTIAL_RATE * rates[0], rates[1]])
    assert pieces[1][0] == pytest.approx(calibration.JOIN_S)
    assert found.jobs[0].changes == 1
    stopped = msgspec.structs.replace(CALM, style=STOP_AND_RESTART)
    _, segments = run(first_then(Grant(small, 8 * GB), Grant(large, 9 * GB)), spec, options=stopped)
    assert sum(until - since for _, since, until, rate in segments if rate == 0) == pytest.approx(
        calibration.RESTART_S + 60.0
    )


def test_measurement_begins_anew_after_a_change() -> None:
    policy = first_then(Grant(Configuration(2, 2), 8 * GB), Grant(Configuration(6, 2), 9 * GB), at_s=115.0)
    run(policy, job(samples=50_000_000))
    seen = policy.views[-1].ended[0].view.observations
    configurations = [one.configuration.workers for one in seen]
    assert configurations == sorted(configurations) and {2, 6} == set(configurations)
    assert all(one.seconds == pytest.approx(30.0) for one in seen), "disturbed blocks must be left out"


def test_more_memory_for_the_same_configuration_costs_nothing() -> None:
    request = Configuration(4, 2, 2, 2)
    found, segments = run(first_then(Grant(request, 8 * GB), Grant(request, 12 * GB)), job(request=request))
    assert found.jobs[0].changes == 0
    assert len({rate for *_, rate in segments if rate > 0}) == 1
    assert found.jobs[0].memory_byte_s > 8e9 * found.jobs[0].completion_s


def test_jobs_on_one_host_slow_each_other_down() -> None:
    options = msgspec.structs.replace(CALM, hosts=(ClusterHost(24, 64 * GB),), interference=0.2)
    spec = job(0)
    _, segments = run(StaticPolicy(), spec, job(1, samples=2_000_000), options=options)
    rates = [rate for number, _, _, rate in segments if number == 0 and rate > 0]
    alone = spec.truth.speed(spec.request).samples_per_s
    assert rates[0] == pytest.approx(alone / (1 + 0.2 * 12 / 24))
    assert rates[-1] == pytest.approx(alone)


def cluster_job(number: int, **changes: object) -> SimulatedJob:
    """A drawn job with the scaled tables, which know cores of other speeds."""
    drawn = draw_jobs(1, 1, JobMix(families=1), truth_tables.tables(), CALM.limits)[0]
    plenty = {"requested_memory_bytes": 60 * GB, "memory": MemoryCurve(1e9, 1e9, 0.7, float(drawn.samples), 25e7, 1e8)}
    return msgspec.structs.replace(drawn, job=number, arrived_s=0.0, **{**plenty, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("speed", [0.5, 2.0])
def test_faster_cores_train_faster(speed: float) -> None:
    request = Configuration(2, 1, 2, 2)
    times = []
    for core_speed in (1.0, speed):
        options = ClusterSettings(hosts=(ClusterHost(16, 64 * GB, core_speed),), rates=QUIET)
        found, _ = run(StaticPolicy(), cluster_job(0, request=request), options=options)
        times.append(found.jobs[0].completion_s - calibration.RESTART_S)
    assert min(1.0, 1 / speed) <= times[1] / times[0] <= max(1.0, 1 / speed)
    assert (times[1] > 1.2 * times[0]) == (speed < 1), "computing takes most of its time"


def test_the_slowest_host_of_a_job_counts() -> None:
    """Two of three workers on a slow host: as slow as all of them, unless they do not wait for each other."""
    request, slow, usual = Configuration(3, 1, 4, 4), ClusterHost(8, 64 * GB, 0.5), ClusterHost(64, 64 * GB)
    times = {}
    for name, hosts in (("mixed", (slow, usual)), ("slow", (ClusterHost(64, 64 * GB, 0.5),)), ("usual", (usual,))):
        spec = cluster_job(0, request=request)
        found, _ = run(StaticPolicy(), spec, options=ClusterSettings(hosts=hosts, rates=QUIET, interference=0.0))
        times[name] = found.jobs[0].completion_s
    assert times["usual"] < times["mixed"] <= times["slow"]
    if spec.truth.workload.mode == "sync":
        assert times["mixed"] == pytest.approx(times["slow"], rel=0.2)


def test_blocks_end_on_time_while_other_jobs_come_and_go() -> None:
    """The blocks of a job go on although its speed changes, and their work is that of the job."""
    policy = Scripted(lambda view: {one.job: Grant(one.request, 8 * GB) for one in view.jobs if one.running is None})
    options = msgspec.structs.replace(CALM, hosts=(ClusterHost(48, 64 * GB),), interference=0.3)
    specs = [job(0, samples=60_000_000), job(1, arrived_s=100.0), job(2, arrived_s=205.0)]
    found, segments = run(policy, *specs, options=options)
    view = next(one.view for view in policy.views for one in view.ended if one.view.job == 0)
    blocks = [view.measured.blocks.block(index) for index in range(len(view.observations))]  # type: ignore[attr-defined]
    assert [one.at_s for one in blocks] == [calibration.RESTART_S + 30.0 * (index + 1) for index in range(len(blocks))]
    for block in blocks:
        pieces = (piece for piece in segments if piece[0] == 0)
        expected = sum(max(0.0, min(u, block.at_s) - max(s, block.at_s - 30.0)) * rate for _, s, u, rate in pieces)
        assert block.work == pytest.approx(expected)
    assert len({round(block.work) for block in blocks}) > 1, "the other jobs slow it down"
    assert found.events >= len(blocks)


# --- memory -----------------------------------------------------------------------------------------------------------


def test_a_job_with_too_little_memory_dies_for_good() -> None:
    found, _ = run(StaticPolicy(), job(requested_memory_bytes=3 * GB))
    one = found.jobs[0]
    assert (one.outcome, one.ooms, one.restarts) == ("died", 4, 3)
    assert one.rolled_back > 0


def test_memory_that_is_granted_in_time_prevents_kills() -> None:
    def choose(view: ClusterView) -> Mapping[int, Grant | None]:
        one = view.jobs[0]
        if one.running is None:
            return {0: Grant(one.request, 4 * GB)}
        used = one.memory[-1].used_bytes if one.memory else 0.0
        return {0: Grant(one.request, int(max(4 * GB, 1.3 * used)))}

    spec = job(samples=150_000_000, memory=MemoryCurve(1e9, 4e9, 0.7, 150e6, 250e6, 100e6))
    assert spec.memory.used_bytes(150e6, spec.request) > 5 * GB, "the job must need more than its first grant"
    found, _ = run(Scripted(choose), spec)
    assert (found.jobs[0].outcome, found.jobs[0].ooms) == ("completed", 0)


def test_after_a_kill_the_policy_is_asked_at_once() -> None:
    def choose(view: ClusterView) -> Mapping[int, Grant | None]:
        one = view.jobs[0]
        if one.running is None:
            return {0: Grant(one.request, 3 * GB)}
        return {0: Grant(one.request, 8 * GB)} if one.ooms and not one.is_changing else {}

    policy = Scripted(choose)
    found, segments = run(policy, job())
    assert "loss" in {view.trigger for view in policy.views}
    assert (found.jobs[0].outcome, found.jobs[0].ooms) == ("completed", 1)
    still_s = sum(until - since for _, since, until, rate in segments if rate == 0)
    assert 2 * calibration.RESTART_S < still_s < 2 * calibration.RESTART_S + 2.0, (
        "the start, and the restart, which loads the tables"
    )


def test_the_kill_comes_exactly_when_memory_is_used_up() -> None:
    spec = job(requested_memory_bytes=3 * GB)
    _, segments = run(StaticPolicy(), spec)
    rate = spec.truth.speed(spec.request).samples_per_s
    killed_s = next(until for _, since, until, found in segments if found > 0)
    assert killed_s == pytest.approx(
        calibration.RESTART_S + spec.memory.samples_at(3e9, spec.request) / rate, rel=1e-12
    )


# --- incidents --------------------------------------------------------------------------------------------------------


def only(**rates: float) -> ClusterSettings:
    """Settings with these incidents and no others."""
    return ClusterSettings(
        hosts=HOSTS,
        rates=IncidentRates(**{"process_failures": 0.0, "stragglers": 0.0, "hot": 0.0, "host_failures": 0.0, **rates}),
    )


def test_failures_of_processes_cost_little_time_unless_the_job_restarts() -> None:
    spec = job(samples=100_000_000)
    calm, _ = run(StaticPolicy(), spec)
    rough, _ = run(StaticPolicy(), spec, options=only(process_failures=5.0))
    assert calm.jobs[0].completion_s < rough.jobs[0].completion_s < 1.05 * calm.jobs[0].completion_s
    stopped = msgspec.structs.replace(only(process_failures=5.0), style=STOP_AND_RESTART)
    harsh, _ = run(StaticPolicy(), spec, options=stopped)
    assert harsh.jobs[0].completion_s > 1.05 * rough.jobs[0].completion_s
    assert harsh.jobs[0].restarts > 0 and harsh.jobs[0].rolled_back > 0


def test_stragglers_slow_a_job_until_they_are_replaced() -> None:
    options, spec = only(stragglers=3.0), job(samples=200_000_000)
    left, _ = run(StaticPolicy(), spec, options=options)
    seen: list[float] = []

    def choose(view: ClusterView) -> Mapping[int, Grant | None]:
        one = view.jobs[0]
        new = one.slowest[len(seen) :]
        seen.extend(new)
        return {0: Grant(one.request, 8 * GB, replace_straggler=bool(new) and new[-1] < 0.5)}

    replaced, _ = run(Scripted(choose), spec, options=options)
    assert replaced.jobs[0].replaced_right > 2 and replaced.jobs[0].replaced_wrong == 0
    assert replaced.jobs[0].straggle_s < 0.2 * left.jobs[0].straggle_s
    assert replaced.jobs[0].completion_s < left.jobs[0].completion_s
    assert min(seen) == pytest.approx(1 / 3, rel=0.2)


def test_a_hot_ps_stays_hot_until_buckets_are_moved() -> None:
    request = Configuration(8, 4, 2, 1)
    options, spec = only(hot=20.0), job(samples=100_000_000, truth=ClosedNetwork(server_s=0.02), request=request)
    left, _ = run(StaticPolicy(), spec, options=options)

    def choose(view: ClusterView) -> Mapping[int, Grant | None]:
        one = view.jobs[0]
        share = one.observations[-1].hot_share if one.observations else None
        return {0: Grant(one.request, 8 * GB, move_buckets=share is not None and share > 1.3 / 4)}

    moved, _ = run(Scripted(choose), spec, options=options)
    assert left.jobs[0].hot_s > 0.5 * left.jobs[0].completion_s
    assert moved.jobs[0].moved_right >= 1 and moved.jobs[0].hot_s < 0.3 * left.jobs[0].hot_s
    assert moved.jobs[0].completion_s < 0.95 * left.jobs[0].completion_s


def test_jobs_complete_although_their_hosts_fail() -> None:
    options = only(host_failures=20.0)
    policy = Scripted(lambda view: {one.job: Grant(one.request, 8 * GB) for one in view.jobs if one.running is None})
    found, _ = run(policy, *(job(number, samples=100_000_000) for number in range(3)), options=options)
    assert {one.outcome for one in found.jobs} == {"completed"}
    assert sum(one.restarts for one in found.jobs) > 0
    assert any(host.cores == 0 for view in policy.views for host in view.hosts)
    for view in policy.views:
        check_capacity(view)
