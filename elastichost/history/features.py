"""The features of a job, and the record of a run, as the history stores them. Pure values.

New fields need a default, so that older records can still be read.
"""

from __future__ import annotations

import math

import msgspec

__all__ = ["ROUNDING", "Estimates", "JobFeatures", "JobMetric", "JobRecord", "PlanSize"]


ROUNDING = 1e-6  # tolerance of distances, so that sums in another order find the same neighbours


class JobFeatures(msgspec.Struct, frozen=True):
    """The facts known before a job starts on which its speed and its memory depend. 0 and "": not known."""

    family: str  # build function of the model: "package.module:function"
    name: str = ""  # of the job
    user: str = ""  # name of the user that runs the job, or a tag that the user chose
    tables: int = 0
    dynamic_tables: int = 0  # number of tables without a fixed number of rows
    rows: int = 0  # of all fixed tables together
    largest_rows: int = 0  # of the largest fixed table
    mean_dim: float = 0.0  # over the tables
    largest_dim: int = 0
    ids_per_sample: float = 0.0
    dense_bytes: int = 0  # size of the parameters of the dense part
    batch_size: int = 0
    mode: str = "async"  # "async" | "bounded" | "sync"
    access: str = "direct"  # "direct" | "served" | "mixed"
    samples: int = 0  # to train, over all epochs
    host_cores: int = 0  # cores that all processes share; 0: each process has its own cores
    gpus: int = 0
    shape: str = ""  # digest of the arguments of `family` (such as layer sizes), or of an emulated job's costs


class JobMetric(msgspec.Struct, frozen=True):
    """The distance between jobs. The keys are names of fields of JobFeatures.

    words        distance for a text that differs
    unset_words  of these texts: no distance where one of the two is ""
    sizes        distance for each factor of 2 between two numbers
    unknown      number of factors of 2 that count when one of the two numbers is not known
    kinds        for these numbers instead: distance when one job has some and the other has none
    failed       is added for a job that did not end well
    near         jobs that are farther away are not neighbours
    band         among jobs within one band of distance, newer ones come first
    """

    words: dict[str, float]
    unset_words: tuple[str, ...]
    sizes: dict[str, float]
    kinds: dict[str, float]
    unknown: float
    failed: float
    near: float
    band: float

    def distance(self, one: JobFeatures, other: JobFeatures) -> float:
        """The root of the sum of squares of all differences. It is symmetric, and 0 for equal jobs."""
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
        """The distance when only one of two jobs has this number."""
        return self.kinds.get(size, self.sizes[size] * self.unknown)

    def is_near(self, away: float) -> bool:
        return away <= self.near + ROUNDING

    def band_of(self, away: float) -> int:
        return math.floor(away / self.band + ROUNDING)


class PlanSize(msgspec.Struct, frozen=True, order=True):
    """The size of a plan: the number of processes of each role, and the cores (threads) of each."""

    workers: int
    servers: int
    worker_cores: int = 1
    server_cores: int = 1


class Estimates(msgspec.Struct, frozen=True):
    """Estimates of positive quantities, by name: mean and standard deviation of their natural logarithm."""

    mean: dict[str, float] = {}
    sd: dict[str, float] = {}


class JobRecord(msgspec.Struct, frozen=True):
    """The record of a run: after its end, or while it trains, as its tuner knew the job at its last decision. `best`:
    the fastest plan that was found; `final`: the plan at its end, or at that decision. When no speed was measured, or
    when the run failed, only its memory is used."""

    features: JobFeatures
    written_utc: str  # ISO 8601, so that later times are greater texts
    best: PlanSize
    samples_per_s: float  # with `best`; 0: not measured, then `best` is not used
    final: PlanSize
    ended_well: bool = True  # all samples were trained, or the run still trained
    model: str = ""  # the tuner's model that `parameters` belong to
    parameters: Estimates = Estimates()
    memory: Estimates = Estimates()  # parameters of the growth of memory
    observations: str = "[]"  # a JSON list written by the tuner
    run: str = ""  # id of the run, whose earlier record this one replaces; "": it replaces none

    @property
    def is_measured(self) -> bool:
        return self.samples_per_s > 0
