"""What the journal and a checkpoint both carry of a run: data, quarantined samples, torn batches, evaluations. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from elastichost.runs.result import Lookups, Quarantined, TestFigures

__all__ = ["ArenaOrigin", "DataSize", "EvaluationMemory", "Lineage", "Quarantined", "TornBatches"]

# new: filled with initial rows; checkpoint: by parameter servers, from a checkpoint; arena: that of a supervisor that
# died.
ArenaOrigin = Literal["new", "checkpoint", "arena"]


class DataSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of all data of an epoch: by this other data is known, since positions mean something else in it."""

    samples: int = 0
    units: int = 0

    def __str__(self) -> str:
        return f"{self.samples} samples in {self.units} units"


class EvaluationMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a checkpoint keeps of the evaluations before it; `evaluated_at`: samples accounted for at the last one."""

    evaluated_at: int | None = None
    figures: TestFigures | None = None
    best: float | None = None
    without_better: int = 0


class TornBatches(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An incarnation of a worker that died within a batch: rows may hold a part of it."""

    worker: int
    incarnation: int
    batches: int = 1  # more when commits were on the way


class Lineage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What belongs to the rows, beside the record of committed batches. `ArenaOpened` events carry it."""

    data: DataSize = DataSize()  # that is trained
    epoch: int = 0  # the newest one that has begun
    quarantined: tuple[Quarantined, ...] = ()
    stopped_early: bool = False
    evaluations: EvaluationMemory = EvaluationMemory()
    torn: tuple[TornBatches, ...] = ()
    lookups: Lookups = Lookups()  # before the arena was made
    started_from: str = ""  # the checkpoint of another run that it began from

    @property
    def torn_batches(self) -> int:
        return sum(incarnation.batches for incarnation in self.torn)
