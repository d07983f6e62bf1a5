"""An allocation is computed again only if a fact changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from benchmarks.simulator.policies.allocation_cache import CachedAllocation
from elastichost.tuner.facts import Configuration
from elastichost.tuner.placement.allocation import Capacity, JobOptions, Option


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
