"""The log of incidents: when each began and ended, and how it ended."""

from __future__ import annotations

import math

import pytest

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.cluster.episodes import HOT, Episode, EpisodeLog, MemoryRaise
from benchmarks.simulator.cluster.hosts import ClusterHost
from benchmarks.simulator.cluster.memory_curve import MemoryCurve
from benchmarks.simulator.cluster.outcome import JobOutcome
from benchmarks.simulator.cluster.random_streams import IncidentRates
from benchmarks.simulator.cluster.settings import ClusterSettings, RescaleStyle
from benchmarks.simulator.cluster.views import ClusterView, Grant, JobFaults
from benchmarks.simulator.policies.static import StaticPolicy
from elastichost.tuner.facts import Configuration
from tests.benchmarks.simulator.closed_network import ClosedNetwork, job
from tests.benchmarks.simulator.watched_policy import QUIET

GB = 10**9


class InformedStatic(StaticPolicy):
    """A static policy that gets the true faults of all jobs and records them. choose: changes its grants."""

    def __init__(self, choose: object = None) -> None:
        self._choose = choose
        self.heard: list[tuple[float, dict[int, JobFaults]]] = []
        self._now: dict[int, JobFaults] = {}

    def hear(self, ailing: dict[int, JobFaults]) -> None:
        self._now = dict(ailing)

    def decide(self, view: ClusterView, now_s: float) -> dict[int, Grant | None]:
        self.heard.append((now_s, self._now))
        found: dict[int, Grant | None] = dict(super().decide(view, now_s))
        for one in view.jobs:
            if one.running is not None and not one.is_changing and self._choose is not None:
                found[one.job] = self._choose(one, self._now.get(one.job), now_s)  # type: ignore[operator]
        return found


def outcome(
    policy: StaticPolicy, spec: object, rates: IncidentRates = QUIET, style: RescaleStyle | None = None
) -> JobOutcome:
    options = ClusterSettings(hosts=(ClusterHost(64, 64 * GB),) * 2, rates=rates, bucket_style=style)
    return simulate_jobs([spec], policy, options).jobs[0]  # type: ignore[list-item]


# --- the log ----------------------------------------------------------------------------------------------------------


def test_an_episode_lasts_from_its_first_begin_to_its_first_end() -> None:
    book = EpisodeLog()
    book.begin(3, 10.0, peers=8)
    book.begin(3, 40.0, peers=6)
    book.begin(HOT, 50.0, peers=4, size=0.3)
    book.resized(workers=5, servers=2)
    book.end(3, 100.0, "cured")
    book.end(3, 101.0, "passed")
    book.close(200.0)
    assert book.over == [
        Episode("straggler", 10.0, 100.0, "cured", 0.0, 5),
        Episode("hot", 50.0, 200.0, "left", 0.3, 2),
    ]
    assert book.over[0].lasted_s == 90.0


def test_a_raise_is_judged_at_the_time_at_which_it_would_have_been_too_late() -> None:
    book = EpisodeLog()
    book.more_room(5.0, samples=1000.0, move_s=2.0)
    book.more_room(8.0, samples=400.0, move_s=2.0)
    book.more_room(9.0, samples=math.inf, move_s=2.0)
    assert book.next_samples == 400.0
    book.trained(300.0, 500.0, since_s=20.0, rate=10.0)
    assert book.raises == [MemoryRaise(9.0, math.inf, 2.0), MemoryRaise(8.0, 30.0, 2.0)]
    assert book.next_samples == 1000.0
    book.close(60.0)
    assert len(book.raises) == 2 and book.next_samples == math.inf, "raises without a verdict are left out"


# --- in the engine ----------------------------------------------------------------------------------------------------


def test_stragglers_that_are_not_replaced_pass_or_last_until_the_end() -> None:
    policy = InformedStatic()
    found = outcome(policy, job(samples=200_000_000), IncidentRates(0.0, 3.0, 0.0, 0.0))
    assert {one.kind for one in found.episodes} == {"straggler"}
    assert {one.end for one in found.episodes} <= {"passed", "left"}
    assert all(one.peers == 4 and one.began_s >= found.arrived_s for one in found.episodes)
    # episodes of several workers overlap
    assert found.straggle_s <= sum(one.lasted_s for one in found.episodes) + 1e-6
    assert found.straggle_s >= max(one.lasted_s for one in found.episodes) - 1e-6
    for now_s, ailing in policy.heard:
        present = sum(one.began_s < now_s < one.ended_s for one in found.episodes)
        assert (ailing[0].stragglers if ailing else 0) == present


def test_a_replacement_or_a_move_of_buckets_cures_the_fault() -> None:
    def act(one: object, ailment: JobFaults | None, now_s: float) -> Grant:
        grant = Grant(Configuration(4, 2, 2, 2), 8 * GB)
        if ailment is None:
            return grant
        return Grant(grant.configuration, grant.memory_bytes, ailment.stragglers > 0, ailment.hot > 0)

    found = outcome(InformedStatic(act), job(samples=200_000_000), IncidentRates(0.0, 2.0, 20.0, 0.0))
    cured = [one for one in found.episodes if one.end == "cured"]
    assert {one.kind for one in cured} == {"straggler", "hot"}
    assert all(one.lasted_s <= 60.0 for one in cured), "cured at the next tick, or at the first one after a change"
    assert found.replaced_wrong == found.moved_wrong == 0
    assert len(cured) == found.replaced_right + found.moved_right
    hot = [one for one in cured if one.kind == "hot"]
    assert all(0.15 <= one.size <= 0.45 and one.peers == 2 for one in hot)


def test_raises_of_memory_record_whether_they_were_needed() -> None:
    spec = job(
        samples=150_000_000, memory=MemoryCurve(1e9, 4e9, 0.7, 150e6, 250e6, 100e6), requested_memory_bytes=4 * GB
    )

    def act(one: object, ailment: JobFaults | None, now_s: float) -> Grant:
        memory = 4 * GB if now_s < 60 else 7 * GB if now_s < 90 else 9 * GB
        return Grant(Configuration(4, 2, 2, 2), memory)

    found = outcome(InformedStatic(act), spec)
    assert found.ooms == 0 and [one.at_s for one in found.raises] == [90.0, 60.0]
    vain, needed = found.raises
    assert math.isinf(vain.needed_s), "7 GB are enough"
    rate = spec.truth.speed(spec.request).samples_per_s
    assert needed.needed_s == pytest.approx(6.6 + spec.memory.samples_at(4e9, spec.request) / rate)
    assert 0 < needed.move_s < 10


def test_buckets_may_be_moved_in_another_style_than_other_changes() -> None:
    def act(one: object, ailment: JobFaults | None, now_s: float) -> Grant:
        return Grant(Configuration(8, 4, 2, 1), 8 * GB, move_buckets=ailment is not None and ailment.hot > 0)

    request = Configuration(8, 4, 2, 1)
    spec = job(samples=100_000_000, truth=ClosedNetwork(server_s=0.02), request=request)
    rates = IncidentRates(0.0, 0.0, 20.0, 0.0)
    seamless, stopped = (
        outcome(InformedStatic(act), spec, rates, style) for style in (None, RescaleStyle("stop_and_restart", 300.0))
    )
    assert seamless.moved_right >= 1 and stopped.moved_right >= 1
    assert stopped.completion_s > seamless.completion_s + 200.0
