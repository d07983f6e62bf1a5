"""The speed of a job whose first workers have a GPU each, and whose further workers train on the CPU. Pure.

Workers of two kinds have two speeds, which no model of equal workers can hold. So each kind has a fit of its own, with
the measurements of that kind alone, and the job trains what both train. For W workers and g GPUs, with
m = max(0, W - g) workers on the CPU, c threads each, p PS, and a host of H cores:

    samples/s  =  G(min(W, g), p) * exp(-beta * m c / H)  +  C(m, p, c)

G: the fit of workers with a GPU. C: the fit of CPU workers, which share H - g cores, because a worker with a GPU keeps
one. beta: what the CPU workers take from those with a GPU, which need cores for their readers and the host's memory for
their rows. It is the slope of log G over m c / H among measurements with the same number of GPU workers and of PS
(Bayesian linear regression, Bishop, Pattern Recognition and Machine Learning, 2006, section 3.3), with the prior
LOSS +- LOSS_SD.

Before a CPU worker was measured, one is assumed to have SHARE of the speed of a worker with a GPU, within a factor of
exp(SHARE_SD), and the prediction counts as extrapolated. Priors are of workers with a GPU: the history compares only
jobs with GPUs, and a fit gives on what it knows of that kind alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import ConfigurationArray, Observation, Predictions, Workload, as_array
from elastichost.tuner.models.base import NORMAL_90, Fit, Prior, checked, distinct, interval

__all__ = ["TwoKindsFit", "fit_kinds"]

Floats = npt.NDArray[np.float64]

LOSS, LOSS_SD = 0.2, 0.3  # prior of beta: a CPU worker on every core takes a fifth of the speed of the GPU workers
SHARE, SHARE_SD = 0.05, 1.0  # assumed speed of a CPU worker over that of a worker with a GPU; log standard deviation
MOST_ERROR = 0.5  # of the log speed of one kind, when it is a small part of the speed of both


@dataclass(frozen=True, slots=True)
class TwoKindsFit:
    """Two fits and what the kinds take from each other; see `base.Fit`. on_cpu: None before a CPU worker was measured.
    loss, loss_sd: beta of the module docstring, and its standard deviation."""

    workload: Workload
    seen: tuple[Observation, ...]
    on_gpus: Fit
    on_cpu: Fit | None
    loss: float
    loss_sd: float

    @property
    def name(self) -> str:
        return self.on_gpus.name

    @property
    def observations(self) -> int:
        return len(self.seen)

    @property
    def configurations(self) -> int:
        return distinct(self.seen)

    @property
    def rank(self) -> int:
        if self.on_cpu is None:
            return self.on_gpus.rank
        return self.on_gpus.rank + self.on_cpu.rank + (self.loss_sd < LOSS_SD / 2)

    @property
    def parameters_total(self) -> int:
        if self.on_cpu is None:
            return self.on_gpus.parameters_total
        return self.on_gpus.parameters_total + self.on_cpu.parameters_total + 1

    @property
    def parameters(self) -> Mapping[str, float]:
        """Those of workers with a GPU; with CPU workers also "CPU: name", and the loss to them."""
        if self.on_cpu is None:
            return self.on_gpus.parameters
        of_cpu = {f"CPU: {name}": value for name, value in self.on_cpu.parameters.items()}
        return {**self.on_gpus.parameters, **of_cpu, "loss": self.loss}

    @property
    def confidence(self) -> float:
        if self.on_cpu is None:
            return self.on_gpus.confidence
        seen = as_array([one.configuration for one in self.seen])
        return float(np.exp(-NORMAL_90 * np.median(self.predict(seen).log_error)))

    def predict(self, configurations: ConfigurationArray, hot_share: float | None = None) -> Predictions:
        """See `base.Fit`."""
        gpus, many, crowding = _split(self.workload, configurations)
        with_gpu = self.on_gpus.predict(gpus, hot_share)
        log_gpu = np.log(with_gpu.samples_per_s) - self.loss * crowding
        gpu_error = np.hypot(with_gpu.log_error, self.loss_sd * crowding)
        has_cpu = many > 0
        on_cpu = self._of_cpu_workers(configurations, with_gpu.samples_per_s / gpus[:, 0], many, hot_share)
        of_gpu, of_cpu = np.exp(log_gpu), np.where(has_cpu, on_cpu.samples_per_s, 0.0)
        total = of_gpu + of_cpu
        log_error = np.hypot(of_gpu / total * gpu_error, of_cpu / total * on_cpu.log_error)
        return interval(np.log(total), log_error, with_gpu.is_extrapolated | (has_cpu & on_cpu.is_extrapolated))

    def _of_cpu_workers(
        self, configurations: ConfigurationArray, each_gpu: Floats, many: Floats, hot_share: float | None
    ) -> Predictions:
        """The speed of `many` CPU workers, float64 [n]. each_gpu: of one worker with a GPU, samples/s, float64 [n]."""
        some = np.maximum(1.0, many)
        if self.on_cpu is None:
            assumed, unsure = np.log(SHARE * some * each_gpu), np.full(len(some), SHARE_SD)
            return interval(assumed, unsure, np.ones(len(some), dtype=np.bool_))
        rows = configurations.copy()
        rows[:, 0] = some
        return self.on_cpu.predict(rows, hot_share)

    def posterior(self) -> Prior:
        return self.on_gpus.posterior()


class FitOne(Protocol):
    """Fits the model of one kind of workers."""

    def __call__(self, workload: Workload, observations: Sequence[Observation], prior: Prior | None = None) -> Fit: ...


def fit_kinds(
    workload: Workload, observations: Sequence[Observation], fit_one: FitOne, prior: Prior | None = None
) -> TwoKindsFit:
    """Fits both kinds with the model `fit_one`. workload.gpus: at least 1. An observation with workers of both kinds
    whose speeds were not measured apart is left out. prior: of workers with a GPU. Raises ValueError for invalid
    observations (`base.checked`)."""
    checked(workload, observations)
    apart = [one for one in observations if one.configuration.workers <= workload.gpus or one.gpu_samples_per_s]
    loss, loss_sd = _loss(workload, apart)
    of_gpu_kind, of_cpu_kind = _workloads(workload)
    on_gpus = fit_one(of_gpu_kind, [_of_gpus(workload, one, loss, loss_sd) for one in apart], prior)
    cpu = [found for one in apart if (found := _of_cpu(workload, one)) is not None]
    on_cpu = fit_one(of_cpu_kind, cpu) if cpu else None
    return TwoKindsFit(workload, tuple(observations), on_gpus, on_cpu, loss, loss_sd)


def _workloads(workload: Workload) -> tuple[Workload, Workload]:
    """The workloads of workers with a GPU, and of CPU workers."""
    left = max(1, workload.host_cores - workload.gpus) if workload.host_cores else 0
    return (
        msgspec.structs.replace(workload, gpus=0),
        msgspec.structs.replace(workload, gpus=0, has_gpus=False, host_cores=left),
    )


def _split(workload: Workload, configurations: ConfigurationArray) -> tuple[ConfigurationArray, Floats, Floats]:
    """The configurations of the workers with a GPU alone, float64 [n, 4], the numbers of CPU workers, and m c / H,
    float64 [n]."""
    gpus = configurations.copy()
    gpus[:, 0] = np.minimum(configurations[:, 0], workload.gpus)
    many = configurations[:, 0] - gpus[:, 0]
    return gpus, many, many * configurations[:, 2] / max(1, workload.host_cores or 1)


def _gpu_speed(workload: Workload, one: Observation) -> float:
    is_alone = one.configuration.workers <= workload.gpus
    return one.samples_per_s if is_alone else (one.gpu_samples_per_s or 0.0)


def _loss(workload: Workload, apart: Sequence[Observation]) -> tuple[float, float]:
    """beta and its standard deviation. beta is at least 0: no CPU worker makes a GPU faster."""
    gpus, _, crowding = _split(workload, as_array([one.configuration for one in apart]))
    logs = np.log([_gpu_speed(workload, one) for one in apart])
    weights = np.array([max(one.log_error, 1e-3) for one in apart]) ** -2
    information, moment = LOSS_SD**-2, LOSS * LOSS_SD**-2
    for same in np.unique(gpus[:, :2], axis=0):
        of = (gpus[:, :2] == same).all(axis=1)
        weight = weights[of]
        x = crowding[of] - np.average(crowding[of], weights=weight)
        y = logs[of] - np.average(logs[of], weights=weight)
        information += float((weight * x * x).sum())
        moment -= float((weight * x * y).sum())
    return max(0.0, moment / information), information**-0.5


def _of_gpus(workload: Workload, one: Observation, loss: float, loss_sd: float) -> Observation:
    """What the workers with a GPU would train without the CPU workers. Times were measured in workers with a GPU only
    where there are no others."""
    own = msgspec.structs.replace(one.configuration, workers=min(one.configuration.workers, workload.gpus))
    if own == one.configuration:
        return one
    crowding = float(_split(workload, as_array([one.configuration]))[2][0])
    return Observation(
        configuration=own,
        samples_per_s=_gpu_speed(workload, one) * float(np.exp(loss * crowding)),
        log_error=float(np.hypot(one.log_error, loss_sd * crowding)),
        seconds=one.seconds,
        at_s=one.at_s,
        hot_share=one.hot_share,
    )


def _of_cpu(workload: Workload, one: Observation) -> Observation | None:
    """What the CPU workers trained; None: there were none. The times of such an observation are theirs."""
    many = one.configuration.workers - workload.gpus
    speed = one.samples_per_s - (one.gpu_samples_per_s or 0.0)
    if many <= 0 or speed <= 0:
        return None
    own = msgspec.structs.replace(one.configuration, workers=many)
    error = min(MOST_ERROR, one.log_error * one.samples_per_s / speed)
    return msgspec.structs.replace(
        one, configuration=own, samples_per_s=speed, log_error=error, gpu_samples_per_s=None, server_cpu_s=None
    )
