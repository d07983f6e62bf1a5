"""Measures the tensors that one training step and one scoring of a model allocate, at two small batch sizes.

A tensor has `fixed + sample * batch` bytes, so measurements at two batch sizes give both coefficients.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import nn
from torch._C._profiler import _EventType as EventType
from torch.autograd.profiler import profile

from elastichost.config.job import JobSpec
from elastichost.datasets import Reader
from elastichost.specs import ModelSpec
from elastichost.wire.facts import TensorEvent, WorkingSet
from elastichost.worker.steps.trial_step import TrialStep

__all__ = ["SAMPLES", "events_of", "logged", "working_set"]

SAMPLES = 32  # of the larger batch, where only the sizes of tensors matter


def logged(call: Callable[[], None]) -> tuple[tuple[int, int], ...]:
    """Runs `call`; returns the blocks that torch allocates and frees on the CPU meanwhile, in order of time.

    (block number, bytes) for an allocation, (block number, 0) when it is freed. Temporary blocks of an operation are
    included; blocks that existed before the call are not.
    """
    with profile(profile_memory=True, use_kineto=True) as profiler:
        call()
    found: list[tuple[int, int]] = []
    living: dict[int, int] = {}  # address -> number
    made = itertools.count()
    for address, size in _allocations(profiler.kineto_results.experimental_event_tree()):
        if size > 0:
            number = living[address] = next(made)
            found.append((number, size))
        elif address in living:
            found.append((living.pop(address), 0))
    return tuple(found)


def _allocations(tree: Any) -> list[tuple[int, int]]:
    """(address, bytes) of CPU allocations in order of time; bytes are negative when the block is freed."""
    pending, found = list(tree), []
    while pending:
        event = pending.pop()
        pending += event.children
        kind, fields = event.typed
        if kind == EventType.Allocation and fields.device.type == "cpu":
            found.append((event.start_time_ns, fields.ptr, fields.alloc_size))
    return [(address, size) for _, address, size in sorted(found, key=lambda one: one[0])]


def events_of(
    few: Sequence[tuple[int, int]], many: Sequence[tuple[int, int]], few_samples: int, many_samples: int
) -> tuple[TensorEvent, ...]:
    """Allocation events as a linear function of the batch size, from the logs (`logged`) of two batch sizes.

    When the two logs differ in more than sizes, the log of the larger batch is used, and all its bytes are counted as
    proportional to the number of samples.
    """
    is_alike = [(n, size > 0) for n, size in few] == [(n, size > 0) for n, size in many]
    found = []
    for at, (number, size) in enumerate(many):
        fixed = 0.0
        if is_alike and size:
            fixed = max(0.0, size - (size - few[at][1]) / (many_samples - few_samples) * many_samples)
        found.append(TensorEvent(number, size > 0, fixed, (size - fixed) / many_samples))
    return tuple(found)


def working_set(
    job: JobSpec, module: nn.Module, model: ModelSpec, reader: Reader, samples: int = SAMPLES
) -> WorkingSet:
    """Measures a model that was built on the meta device; its collections are replaced in place.

    samples: of the larger of the two batches that run forward and backward. Raises what the model's forward raises,
    and ValueError when the smaller batch has no valid sample.
    """
    step = TrialStep(job, module, model)
    unit = reader.describe().units[0]
    many = max(1, min(samples, unit.samples))
    few = max(1, many // 2)
    batches = [next(iter(reader.batches(unit, 0, count, count))) for count in (few, many)]
    sizes = [batch.size for batch in batches]
    if not sizes[0]:
        raise ValueError(f"none of the first {few} samples is valid")
    step.train(batches[0])  # allocates what is made once and kept, so that it is not in the logs
    logs = [[logged(partial(call, batch)) for batch in batches] for call in (step.train, step.score)]
    if sizes[0] == sizes[1]:
        logs = [[(), found[1]] for found in logs]
    training, scoring = (events_of(found[0], found[1], sizes[0], sizes[1]) for found in logs)
    return WorkingSet(training, scoring)
