"""Detection of stragglers, hot PS and memory exhaustion by a policy, the gain from its countermeasures, and the quality
of first plans when similar jobs are in the history."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from benchmarks.harness.aggregates import Interval, bootstrap, pooled, ratio
from benchmarks.simulator.cluster.outcome import JobOutcome
from benchmarks.tuner.simulated.figures import completion_s
from benchmarks.tuner.simulated.runs import Seeds
from elastichost.tuner.facts import Configuration

__all__ = [
    "Ablation",
    "Cure",
    "Detection",
    "Start",
    "ablations",
    "cure",
    "hot_detection",
    "memory_detection",
    "start",
    "straggler_detection",
]

WINDOW_S = 240.0  # shorter episodes need not be detected: a policy averages blocks and waits a minute to be sure
HISTORY = 20  # number of jobs that must have ended before a first plan counts


class Detection(msgspec.Struct, frozen=True):
    """Detection over all jobs of all seeds. precision: share of correct actions. recall: share of episodes that were
    detected. lag: from the beginning of an episode to the action; negative if the action came first. in_time: share of
    actions that came early enough."""

    count: int  # episodes that should be detected
    precision: Interval | None  # None: no action
    recall: Interval | None  # None: no episode
    lag_median_s: float
    lag_p95_s: float
    in_time: float


class Cure(msgspec.Struct, frozen=True):
    """Completion times, by seed, of the jobs that have an episode in the arm without countermeasures. over: ratio of
    completion times, with countermeasures / in another arm."""

    jobs: int
    size: float  # mean share of the rows' work that a hot PS had in addition to its usual share
    mean_s: dict[str, Interval]
    over: dict[str, Interval]


class Start(msgspec.Struct, frozen=True):
    """The first plan compared with the last: smaller / larger, mean over jobs that arrive after HISTORY jobs ended.
    speed: true speed of the first plan / true speed of the last."""

    jobs: int
    workers: Interval
    servers: Interval
    cores: Interval
    speed: Interval


class Ablation(msgspec.Struct, frozen=True):
    """A part left out, compared with the whole policy and paired by seed: ratio of mean completion times, difference of
    completion rates in points, ratio of memory used, OOM kills per job."""

    completion: Interval
    completed_points: Interval
    memory_used: Interval
    oom_kills: Interval


# --- detection --------------------------------------------------------------------------------------------------------


def straggler_detection(seeds: Seeds, name: str) -> Detection:
    """Detection of slow workers that have peers. Episodes below WINDOW_S count only if the worker was replaced."""
    return _of_episodes(seeds, name, "straggler", "replaced_wrong")


def hot_detection(seeds: Seeds, name: str) -> Detection:
    """Detection of hot PS that have peers, to which buckets can move."""
    return _of_episodes(seeds, name, "hot", "moved_wrong")


def _of_episodes(seeds: Seeds, name: str, kind: str, wrong_field: str) -> Detection:
    right, wrong, missed, lags = [], [], [], []
    for played in seeds:
        jobs = played[name].result.jobs
        episodes = [one for job in jobs for one in job.episodes if one.kind == kind]
        cured = [one for one in episodes if one.end == "cured"]
        left = [one for one in episodes if one.end != "cured" and one.lasted_s >= WINDOW_S and one.peers > 1]
        lags += [one.lasted_s for one in cured]
        right.append(len(cured))
        missed.append(len(left))
        wrong.append(sum(getattr(job, wrong_field) for job in jobs))
    in_time = float(np.mean([lag <= WINDOW_S for lag in lags])) if lags else 0.0
    return _detection(right, wrong, missed, lags, in_time)


def memory_detection(seeds: Seeds, name: str) -> Detection:
    """Detection of jobs that would run out of memory: granted more in time, or killed. Lags are negative (leads)."""
    right, wrong, missed, lags, early = [], [], [], [], []
    for played in seeds:
        jobs = played[name].result.jobs
        raises = [one for job in jobs for one in job.raises]
        needed = [one for one in raises if math.isfinite(one.needed_s)]
        right.append(len(needed))
        wrong.append(len(raises) - len(needed))
        missed.append(sum(job.ooms for job in jobs))
        lags += [one.at_s - one.needed_s for one in needed]
        early += [one.needed_s - one.at_s >= one.move_s for one in needed]
    return _detection(right, wrong, missed, lags, float(np.mean(early)) if early else 0.0)


def _detection(
    right: Sequence[int], wrong: Sequence[int], missed: Sequence[int], lags: Sequence[float], in_time: float
) -> Detection:
    rights, wrongs, misses = (np.array(one, dtype=np.float64) for one in (right, wrong, missed))
    return Detection(
        count=sum(right) + sum(missed),
        precision=pooled(rights, rights + wrongs),
        recall=pooled(rights, rights + misses),
        lag_median_s=float(np.median(lags)) if lags else 0.0,
        lag_p95_s=float(np.quantile(lags, 0.95)) if lags else 0.0,
        in_time=in_time,
    )


# --- countermeasures --------------------------------------------------------------------------------------------------


def cure(seeds: Seeds, kind: str, caring: str, idle: str) -> Cure:
    """Compares jobs that have an episode of that kind of at least WINDOW_S in the idle arm and that all arms complete.
    Seeds without such jobs are left out."""
    arms = tuple(seeds[0])
    means: dict[str, list[float]] = {name: [] for name in arms}
    count, sizes = 0, list[float]()
    for played in seeds:
        ill = _ill(played[idle].result.jobs, kind)
        for one in played.values():
            ill &= {job.job for job in one.result.jobs if job.outcome == "completed"}
        if not ill:
            continue
        count += len(ill)
        sizes += [
            one.size for job in played[idle].result.jobs if job.job in ill for one in job.episodes if one.kind == kind
        ]
        for name in arms:
            means[name].append(float(completion_s(played[name].result.jobs, frozenset(ill)).mean()))
    rows = {name: np.array(values) for name, values in means.items()}
    return Cure(
        jobs=count,
        size=float(np.mean(sizes)) if sizes else 0.0,
        mean_s={name: bootstrap(values) for name, values in rows.items()} if count else {},
        over={name: ratio(rows[caring], values) for name, values in rows.items() if name != caring} if count else {},
    )


def _ill(jobs: Sequence[JobOutcome], kind: str) -> set[int]:
    return {job.job for job in jobs for one in job.episodes if one.kind == kind and one.lasted_s >= WINDOW_S}


def ablations(seeds: Seeds, whole: str, names: Sequence[str]) -> dict[str, Ablation]:
    """Compares each arm with the whole policy, by the completion times of jobs that both complete."""
    return {name: _ablation(seeds, whole, name) for name in names}


def _ablation(seeds: Seeds, whole: str, name: str) -> Ablation:
    times, points, used, kills = [], [], [], []
    for played in seeds:
        one, other = played[name].result.jobs, played[whole].result.jobs
        both = frozenset(
            {job.job for job in one if job.outcome == "completed"}
            & {job.job for job in other if job.outcome == "completed"}
        )
        times.append((completion_s(one, both).mean(), completion_s(other, both).mean()))
        points.append(100.0 * (_completed(one) - _completed(other)))
        used.append((_memory_used(one), _memory_used(other)))
        kills.append(sum(job.ooms for job in one) / len(one))
    pairs, shares = np.array(times), np.array(used)
    return Ablation(
        completion=ratio(pairs[:, 0], pairs[:, 1]),
        completed_points=bootstrap(np.array(points)),
        memory_used=ratio(shares[:, 0], shares[:, 1]),
        oom_kills=bootstrap(np.array(kills)),
    )


def _completed(jobs: Sequence[JobOutcome]) -> float:
    return sum(job.outcome == "completed" for job in jobs) / len(jobs)


def _memory_used(jobs: Sequence[JobOutcome]) -> float:
    return sum(job.used_byte_s for job in jobs) / max(1.0, sum(job.memory_byte_s for job in jobs))


# --- first plans ------------------------------------------------------------------------------------------------------


def start(seeds: Seeds, name: str) -> Start | None:
    """The quality of first plans; None if no job arrived after HISTORY jobs had ended."""
    rows, speeds = list[tuple[float, float, float]](), list[float]()
    count = 0
    for played in seeds:
        one = played[name]
        jobs = one.result.jobs
        ends = sorted(job.ended_s for job in jobs)
        late = [
            job
            for job in jobs
            if job.outcome == "completed" and len(ends) >= HISTORY and job.arrived_s >= ends[HISTORY - 1]
        ]
        if late:
            count += len(late)
            rows.append(_mean_nearness(late))
            speeds.append(float(np.mean([one.start_speed[job.job] for job in late])))
    if not rows:
        return None
    workers, servers, cores = (bootstrap(column) for column in np.array(rows).T)
    return Start(count, workers, servers, cores, bootstrap(np.array(speeds)))


def _mean_nearness(jobs: Sequence[JobOutcome]) -> tuple[float, float, float]:
    near = [
        [min(pair) / max(pair) for pair in zip(_sizes(job.first), _sizes(job.final), strict=True)]
        for job in jobs
        if job.first is not None and job.final is not None
    ]
    workers, servers, cores = np.array(near).mean(axis=0).tolist()
    return workers, servers, cores


def _sizes(plan: Configuration) -> tuple[int, int, int]:
    return plan.workers, plan.servers, plan.cores
