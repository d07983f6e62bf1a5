"""The section of the job file that replaces computing by its costs, so that a cloud fits on a laptop."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from elastichost.config.schema import (
    Count,
    CountFromOne,
    MemoryAmount,
    NotNegative,
    Positive,
    ResourcesSection,
    Section,
    TrainSection,
    refuse,
)
from elastichost.resources import bounds_of

__all__ = ["EmulateSection", "NewIdsSettings", "emulate_problems"]


def _whole_memory(value: str | int) -> str | int:
    if isinstance(value, str) and "%" in value:
        raise refuse('a size like "64GiB" or a number of bytes: there is nothing that it could be a share of')
    return value


class NewIdsSettings(Section):
    """`emulate.new_ids`: `factor` * n ** `exponent` distinct ids are seen in n samples (Heaps' law), and each becomes a
    row of `row_bytes`, in real memory; factor 0: none."""

    factor: NotNegative = 0.0
    exponent: Annotated[float, Field(gt=0, le=1)] = 0.6
    row_bytes: Annotated[int, Field(ge=16, le=65_536)] = 64


class EmulateSection(Section):
    """`[emulate]`: with enabled, workers and PS are real processes that speak real messages, but wait instead of
    computing. There are `hosts` virtual hosts; resources.cores and resources.memory count theirs. The costs are those
    of an iteration, one batch of train.batch_size samples: of a worker `serial_s` and `compute_s` on one core, shared
    by at most worker_cores_saturate cores; of all PS together `server_s` core-seconds and `bytes` over the links, each
    PS with its share; latency_s each way. Or the costs are a scenario's of elastichost.emulation.scenarios. overlap:
    which requests go on while a worker computes. skew: the share of the PS' work that is with one bucket. noise:
    coefficient of variation of computing. startup_s: how much longer a process takes to start. slowdown: all costs but
    startup_s take so many times as long; what the real messages take counts so much less."""

    enabled: bool = False
    hosts: Annotated[int, Field(ge=1, le=4096)] = 8
    cores_per_host: Annotated[int, Field(ge=1, le=1024)] = 16
    memory_per_host: Annotated[MemoryAmount, AfterValidator(_whole_memory)] = "64GiB"
    scenario: str = ""
    compute_s: NotNegative = 0.02
    serial_s: NotNegative = 0.002
    worker_cores_saturate: CountFromOne = 4
    server_s: NotNegative = 0.004
    bytes: Count = 4_000_000
    bandwidth_bytes_per_s: Positive = 1.25e9
    latency_s: NotNegative = 0.0005
    overlap: Literal["nothing", "pulls", "both"] = "nothing"
    skew: Annotated[float, Field(ge=0, le=0.8)] = 0.0
    noise: Annotated[float, Field(ge=0, le=3)] = 0.1
    startup_s: NotNegative = 0.0
    slowdown: Positive = 1.0
    new_ids: NewIdsSettings = NewIdsSettings()


def emulate_problems(emulate: EmulateSection, train: TrainSection, resources: ResourcesSection) -> list[str]:
    """What an emulated job cannot be."""
    if not emulate.enabled:
        return []
    problems = []
    if train.mode == "sync":
        problems.append('train.mode = "sync": steps of a crew are not emulated; allowed: "async", "bounded"')
    if train.access == "direct":
        problems.append('train.access = "direct": emulated workers share no memory; allowed: "auto", "served"')
    if bounds_of(resources.gpus, 0)[1] > 0:
        problems.append(f"resources.gpus = {resources.gpus}: virtual hosts have none; allowed: 0")
    return problems
