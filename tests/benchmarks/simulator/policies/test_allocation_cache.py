"""An allocation is computed again only if a fact changes; a refused configuration is left out for a while."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from benchmarks.simulator.cluster.engine import simulate_jobs
from benchmarks.simulator.cluster.views import ClusterView
from benchmarks.simulator.policies.allocation_cache import CachedAllocation, RefusedRequests
from benchmarks.simulator.policies.static import StaticPolicy
from elastichost.tuner.facts import Configuration
from elastichost.tuner.placement.allocation import Capacity, JobOptions, Option
from tests.benchmarks.simulator.closed_network import job
from tests.benchmarks.simulator.watched_policy import Watched, cluster


def test_an_allocation_is_kept_while_no_fact_changes() -> None:
    asked: list[Sequence[JobOptions]] = []

    def choose(jobs: Sequence[JobOptions], capacity: Capacity) -> Mapping[int | str, int]:
        asked.append(jobs)
        return {one.job: 0 for one in jobs}

    option = Option(Configuration(1, 1), 10.0, 2)
    jobs = [JobOptions(7, 100.0, (option,))]
    choices = CachedAllocation(choose)
    assert choices.of(jobs, Capacity(8), 0.0, [1]) == {7: 0}
    choices.of([msgspec.structs.replace(jobs[0], remaining_samples=90.0)], Capacity(8), 30.0, [1])
    assert len(asked) == 1, "fewer samples are left, and no other fact has changed"
    for capacity, known, now_s in ((8, 2, 60.0), (16, 2, 90.0), (16, 2, 500.0)):
        choices.of(jobs, Capacity(capacity), now_s, [known])
    assert len(asked) == 4, "changed options, changed cores, a long time"
    choices.of([msgspec.structs.replace(jobs[0], current=0)], Capacity(16), 510.0, [2])
    assert len(asked) == 5


def test_a_refused_configuration_is_not_requested_again_at_once() -> None:
    watched = Watched(StaticPolicy())
    simulate_jobs([job(samples=60_000_000)], watched, cluster(1))
    view: ClusterView = next(view for view, _ in watched.seen if view.jobs and view.jobs[0].running is not None)
    running = view.jobs[0].running
    assert running is not None
    here, there = (Option(one, 1.0, one.cores) for one in (running, Configuration(9, 9)))
    refused = RefusedRequests()
    refused.asked = {0: running}
    refused.note(view, 100.0)
    assert refused.without(view.jobs[0], (here, there)) == (here, there)
    refused.asked = {0: there.configuration}
    refused.note(view, 130.0)
    assert refused.without(view.jobs[0], (here, there)) == (here,)
    assert refused.without(view.jobs[0], (there,)) == (there,), "the only option must stay"
    refused.asked = {}
    refused.note(view, 500.0)
    assert refused.without(view.jobs[0], (here, there)) == (here, there)
