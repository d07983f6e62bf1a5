"""Simulated completion times of recorded runs of several jobs, and their errors. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from benchmarks.colocate.arms import Arm
from benchmarks.colocate.fidelity.calibration import SoloCosts, batch_of
from benchmarks.colocate.jobs import Job
from benchmarks.colocate.recorded import ArmRun
from benchmarks.simulator.colocation.simulation import simulate_batch
from elastichost.tuner.colocation.settings import ColocationSettings

__all__ = ["ArmFidelity", "Fidelity", "Times", "fidelity_of", "predicted", "settings_of"]

SEEDS = range(1, 9)  # of the costs of pairs of kinds, which no run of a single job tells: their mean is predicted
MOST_MEAN_ERROR, MOST_P95_ERROR = 0.05, 0.10  # aims


class Times(msgspec.Struct, frozen=True):
    """The completion times of the jobs of one run, in seconds since all of them were submitted."""

    mean_s: float
    p95_s: float


class ArmFidelity(msgspec.Struct, frozen=True):
    """One arm. recorded: one for each round."""

    arm: str
    recorded: tuple[Times, ...]
    predicted: Times

    @property
    def mean_error(self) -> float:
        """Predicted / recorded mean completion time, less 1; the mean of the rounds is compared."""
        return self.predicted.mean_s / float(np.mean([one.mean_s for one in self.recorded])) - 1

    @property
    def p95_error(self) -> float:
        """As `mean_error`, of the 95th percentile."""
        return self.predicted.p95_s / float(np.mean([one.p95_s for one in self.recorded])) - 1


class Fidelity(msgspec.Struct, frozen=True):
    """All arms. recorded_order, predicted_order: arms from the shortest mean completion time to the longest."""

    costs: tuple[SoloCosts, ...]
    arms: tuple[ArmFidelity, ...]
    recorded_order: tuple[str, ...]
    predicted_order: tuple[str, ...]

    @property
    def is_near(self) -> bool:
        """Every arm is within the aims, and the order is the same."""
        near = all(abs(one.mean_error) <= MOST_MEAN_ERROR and abs(one.p95_error) <= MOST_P95_ERROR for one in self.arms)
        return near and self.recorded_order == self.predicted_order


def settings_of(arm: Arm, cores: int) -> ColocationSettings:
    """The settings of the policy that `elastichost run` gets for an arm."""
    pairs = (setting.replace("CORES", str(cores)).split("=", 1) for setting in arm.settings)
    return msgspec.convert({"policy": arm.policy, **dict(pairs)}, ColocationSettings, strict=False)


def times_of(ends_s: Sequence[float]) -> Times:
    return Times(float(np.mean(ends_s)), float(np.quantile(ends_s, 0.95)))


def predicted(arm: Arm, jobs: Sequence[Job], costs: Mapping[str, SoloCosts], cores: int, memory_bytes: int) -> Times:
    """The mean over SEEDS of the simulated completion times."""
    found = []
    for seed in SEEDS:
        outcome = simulate_batch(batch_of(jobs, costs, seed, cores, memory_bytes), settings_of(arm, cores))
        found.append(times_of([job.ended_s for job in outcome.jobs]))
    return Times(*(float(np.mean([getattr(one, name) for one in found])) for name in Times.__struct_fields__))


def fidelity_of(
    arms: Sequence[Arm], jobs: Sequence[Job], costs: Mapping[str, SoloCosts], runs: Sequence[ArmRun]
) -> Fidelity:
    """Compares the recorded runs of these jobs with their prediction. Runs that failed do not count. Raises ValueError
    if an arm has no run."""
    found = []
    for arm in arms:
        own = [run for run in runs if run.arm == arm.name and not run.failure]
        if not own:
            raise ValueError(f"no run of {arm.name} succeeded")
        guess = predicted(arm, jobs, costs, own[0].cores, own[0].memory_bytes)
        found.append(ArmFidelity(arm.name, tuple(times_of([job.ended_s for job in run.jobs]) for run in own), guess))
    recorded = sorted(found, key=lambda one: float(np.mean([times.mean_s for times in one.recorded])))
    simulated = sorted(found, key=lambda one: one.predicted.mean_s)
    return Fidelity(
        tuple(costs.values()),
        tuple(found),
        tuple(one.arm for one in recorded),
        tuple(one.arm for one in simulated),
    )
