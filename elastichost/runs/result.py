"""The result of a run: `result.json`, and the object that `run --json` prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from elastichost.run_files import RESULT_FILE

__all__ = [
    "BestCheckpoint",
    "Lookups",
    "LostHost",
    "ProcessCounts",
    "Quarantined",
    "RollBack",
    "RunOutcome",
    "RunResult",
    "SampleCounts",
    "TestFigures",
    "read_json",
    "read_result",
]

Read = TypeVar("Read")
RunOutcome = Literal["done", "stopped", "killed", "quarantined", "incomplete", "failed"]


class SampleCounts(msgspec.Struct, frozen=True):
    """Numbers of positions over all epochs. trained + skipped + quarantined == planned when a run is done."""

    planned: int
    trained: int
    skipped: int
    quarantined: int


class Quarantined(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Positions [start, stop) of a unit that are no longer trained, because `failures` workers died while training
    them, or because they caused a roll back."""

    epoch: int
    unit: int
    start: int
    stop: int
    failures: int


class Lookups(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lookups of ids in training batches. total: all lookups; without_row: lookups that found no row because memory was
    full, so the batch did not train that id. Ids that are not admitted yet do not count."""

    total: int = 0
    without_row: int = 0

    @property
    def share_without_row(self) -> float:
        return self.without_row / self.total if self.total else 0.0


class TestFigures(msgspec.Struct, frozen=True, omit_defaults=True):
    """Metrics on the test set. With several labels they are means over the labels, and `auc_of_labels` has the AUC of
    each label. metrics: the figures of `evaluate.metrics` that have no field here, by their names; with several labels
    also "NAME[LABEL]" of every metric and label."""

    auc: float | None  # None: not defined, because all samples have the same class
    logloss: float | None
    normalised_entropy: float | None
    calibration: float | None
    samples: int
    truth_auc: float | None = None  # AUC of the model that generated the labels (synthetic data only)
    auc_of_labels: tuple[float | None, ...] = ()
    metrics: dict[str, float | None] = {}

    def figure(self, name: str) -> float | None:
        """The figure of this name; None: it is not defined, or the job does not compute it."""
        own: dict[str, float | None] = {
            "auc": self.auc,
            "logloss": self.logloss,
            "normalised_entropy": self.normalised_entropy,
            "calibration": self.calibration,
        }
        return own.get(name, self.metrics.get(name))


class BestCheckpoint(msgspec.Struct, frozen=True):
    """The checkpoint with the weights of the best evaluation. path: its directory. samples: trained until then."""

    path: str
    figure: str
    value: float
    samples: int


class RollBack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A roll back to a checkpoint ("": to the beginning of the run). The training of `samples` samples since then is
    lost. Positions [start, stop) of the unit are left out from then on; the range is empty if a lost host caused the
    roll back."""

    epoch: int
    unit: int
    start: int
    stop: int
    checkpoint: str
    samples: int
    reason: str


class LostHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host was lost, and the run continued without it. The host had `buckets` buckets with `rows` rows. They were
    restored from a checkpoint ("": with initial values), with `rows_restored` rows. These rows lose the updates of the
    `samples` samples trained since that checkpoint; all other rows and the dense part keep them."""

    name: str
    reason: str
    buckets: int
    rows: int
    checkpoint: str
    rows_restored: int = 0
    samples: int = 0


class ProcessCounts(msgspec.Struct, frozen=True):
    """workers, servers: size of the last plan. restarts: processes that were started again."""

    workers: int
    servers: int
    restarts: int


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended. `status`: done | stopped (can be resumed) | killed (by a second stop signal) | quarantined
    (done, except for samples on which several workers died) | incomplete (done, but the share of lookups without a row
    was above `resources.most_without_row`) | failed."""

    schema: str = "elastichost/v1"
    status: RunOutcome
    exit_code: int
    run_dir: str
    samples: SampleCounts
    lookups: Lookups = Lookups()
    test: TestFigures | None
    samples_per_s: float  # mean over the time in which the run trained
    wall_s: float
    processes: ProcessCounts
    arena_bytes: int
    peak_bytes: int = 0  # highest measured memory of rows and all processes together
    peak_workers: int = 0  # number of workers at that time
    epochs: int
    torn_batches: int
    checkpoint: str = ""
    best: BestCheckpoint | None = None  # by `checkpoint.keep_best`
    started_from: str = ""  # description of the checkpoint of another run that it started from
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

    @property
    def is_resumable(self) -> bool:
        """Whether `resume` continues the run: it was stopped, or it ended otherwise after a checkpoint."""
        return self.status == "stopped" or (self.status in ("killed", "failed") and bool(self.checkpoint))


def read_result(run_dir: Path) -> RunResult | None:
    """The result of a run; None while it has none, or if the file is damaged."""
    return read_json(run_dir / RESULT_FILE, RunResult)


def read_json(path: Path, kind: type[Read]) -> Read | None:
    """The content of a JSON file; None: it does not exist, or is damaged or incomplete."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
