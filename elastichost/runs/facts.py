"""Values of a run that the journal and checkpoints both contain: data size, quarantined samples, torn batches,
evaluations. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from elastichost.checkpoint.format import BestFigure
from elastichost.runs.result import Lookups, Quarantined, TestFigures

__all__ = ["ArenaOrigin", "DataSize", "EvaluationMemory", "Lineage", "Quarantined", "TornBatches"]

# Where the rows of an arena come from. new: initial rows; checkpoint: the parameter servers load a checkpoint; arena:
# the arena of a supervisor that died is taken over.
ArenaOrigin = Literal["new", "checkpoint", "arena"]


class DataSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Size of the data of one epoch. A resume compares it to detect other data, in which positions would mean other
    samples."""

    samples: int = 0
    units: int = 0

    def __str__(self) -> str:
        return f"{self.samples} samples in {self.units} units"


class EvaluationMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of evaluations in a checkpoint. evaluated_at: samples accounted for at the last evaluation; best: the
    best value of the figure so far that an early stop compares; without_better: evaluations since then without a better
    one; compared: name of this figure, "" in checkpoints of earlier versions. candidate: the last evaluation was the
    best one by `checkpoint.keep_best`, and its checkpoint is not written yet."""

    evaluated_at: int | None = None
    figures: TestFigures | None = None
    best: float | None = None
    without_better: int = 0
    compared: str = ""
    candidate: BestFigure | None = None


class TornBatches(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An incarnation of a worker that died within a batch: rows may hold a part of this batch."""

    worker: int
    incarnation: int
    batches: int = 1  # above 1 if commits of earlier batches were still on the way


class Lineage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The progress that belongs to the rows of an arena, apart from the record of committed batches. `ArenaOpened`
    events contain it."""

    data: DataSize = DataSize()  # size of the training data
    epoch: int = 0  # the newest epoch that was started
    quarantined: tuple[Quarantined, ...] = ()
    stopped_early: bool = False
    evaluations: EvaluationMemory = EvaluationMemory()
    torn: tuple[TornBatches, ...] = ()
    lookups: Lookups = Lookups()  # lookups before the arena was made
    started_from: str = ""  # the checkpoint of another run that the run started from

    @property
    def torn_batches(self) -> int:
        return sum(incarnation.batches for incarnation in self.torn)
