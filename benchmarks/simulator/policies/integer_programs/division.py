"""Divides a cluster among jobs by the integer program of a scheduler. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from benchmarks.simulator.cluster.views import ClusterView, Grant, JobView
from benchmarks.simulator.policies.admission import FreeCapacity
from benchmarks.simulator.policies.integer_programs.predictions import PredictedOptions
from benchmarks.simulator.policies.integer_programs.solver import chosen_options

__all__ = ["Candidates", "divided"]

Floats = npt.NDArray[np.float64]
Candidates = Sequence[tuple[JobView, PredictedOptions, Floats]]  # a running job, its options, and their values


def divided(
    view: ClusterView,
    jobs: Candidates,
    started: Mapping[int, Grant],
    first: Callable[[JobView], Grant],
    first_value: float,
    time_limit_s: float,
) -> dict[int, Grant]:
    """Returns the grants that change something. jobs: those whose options may change. started: grants of waiting jobs
    at this decision; the other waiting jobs have one option, `first`, with the value first_value."""
    room = FreeCapacity(view)
    cores, memory = float(room.cores), float(room.memory_bytes)
    for grant in started.values():
        cores, memory = cores - grant.configuration.cores, memory - grant.memory_bytes
    options: list[tuple[int, Grant, float, bool]] = []  # group, grant, value, whether it runs now
    for group, (job, predicted, values) in enumerate(jobs):
        cores, memory = cores + predicted.cores[predicted.present], memory + job.granted_memory_bytes
        rows = zip(predicted.configurations, predicted.memory_bytes.tolist(), values.tolist(), strict=True)
        for place, (configuration, needed, value) in enumerate(rows):
            is_present = place == predicted.present
            granted = job.granted_memory_bytes if is_present else int(needed)
            options.append((group, Grant(configuration, granted), value, is_present))
    waiting = [job for job in view.jobs if job.running is None and job.job not in started]
    options += [(len(jobs) + at, first(job), first_value, False) for at, job in enumerate(waiting)]
    if not options:
        return {}
    names = [job.job for job, _, _ in jobs] + [job.job for job in waiting]
    found = chosen_options(
        value=np.array([value for _, _, value, _ in options]),
        cores=np.array([grant.configuration.cores for _, grant, _, _ in options], dtype=np.float64),
        memory_bytes=np.array([grant.memory_bytes for _, grant, _, _ in options], dtype=np.float64),
        group=np.array([group for group, _, _, _ in options], dtype=np.int64),
        must=np.arange(len(names)) < len(jobs),
        capacity=(cores, memory),
        time_limit_s=time_limit_s,
    )
    if found is None:
        return {}
    chosen = {name: options[at] for name, at in zip(names, found.tolist(), strict=True) if at >= 0}
    return {name: grant for name, (_, grant, _, is_present) in chosen.items() if not is_present}
