"""The section [emulate] of the job file: processes wait for stated times instead of computing.

So a large cluster can be emulated on one machine: supervisor, messages, leases and tuner are the real ones.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from elastichost.config.base import Section, refuse
from elastichost.config.sections.schema import ResourcesSection, TrainSection
from elastichost.config.values import Count, CountFromOne, MemoryAmount, NotNegative, Positive
from elastichost.resources import bounds_of

__all__ = ["EmulateSection", "NewIdsSettings", "emulate_problems"]


def _whole_memory(value: str | int) -> str | int:
    if isinstance(value, str) and "%" in value:
        raise refuse('a size like "64GiB" or a number of bytes; a virtual host has no memory to take a share of')
    return value


class NewIdsSettings(Section):
    """`emulate.new_ids`: how the number of distinct ids grows. n samples contain `factor` * n ** `exponent` distinct
    ids (Heaps' law), and each id gets a row of `row_bytes` in real memory."""

    factor: NotNegative = Field(default=0.0, description="The factor of Heaps' law. 0: there are no new ids.")
    exponent: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.6, description="The exponent of Heaps' law. 1: the number of ids grows as the number of samples."
    )
    row_bytes: Annotated[int, Field(ge=16, le=65_536)] = Field(
        default=64, description="Size of the row of a new id, in bytes."
    )


class EmulateSection(Section):
    """`[emulate]`: workers and parameter servers (PS) are real processes that exchange real messages, but wait instead
    of computing. `resources.cores` and `resources.memory` count those of the virtual hosts. The costs are those of one
    iteration: one batch of `train.batch_size` samples."""

    enabled: bool = Field(default=False, description="Emulate the job instead of training it.")
    hosts: Annotated[int, Field(ge=1, le=4096)] = Field(default=8, description="Number of virtual hosts.")
    cores_per_host: Annotated[int, Field(ge=1, le=1024)] = Field(default=16, description="Cores of each virtual host.")
    memory_per_host: Annotated[MemoryAmount, AfterValidator(_whole_memory)] = Field(
        default="64GiB", description='Memory of each virtual host: a size like "64GiB", or a number of bytes.'
    )
    scenario: str = Field(
        default="",
        description="Name of a scenario of elastichost.emulation.scenarios, whose costs replace those of this section. "
        '"": the costs below.',
    )
    compute_s: NotNegative = Field(
        default=0.02, description="Computing time of a worker in an iteration, in core-seconds shared by its cores."
    )
    serial_s: NotNegative = Field(
        default=0.002,
        description="Computing time of a worker in an iteration that more cores do not reduce, in seconds.",
    )
    worker_cores_saturate: CountFromOne = Field(
        default=4, description="Largest number of cores that share the computing of one worker."
    )
    server_s: NotNegative = Field(
        default=0.004, description="Computing time of all PS together in an iteration, in core-seconds."
    )
    bytes: Count = Field(
        default=4_000_000,
        description="Bytes that an iteration moves between a worker and all PS: half of them in pulls, half in pushes.",
    )
    bandwidth_bytes_per_s: Positive = Field(
        default=1.25e9, description="Bandwidth between a worker and a PS, in bytes per second."
    )
    latency_s: NotNegative = Field(
        default=0.0005, description="Latency between a worker and a PS, in seconds for each direction."
    )
    overlap: Literal["nothing", "pulls", "both"] = Field(
        default="nothing",
        description='Requests of a worker while it computes. "nothing": none. "pulls": it pulls the rows of the next '
        'batch. "both": it also pushes the gradients of the batch before.',
    )
    skew: Annotated[float, Field(ge=0, le=0.8)] = Field(
        default=0.0, description="Share of the work of all PS that belongs to one bucket. 0: all buckets are equal."
    )
    noise: Annotated[float, Field(ge=0, le=3)] = Field(
        default=0.1, description="Variation of computing times: standard deviation divided by mean."
    )
    startup_s: NotNegative = Field(
        default=0.0, description="Time in seconds by which the start of a process takes longer than its real start."
    )
    slowdown: Positive = Field(
        default=1.0,
        description="Factor of all costs except `startup_s`. A larger factor makes the time that the real messages "
        "take less important.",
    )
    new_ids: NewIdsSettings = NewIdsSettings()


def emulate_problems(emulate: EmulateSection, train: TrainSection, resources: ResourcesSection) -> list[str]:
    """The settings that an emulated job does not support, one line each."""
    if not emulate.enabled:
        return []
    problems = []
    if train.mode == "sync":
        problems.append('train.mode = "sync": sync mode is not emulated; allowed: "async", "bounded"')
    if train.access == "direct":
        problems.append('train.access = "direct": emulated workers share no memory; allowed: "auto", "served"')
    if bounds_of(resources.gpus, 0)[1] > 0:
        problems.append(f"resources.gpus = {resources.gpus}: virtual hosts have no GPUs; allowed: 0")
    return problems
