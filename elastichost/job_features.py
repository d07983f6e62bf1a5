"""What a job is, and what a run of it taught: the facts that the history keeps. Pure values.

A field may be added with a default: older records are read as if it had been left out.
"""

from __future__ import annotations

import msgspec

__all__ = ["Estimates", "JobFeatures", "JobRecord", "PlanSize"]


class JobFeatures(msgspec.Struct, frozen=True):
    """What is known of a job before it starts, as far as its speed and its memory depend on it. 0 and "": not known."""

    family: str  # build function of the model: "package.module:function"
    name: str = ""  # of the job
    user: str = ""  # whoever it belongs to, or any tag of theirs
    tables: int = 0
    dynamic_tables: int = 0  # of them, those without a fixed number of rows
    rows: int = 0  # of all fixed tables together
    largest_rows: int = 0  # of the largest of them
    mean_dim: float = 0.0  # over the tables
    largest_dim: int = 0
    ids_per_sample: float = 0.0
    dense_bytes: int = 0  # parameters of the dense part
    batch_size: int = 0
    mode: str = "async"  # "async" | "bounded" | "sync"
    access: str = "direct"  # "direct" | "served"
    samples: int = 0  # to train, over all epochs
    host_cores: int = 0  # that all processes share; 0: each has cores of its own
    gpus: int = 0
    shape: str = ""  # digest of the arguments of `family`: layers and their widths; of an emulated job: its costs


class PlanSize(msgspec.Struct, frozen=True, order=True):
    """How many processes of each role, and how many cores (threads) each has."""

    workers: int
    servers: int
    worker_cores: int = 1
    server_cores: int = 1


class Estimates(msgspec.Struct, frozen=True):
    """Positive quantities by name, log-normal: mean and standard deviation of their natural logarithm."""

    mean: dict[str, float] = {}
    sd: dict[str, float] = {}


class JobRecord(msgspec.Struct, frozen=True):
    """One run that is over. `best` is the plan that was found best, `final` the one it ended with."""

    features: JobFeatures
    ended_utc: str  # ISO 8601; later is greater
    best: PlanSize
    samples_per_s: float  # with `best`
    final: PlanSize
    ended_well: bool = True  # all samples trained
    model: str = ""  # that `parameters` belong to
    parameters: Estimates = Estimates()
    memory: Estimates = Estimates()  # of the memory curve
    observations: str = "[]"  # JSON list, as the tuner wrote it
