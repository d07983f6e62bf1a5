"""Simulates a run of a policy in a known world: looks every half second, noise, and the cost of plan changes. Pure.

The rates of windows are the true speed with log-AR(1) noise. The timings of the processes, and the speed of a
configuration during a visit, are drawn again for every visit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
import numpy as np

from benchmarks.simulator.cluster import calibration
from benchmarks.tuner.search.world import Job
from elastichost.tuner.facts import Configuration
from elastichost.tuner.policy.profile import ProfileSample, Totals

__all__ = ["Change", "Course", "Policy", "Visit", "drive"]

LOOK_S = 0.5
TRIAL_S = 45.0  # a configuration that has run for longer is not a trial
CHANGE_S = (0.2, 0.5)  # measured time from the request of a plan until it runs


class Policy(Protocol):
    """Chooses the configuration of a run."""

    def look(self, look: ProfileSample, samples_left: int) -> Configuration | None:
        """The configuration to run from now on; None to keep the present one."""
        ...


class Visit(msgspec.Struct, frozen=True):
    """A configuration that ran from a moment on."""

    at_s: float
    configuration: Configuration


@dataclass(slots=True)
class Course:
    """The course of one run. looks_s: CPU time of each look. seconds: duration of the whole run; from `looked_s` on the
    configuration does not change."""

    visits: list[Visit] = field(default_factory=list)
    looks_s: list[float] = field(default_factory=list)
    seconds: float = 0.0
    looked_s: float = 0.0

    @property
    def final(self) -> Configuration:
        return self.visits[-1].configuration


@dataclass(frozen=True, slots=True)
class Change:
    """From `at_s` on, the job has the costs of `after`."""

    at_s: float
    after: Job


def drive(
    job: Job,
    policy: Policy,
    start: Configuration,
    samples: float,
    *,
    looks_s: float = math.inf,
    change: Change | None = None,
    times: bool = True,
    clock: Callable[[], float] = time.thread_time,
) -> Course:
    """Trains `samples` samples. The policy gets looks for `looks_s`, or longer (at most twice as long) until the
    present configuration is not a trial; that one then runs to the end. times: the processes report timings."""
    random = np.random.default_rng((job.family.seed, job.seed, 13))
    noise = _noise(job, random)
    course, counted = Course([Visit(0.0, start)]), _Counted(job, random)
    counted.enter(start)
    at_s, trained, present = 0.0, 0.0, start
    lost_s: float | None = None
    while trained < samples and (at_s < looks_s or (at_s - course.visits[-1].at_s < TRIAL_S and at_s < 2 * looks_s)):
        if change is not None and at_s >= change.at_s:
            counted.become(change.after, present)
            change = None
        look = ProfileSample(
            at_s=at_s,
            configuration=present,
            is_steady=True,
            samples=int(trained),
            totals=counted.totals() if times else Totals(),
            hot_share=counted.hot_share,
            moving_s=lost_s,
        )
        began_s = clock()
        wanted = policy.look(look, max(0, int(samples - trained)))
        course.looks_s.append(clock() - began_s)
        factor, full_s, lost_s = next(noise), LOOK_S, None
        if wanted is not None and wanted != present:
            change_s = float(random.uniform(*CHANGE_S))
            partial = calibration.PARTIAL_RATE * counted.rate * factor * change_s
            trained += partial
            counted.count(partial)
            full_s -= change_s
            # the reported loss has an error, because the dip is measured in noise
            lost_s = (1 - calibration.PARTIAL_RATE) * change_s * float(np.exp(0.3 * random.standard_normal()))
            present = wanted
            counted.enter(present)
            course.visits.append(Visit(at_s + change_s, present))
        done = counted.rate * factor * full_s
        trained += done
        counted.count(done)
        at_s += LOOK_S
    course.looked_s, course.seconds = at_s, at_s + (samples - trained) / counted.rate
    return course


def _noise(job: Job, random: np.random.Generator) -> Iterator[float]:
    """Yields factors with mean 1; their logarithms x follow x' = rho x + sqrt(1 - rho^2) sd e."""
    sd = math.sqrt(math.log1p(job.family.cov**2))
    rho = job.family.rho
    x = sd * float(random.standard_normal())
    while True:
        for shock in (sd * math.sqrt(1 - rho * rho) * random.standard_normal(256)).tolist():
            yield math.exp(x - sd * sd / 2)
            x = rho * x + shock


class _Counted:
    """Totals of a run. The speed and timings of a visit to a configuration stay constant during the visit."""

    def __init__(self, job: Job, random: np.random.Generator) -> None:
        self._job, self._random = job, random
        self._sums = [0.0] * 8
        self._per_sample = [0.0] * 8
        self.rate, self.hot_share = 0.0, 1.0

    def enter(self, configuration: Configuration) -> None:
        met, workload = self._job.truth.met(configuration, self._random), self._job.truth.workload
        self.rate, self.hot_share = met.speed.samples_per_s, met.hot_share
        parts = configuration.workers if workload.mode == "sync" else 1  # batches (one for each worker) in an iteration
        speed = met.speed
        times = (speed.compute_s, speed.reader_s, speed.exchange_s, speed.bytes_moved, speed.worker_cpu_s)
        values = (parts, *(parts * value for value in times), speed.server_cpu_s, parts * met.training_cpu_s)
        self._per_sample = [value / workload.batch_size for value in values]

    def become(self, job: Job, configuration: Configuration) -> None:
        """Switches to the costs of a job and to a configuration."""
        self._job = job
        self.enter(configuration)

    def count(self, samples: float) -> None:
        self._sums = [total + samples * each for total, each in zip(self._sums, self._per_sample, strict=True)]

    def totals(self) -> Totals:
        return Totals(*self._sums)
