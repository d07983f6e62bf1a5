"""Pollux-like: a genetic search for numbers of workers that make the speedups of all jobs large and similar. Pure.

Qiao, Choe, Subramanya et al., "Pollux: co-adaptive cluster scheduling for goodput-optimized deep learning", OSDI 2021.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from benchmarks.simulator.cluster.views import ClusterView, Grant, JobView
from benchmarks.simulator.policies.admission import FreeCapacity, admit, make_way, requested_memory
from benchmarks.simulator.policies.configurations import clamped
from benchmarks.simulator.policies.merged_observations import MergedObservations
from elastichost.tuner.facts import Configuration
from elastichost.tuner.models.published.pollux import PolluxFit, fit

__all__ = ["PolluxPolicy", "evolved", "hopeful"]

INTERVAL_S = 60.0
POWER = -1.0
RESTART_PENALTY = 0.1
POPULATION, GENERATIONS, PATIENCE = 50, 50, 10  # patience: generations without a better allocation
Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]


class PolluxPolicy:
    """Section 4.2: every 60 s it chooses the allocation a with the greatest fitness (1/J sum of speedup_j(a)^p)^(1/p),
    p = -1. speedup is goodput over goodput with the least resources. If an allocation restarts a job, the job's speedup
    is multiplied by 1 - RESTART_PENALTY (as in the published scheduler). Section 4.1: a job gets at most twice the
    largest number of workers that it had before, so that its model is explored step by step.

    Differences from Pollux: batch sizes are those of the users, so goodput is throughput (statistical efficiency is not
    modelled here). A replica is a worker with the cores that its user requested. PS stay as the user requested, because
    the model contains none.
    """

    name = "pollux"

    def __init__(self, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)
        self._digests = MergedObservations()
        self._most: dict[int, int] = {}  # largest number of workers that a job has had
        self._tables: dict[int, tuple[tuple[int, int], Floats]] = {}
        self._decided_s = -INTERVAL_S
        self._searched: object = None  # the problem that was searched last; it is not searched again

    def decide(self, view: ClusterView, now_s: float) -> Mapping[int, Grant | None]:
        self._digests.forget(view.ended)
        for one in view.ended:
            self._most.pop(one.view.job, None)
            self._tables.pop(one.view.job, None)
        room = FreeCapacity(view)
        grants = admit(view, room, lambda job: self._first(view, job))
        if now_s - self._decided_s >= INTERVAL_S:
            self._decided_s = now_s
            grants |= self._share_out(view, room, grants)
        return grants

    def _first(self, view: ClusterView, job: JobView) -> Grant:
        return self._grant(job, self._configuration(view, job, 1))

    def _configuration(self, view: ClusterView, job: JobView, workers: int) -> Configuration:
        request = job.request
        return clamped(view.limits, workers, request.servers, request.worker_cores, request.server_cores)

    def _grant(self, job: JobView, configuration: Configuration) -> Grant:
        return Grant(configuration, requested_memory(job, configuration))

    def _share_out(self, view: ClusterView, room: FreeCapacity, started: Mapping[int, Grant]) -> dict[int, Grant]:
        """Gives waiting jobs one worker and the PS that their users requested; the search divides the remaining
        cores."""
        jobs = [job for job in view.jobs if job.running is not None and not job.is_changing and job.observations]
        if not jobs:
            return {}
        present = np.array([job.running.workers for job in jobs if job.running is not None], dtype=np.int64)
        for job, workers in zip(jobs, present.tolist(), strict=True):
            self._most[job.job] = max(self._most.get(job.job, 1), workers)
        most = np.array([min(2 * self._most[job.job], view.limits.most.workers) for job in jobs], dtype=np.int64)
        sizes = np.array([job.request.worker_cores for job in jobs], dtype=np.int64)
        cores = room.cores + int((present * sizes).sum())
        begun = make_way(view, started, lambda job: self._first(view, job), cores - int(sizes.sum()))
        cores -= sum(grant.configuration.cores for grant in begun.values())
        speedups = [self._speedups(view, job) for job in jobs]
        problem = (
            cores,
            tuple(begun),
            tuple(present.tolist()),
            tuple((job.job, self._tables[job.job][0]) for job in jobs),
        )
        if problem == self._searched:
            return {}
        self._searched = problem
        best = evolved(self._random, speedups, present, most, sizes, cores)
        return begun | {
            job.job: self._grant(job, self._configuration(view, job, workers))
            for job, workers, before in zip(jobs, best.tolist(), present.tolist(), strict=True)
            if workers != before
        }

    def _speedups(self, view: ClusterView, job: JobView) -> Floats:
        """Speeds with 1 and more workers over the speed with one worker, float64 [most]."""
        seen = self._digests.update(job)
        key = MergedObservations.age(job, seen)
        known = self._tables.get(job.job)
        if known is not None and known[0] == key:
            return known[1]
        most, request = view.limits.most.workers, job.request
        array = np.tile([1.0, request.servers, request.worker_cores, request.server_cores], (most, 1))
        array[:, 0] = np.arange(1, most + 1)
        speeds = hopeful(fit(job.workload, tuple(seen.values()))).predict(array).samples_per_s
        table = np.maximum(speeds, 1e-9) / max(float(speeds[0]), 1e-9)
        self._tables[job.job] = key, table
        return table


def hopeful(fitted: PolluxFit) -> PolluxFit:
    """Section 4.1, prior-driven exploration: costs that were never observed are 0. Without this rule a job with one
    worker would be assumed to scale by the start values of the fit."""
    unseen = {1: ("alpha", "beta"), 2: ("beta",)}.get(fitted.most_workers, ())
    return replace(fitted, parameters={**fitted.parameters, **dict.fromkeys(unseen, 0.0)})


def evolved(
    random: np.random.Generator, speedups: Sequence[Floats], present: Whole, most: Whole, sizes: Whole, cores: int
) -> Whole:
    """Returns numbers of workers, int64 [jobs], each from 1 to `most`: the fittest that a genetic search finds among
    those that fit (sum of workers * sizes <= cores). The search starts with the present numbers, int64 [jobs]."""
    jobs = len(present)
    table = np.stack([one[: int(most.max())] for one in speedups])
    rows = np.arange(jobs)

    def fitness(population: Whole) -> Floats:
        gained = table[rows, population - 1]
        gained = np.where(population != present, gained * (1 - RESTART_PENALTY), gained)
        mean: Floats = (gained**POWER).mean(axis=1) ** (1 / POWER)
        return mean

    best, since = -np.inf, 0
    population = _repaired(
        random, np.concatenate([present[None], random.integers(1, most + 1, (POPULATION, jobs))]), sizes, cores
    )
    for _ in range(GENERATIONS):
        parents = population[random.integers(0, len(population), (2, POPULATION))]
        points = random.integers(0, jobs + 1, POPULATION)  # single-point crossover over jobs
        children = np.where(rows < points[:, None], parents[0], parents[1])
        is_mutated = random.random(children.shape) < 1.0 / jobs
        children = np.where(is_mutated, random.integers(1, most + 1, children.shape), children)
        population = np.concatenate([population, _repaired(random, children, sizes, cores)])
        scores = fitness(population)
        order = np.argsort(-scores, kind="stable")
        population = population[order[:POPULATION]]
        since = 0 if scores[order[0]] > best else since + 1
        best = max(best, float(scores[order[0]]))
        if since >= PATIENCE:
            break
    fittest: Whole = population[0]
    return fittest


def _repaired(random: np.random.Generator, population: Whole, sizes: Whole, cores: int) -> Whole:
    """Takes workers from jobs in random order until all fit. One worker of each job stays."""
    order = np.argsort(random.random(population.shape), axis=1)
    shuffled, weights = np.take_along_axis(population, order, axis=1), sizes[order]
    room = cores - weights.sum(axis=1, keepdims=True)  # cores in addition to those of one worker of each job
    wanted = (shuffled - 1) * weights
    before = np.cumsum(wanted, axis=1) - wanted
    kept = 1 + np.minimum(wanted, np.maximum(0, room - before)) // weights
    found = np.empty_like(population)
    np.put_along_axis(found, order, kept, axis=1)
    return found
