"""What a job is, and what a run of it taught: the facts that the history keeps. Pure values.

A field may be added with a default: older records are read as if it had been left out.
"""

from __future__ import annotations

import math

import msgspec

__all__ = ["ROUNDING", "Estimates", "JobFeatures", "JobMetric", "JobRecord", "PlanSize"]


ROUNDING = 1e-6  # of distances, so that sums in another order find the same neighbours


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
    access: str = "direct"  # "direct" | "served" | "mixed"
    samples: int = 0  # to train, over all epochs
    host_cores: int = 0  # that all processes share; 0: each has cores of its own
    gpus: int = 0
    shape: str = ""  # digest of the arguments of `family`: layers and their widths; of an emulated job: its costs


class JobMetric(msgspec.Struct, frozen=True):
    """How jobs are compared, by names of JobFeatures. words: distance of each that differs, but for `unset_words` where
    one of both is ""; sizes: for each factor of 2; unknown: of a factor of 2, where one is not known; kinds: distance
    where one has some and the other none. failed: added for a job that did not end well. near: those farther away are
    no neighbours; band: within it the newer comes first."""

    words: dict[str, float]
    unset_words: tuple[str, ...]
    sizes: dict[str, float]
    kinds: dict[str, float]
    unknown: float
    failed: float
    near: float
    band: float

    def distance(self, one: JobFeatures, other: JobFeatures) -> float:
        """Root of the sum of squares of the differences. Symmetric; 0 for equal jobs."""
        pairs = {name: {getattr(one, name), getattr(other, name)} for name in self.words}
        differing = [name for name, pair in pairs.items() if len(pair) == 2]
        parts = [self.words[name] for name in differing if name not in self.unset_words or "" not in pairs[name]]
        for name, weight in self.sizes.items():
            first, second = float(getattr(one, name)), float(getattr(other, name))
            if first > 0 and second > 0:
                parts.append(weight * abs(math.log2(first / second)))
            elif (first > 0) != (second > 0):
                parts.append(self.unlike(name))
        return math.hypot(*parts)

    def unlike(self, size: str) -> float:
        """Distance where only one of both has this size."""
        return self.kinds.get(size, self.sizes[size] * self.unknown)

    def is_near(self, away: float) -> bool:
        return away <= self.near + ROUNDING

    def band_of(self, away: float) -> int:
        return math.floor(away / self.band + ROUNDING)


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
    """One run that is over. `best` is the plan that was found best, `final` the one it ended with. A run of which no
    speed was measured, or that failed, teaches of its memory only."""

    features: JobFeatures
    ended_utc: str  # ISO 8601; later is greater
    best: PlanSize
    samples_per_s: float  # with `best`; 0: not measured, and `best` is nothing to begin with
    final: PlanSize
    ended_well: bool = True  # all samples trained
    model: str = ""  # that `parameters` belong to
    parameters: Estimates = Estimates()
    memory: Estimates = Estimates()  # of the memory curve
    observations: str = "[]"  # JSON list, as the tuner wrote it

    @property
    def is_measured(self) -> bool:
        return self.samples_per_s > 0
