"""A host in virtual time on which jobs train at the speeds of the model, for tests of whole batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from elastichost.tuner.colocation.corrections import Corrections
from elastichost.tuner.colocation.facts import HostCapacity, JobDemand, PlacedJob
from elastichost.tuner.colocation.policies import dispatch, predicted
from elastichost.tuner.colocation.settings import ColocationSettings


@dataclass(frozen=True)
class Ran:
    """The result. order: names in the order of their starts. ended_s, started_s: times by name."""

    order: tuple[str, ...]
    started_s: dict[str, float]
    ended_s: dict[str, float]

    @property
    def makespan_s(self) -> float:
        return max(self.ended_s.values())


def run(jobs: Sequence[JobDemand], host: HostCapacity, settings: ColocationSettings, most_events: int = 2000) -> Ran:
    """Simulates the jobs from their arrivals to their ends; the policy decides at each arrival and end."""
    now_s, running, started, ended, order = 0.0, list[PlacedJob](), dict[str, float](), dict[str, float](), list[str]()
    left = {job.job: job.samples_left for job in jobs}
    coming = sorted(jobs, key=lambda job: job.arrived_s)
    for _ in range(most_events):
        waiting = [job for job in coming if job.arrived_s <= now_s and job.job not in started]
        now = [one for one in running if one.demand.job not in ended]
        present = [
            msgspec.structs.replace(one, demand=msgspec.structs.replace(one.demand, samples_left=left[one.demand.job]))
            for one in now
        ]
        by_name = {job.job: job for job in waiting}
        for start in dispatch(waiting, present, host, settings, Corrections(), now_s, decisions=len(order)):
            order.append(start.job)
            started[start.job] = now_s
            running.append(
                PlacedJob(by_name[start.job], start.placement, start.charged_bytes, start.charged_gpu_bytes, now_s)
            )
        now = [one for one in running if one.demand.job not in ended]
        held = sum(one.charged_bytes for one in now)
        assert held <= host.memory_bytes or not settings.memory_admission
        rates = {name: speed * _mode_of(now, name) for name, speed in predicted(now, host).items()}
        ends_s = [now_s + left[name] / rate for name, rate in rates.items()]
        arrivals_s = [job.arrived_s for job in coming if job.arrived_s > now_s]
        if not ends_s and not arrivals_s:
            break
        next_s = min([*ends_s, *arrivals_s])
        for name, rate in rates.items():
            left[name] -= rate * (next_s - now_s)
            if left[name] <= 1e-6 * rate:
                ended[name] = next_s
        now_s = next_s
    return Ran(tuple(order), started, ended)


def _mode_of(running: Sequence[PlacedJob], name: str) -> float:
    return next(one.mode.samples_per_s for one in running if one.demand.job == name)
