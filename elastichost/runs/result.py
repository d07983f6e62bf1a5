"""What a run came to: `result.json`, and what `run --json` prints."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = [
    "Lookups",
    "LostHost",
    "ProcessCounts",
    "Quarantined",
    "RollBack",
    "RunOutcome",
    "RunResult",
    "SampleCounts",
    "TestFigures",
]

RunOutcome = Literal["done", "stopped", "killed", "quarantined", "incomplete", "failed"]


class SampleCounts(msgspec.Struct, frozen=True):
    """Positions over all epochs. trained + skipped + quarantined == planned once a run is done."""

    planned: int
    trained: int
    skipped: int
    quarantined: int


class Quarantined(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Positions given up: every incarnation that was given them died, or they are barred."""

    epoch: int
    unit: int
    start: int
    stop: int
    failures: int


class Lookups(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ids of training batches. without_row: of all of them, those that had no row because there was no memory for one:
    the model has learnt nothing of them there. Ids that are not admitted yet do not count."""

    total: int = 0
    without_row: int = 0

    @property
    def share_without_row(self) -> float:
        return self.without_row / self.total if self.total else 0.0


class TestFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """On the test set. With several labels: means, and each label's own AUC in `auc_of_labels`."""

    auc: float | None  # None: not defined (one class only)
    logloss: float | None
    normalised_entropy: float | None
    calibration: float | None
    samples: int
    truth_auc: float | None = None  # what the planted truth itself reaches (synthetic data)
    auc_of_labels: tuple[float | None, ...] = ()


class RollBack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The run went back to a checkpoint ("": to its beginning), gave up `samples` trained since then, and left out
    positions [start, stop) of a unit; none when it went back because a host was lost."""

    epoch: int
    unit: int
    start: int
    stop: int
    checkpoint: str
    samples: int
    reason: str


class LostHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host was lost, and the run went on without it. `buckets` with `rows` were there; they were made anew from a
    checkpoint ("": from their initial rows), which holds `rows_restored` of them. What `samples` samples, all that were
    trained since that checkpoint, had taught these rows is rolled back; all other rows and the dense part kept it."""

    name: str
    reason: str
    buckets: int
    rows: int
    checkpoint: str
    rows_restored: int = 0
    samples: int = 0


class ProcessCounts(msgspec.Struct, frozen=True):
    """workers, servers: of the last plan."""

    workers: int
    servers: int
    restarts: int


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended. `status`: done | stopped (resumable) | killed (asked twice) | quarantined (done, but for
    samples on which workers kept dying) | incomplete (done, but more lookups than `resources.most_without_row` found no
    row for want of memory) | failed."""

    schema: str = "elastichost/v1"
    status: RunOutcome
    exit_code: int
    run_dir: str
    samples: SampleCounts
    lookups: Lookups = Lookups()
    test: TestFigures | None
    samples_per_s: float  # while training
    wall_s: float
    processes: ProcessCounts
    arena_bytes: int
    peak_bytes: int = 0  # of rows and all processes together, as far as it was measured
    peak_workers: int = 0  # that it had then
    epochs: int
    torn_batches: int
    checkpoint: str = ""
    started_from: str = ""  # the checkpoint of another run that it began from, in words
    quarantined: tuple[Quarantined, ...] = ()
    rolled_back: tuple[RollBack, ...] = ()
    lost_hosts: tuple[LostHost, ...] = ()
    message: str = ""

    def to_json(self) -> dict[str, Any]:
        """The object that `run --json` prints."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built

    def to_bytes(self) -> bytes:
        """The text of `result.json`."""
        return msgspec.json.format(msgspec.json.encode(self)) + b"\n"
