"""Values of the sample ledger: its settings, ranges of positions, its state in a checkpoint. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from elastichost.errors import SampleRange
from elastichost.runs.facts import DataSize, Quarantined
from elastichost.sharding import mix64

__all__ = [
    "LedgerSettings",
    "LedgerState",
    "Settlement",
    "Span",
    "epoch_order",
    "unit_shuffle_seed",
    "without_barred",
]

_SIGN_FREE = (1 << 63) - 1


class LedgerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data of an epoch, and how it is leased. units[i]: number of samples of unit i."""

    units: tuple[int, ...]
    epochs: int
    batch_size: int
    order: Literal["file", "shuffle_groups", "shuffle"] = "file"
    seed: int = 0
    lease_target_s: float = 1.0
    leases_per_worker: int = 2
    failures_to_quarantine: int = 3
    in_order: bool = False  # sync mode: the one holder gets all positions of an epoch in order, after a resume too

    @property
    def samples(self) -> int:
        return sum(self.units)

    @property
    def data(self) -> DataSize:
        return DataSize(self.samples, len(self.units))


class Span(msgspec.Struct, frozen=True, array_like=True, order=True):
    """Positions [start, stop) of a unit. failures: number of incarnations that died on exactly this range."""

    unit: int
    start: int
    stop: int
    failures: int = 0

    @property
    def samples(self) -> int:
        return self.stop - self.start


class Settlement(msgspec.Struct, frozen=True):
    """How the leases of a worker were settled, in samples."""

    trained: int  # applied, but not reported before
    skipped: int  # likewise
    returned: int  # pending again
    quarantined: tuple[Quarantined, ...]


class LedgerState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of a ledger in a checkpoint. Positions that are neither pending nor in untouched units are accounted
    for."""

    samples: int
    units: int
    epoch: int
    next_unit: int  # position in the epoch's order of the first untouched unit
    next_lease_id: int
    pending: tuple[Span, ...]
    dropped: int
    trained: int
    skipped: int
    quarantined: tuple[Quarantined, ...]

    @property
    def data(self) -> DataSize:
        return DataSize(self.samples, self.units)


def epoch_order(settings: LedgerSettings, epoch: int) -> tuple[int, ...]:
    """The units in the order in which an epoch takes them: file order, or sorted by a hash of (seed, epoch, unit).
    Units without samples (a filter removed them all) are left out."""
    units = tuple(unit for unit, samples in enumerate(settings.units) if samples)
    if settings.order == "file":
        return units
    salt = mix64(settings.seed ^ mix64(epoch + 1))
    return tuple(sorted(units, key=lambda unit: (mix64(salt + unit), unit)))


def unit_shuffle_seed(settings: LedgerSettings, epoch: int, unit: int) -> int:
    """Seed of the order of the samples in one unit of one epoch: a function of (seed, epoch, unit), never negative."""
    return mix64(mix64(settings.seed ^ mix64(epoch + 1)) + unit) & _SIGN_FREE


def without_barred(epoch: int, span: Span, barred: Iterable[SampleRange]) -> tuple[list[Span], tuple[Quarantined, ...]]:
    """Splits a span of this epoch into the parts to train, in order, and the parts to leave out."""
    rests, given_up = [span], list[Quarantined]()
    for entry in barred:
        if (entry.epoch, entry.unit) != (epoch, span.unit):
            continue
        components, rests = rests, []
        for part in components:
            start, stop = max(part.start, entry.start), min(part.stop, entry.stop)
            if start >= stop:
                rests.append(part)
                continue
            given_up.append(Quarantined(epoch, part.unit, start, stop, failures=1))
            sides = (Span(part.unit, part.start, start), Span(part.unit, stop, part.stop))
            rests += [side for side in sides if side.samples]
    return rests, tuple(given_up)
