"""Times one training step of a job's model on one core, for several batch sizes and in every precision of this CPU.

Only the dense part does its real work: rows are constants (`trial_step`). So the times compare precisions and batch
sizes; they are not the speed of the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial

from torch import nn

from elastichost.config.job import JobSpec
from elastichost.datasets import Reader
from elastichost.host.cpu_features import present_cpu, refuses_bfloat16
from elastichost.specs import ModelSpec, Precision
from elastichost.wire.facts import StepTime
from elastichost.worker.steps.trial_step import TrialStep

__all__ = ["BATCH_SIZES", "step_times"]

BATCH_SIZES = (512, 1024, 2048, 4096, 8192)
LEAST_STEPS, ENOUGH_S = 2, 0.25  # a time is the least of so many steps, or of as many as this takes


def step_times(
    job: JobSpec, reader: Reader, build: Callable[[JobSpec], tuple[nn.Module, ModelSpec]]
) -> tuple[StepTime, ...]:
    """Times a forward and a backward pass. build: builds the model on the meta device. Raises what the model raises."""
    unit = reader.describe().units[0]
    asked = sorted({*BATCH_SIZES, job.train.batch_size})
    sizes = [size for size in asked if size <= unit.samples] or [unit.samples]
    found = []
    for precision in _precisions():
        trial = job.model_copy(update={"train": job.train.model_copy(update={"precision": precision})})
        step = TrialStep(trial, *build(trial))
        for size in sizes:
            batch = next(iter(reader.batches(unit, 0, size, size)))
            step.train(batch)  # the first step allocates, and chooses algorithms
            found.append(StepTime(precision, batch.size, _least_s(partial(step.train, batch))))
    return tuple(found)


def _precisions() -> Iterator[Precision]:
    yield "float32"
    if not refuses_bfloat16(present_cpu()):
        yield "bfloat16"


def _least_s(call: Callable[[], None]) -> float:
    times: list[float] = []
    while len(times) < LEAST_STEPS or sum(times) < ENOUGH_S:
        began_s = time.perf_counter()
        call()
        times.append(time.perf_counter() - began_s)
    return min(times)
