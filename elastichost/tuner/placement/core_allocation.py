"""The numbers of the cores that each job of a host has. Pure.

`tuner.cluster.decide` decides how many cores each job gets. Each job keeps its present cores up to its new number, and
only the others change their job. That is the smallest possible change: a job that grows from k to m cores needs m - k
new ones in any case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elastichost.tuner.placement.allocation import JobId

__all__ = ["assigned_cores"]


def assigned_cores(
    own: Mapping[JobId, tuple[int, ...]], counts: Mapping[JobId, int], cores: Sequence[int]
) -> dict[JobId, tuple[int, ...]]:
    """Returns the numbers of each job's cores, sorted: its present cores up to its count, then the lowest free ones.
    own: present cores of each job. counts: number of cores of each job. Raises ValueError if the counts exceed the
    cores."""
    if sum(counts.values()) > len(cores):
        raise ValueError(f"the jobs need {sum(counts.values())} cores, but there are only {len(cores)}")
    kept, taken = dict[JobId, tuple[int, ...]](), set[int]()
    for job, count in counts.items():
        # if two jobs have the same core, the first one keeps it
        mine = tuple(core for core in sorted(own.get(job, ())) if core in cores and core not in taken)[:count]
        kept[job] = mine
        taken |= set(mine)
    free = iter(sorted(set(cores) - taken))
    return {
        job: tuple(sorted((*mine, *(next(free) for _ in range(counts[job] - len(mine)))))) for job, mine in kept.items()
    }
