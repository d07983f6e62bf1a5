"""A line of journal.jsonl: an event, when it was, and what caused it. Pure values."""

from __future__ import annotations

from typing import Any

import msgspec

from elastichost.plan import ProcessId
from elastichost.runs.events.buckets import (
    BalancingOff,
    BucketsMoved,
    BucketsMoving,
    BucketsStay,
    HandoverReverted,
    HandoverStarted,
    MoveAborted,
    ShardMapPublished,
)
from elastichost.runs.events.checkpoints import (
    CheckpointAbandoned,
    CheckpointFailed,
    CheckpointMirrored,
    CheckpointStarted,
    CheckpointWritten,
    MirrorFailed,
    MirrorMissing,
    MirrorUnfinished,
)
from elastichost.runs.events.data import (
    BatchTorn,
    EvaluationFinished,
    EvaluationStarted,
    LeaseGranted,
    LeasesFolded,
    LeasesSettled,
    MicroBatchesAssigned,
    PositionsLeftOut,
    SamplesQuarantined,
)
from elastichost.runs.events.hosts import (
    HostJoinAbandoned,
    HostJoinAsked,
    HostJoined,
    HostLost,
    HostsFileNotWritten,
    RowsRolledBack,
)
from elastichost.runs.events.jobs import (
    HostPrepared,
    HostStopping,
    HostWarned,
    JobCancelled,
    JobDone,
    JobExamined,
    JobFailed,
    JobMemoryActed,
    JobRequeued,
    JobShared,
    JobStarted,
    JobStopped,
    JobStopping,
    JobSubmitted,
    JobTended,
    JobWarned,
)
from elastichost.runs.events.memory import (
    LookupsWithoutRow,
    MemoryActed,
    MemoryActionMeasured,
    MemoryBudgetLent,
    MemoryBudgetSet,
    MemoryForecastFailed,
    MemoryFreed,
    MemoryFull,
    MemoryMoveRefused,
    MemoryWarned,
)
from elastichost.runs.events.plan import PlanChanged, PlanReached, TunerDecided, TunerFailed, TunerOff, TunerOnlyWatches
from elastichost.runs.events.processes import (
    ForkServerLost,
    ForkServerReady,
    ForkServerThreads,
    ProcessConnected,
    ProcessDraining,
    ProcessEnded,
    ProcessKilling,
    ProcessLost,
    ProcessReady,
    ProcessRepinned,
    ProcessRepinning,
    ProcessReported,
    ProcessSlow,
    ProcessStarted,
    ProcessStartFailed,
    ProcessStarting,
    ProcessStopping,
    ProcessUnreachable,
    ReportNotKept,
)
from elastichost.runs.events.run import (
    ArenaOpened,
    ArenaRejected,
    ArenaReused,
    CommandRefused,
    DirectoryLeftBehind,
    DirectoryNotRemoved,
    DiskFreed,
    DiskFull,
    EarlyStopped,
    EpochStarted,
    HistoryUnavailable,
    MessageRefused,
    ProcessesKilled,
    RecordingStopped,
    RollBackRefused,
    RolledBack,
    RunEnded,
    RunFailed,
    RunFinishing,
    RunStarted,
    StartedFromCheckpoint,
    SupervisorStalled,
    Warned,
)

__all__ = ["AnyEvent", "JournalLine"]

AnyEvent = (
    RunStarted
    | RunEnded
    | RunFailed
    | RunFinishing
    | EpochStarted
    | EarlyStopped
    | ArenaOpened
    | ArenaReused
    | ArenaRejected
    | StartedFromCheckpoint
    | RolledBack
    | RollBackRefused
    | SupervisorStalled
    | ProcessesKilled
    | DirectoryLeftBehind
    | DirectoryNotRemoved
    | DiskFull
    | DiskFreed
    | RecordingStopped
    | HistoryUnavailable
    | MessageRefused
    | CommandRefused
    | Warned
    | ForkServerReady
    | ForkServerThreads
    | ForkServerLost
    | ProcessStarting
    | ProcessStarted
    | ProcessStartFailed
    | ProcessConnected
    | ProcessReady
    | ProcessEnded
    | ProcessLost
    | ProcessReported
    | ReportNotKept
    | ProcessKilling
    | ProcessDraining
    | ProcessStopping
    | ProcessRepinning
    | ProcessRepinned
    | ProcessSlow
    | ProcessUnreachable
    | PlanChanged
    | PlanReached
    | TunerDecided
    | TunerOff
    | TunerOnlyWatches
    | TunerFailed
    | LeaseGranted
    | LeasesFolded
    | LeasesSettled
    | BatchTorn
    | SamplesQuarantined
    | PositionsLeftOut
    | MicroBatchesAssigned
    | EvaluationStarted
    | EvaluationFinished
    | CheckpointStarted
    | CheckpointWritten
    | CheckpointFailed
    | CheckpointAbandoned
    | CheckpointMirrored
    | MirrorFailed
    | MirrorUnfinished
    | MirrorMissing
    | HandoverStarted
    | HandoverReverted
    | ShardMapPublished
    | BucketsMoving
    | BucketsMoved
    | MoveAborted
    | BucketsStay
    | BalancingOff
    | MemoryBudgetSet
    | MemoryBudgetLent
    | MemoryActed
    | MemoryWarned
    | MemoryActionMeasured
    | MemoryMoveRefused
    | MemoryFull
    | MemoryFreed
    | MemoryForecastFailed
    | LookupsWithoutRow
    | HostJoinAsked
    | HostJoinAbandoned
    | HostJoined
    | HostLost
    | RowsRolledBack
    | HostsFileNotWritten
    | HostPrepared
    | HostStopping
    | HostWarned
    | JobSubmitted
    | JobWarned
    | JobExamined
    | JobStarted
    | JobDone
    | JobCancelled
    | JobStopping
    | JobStopped
    | JobRequeued
    | JobFailed
    | JobMemoryActed
    | JobTended
    | JobShared
)


class JournalLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """cause: the command, the loss of a process or of a host, the decision or the checkpoint from which the event
    follows: all lines with the same cause tell one story. "": nothing but the passing of time."""

    time_utc: str  # ISO 8601, to the millisecond
    monotonic_s: float  # of the machine that wrote it
    event: AnyEvent
    cause: str = ""

    @property
    def kind(self) -> str:
        return self.event.kind

    def flat(self) -> dict[str, Any]:
        """As `events --json` prints it, without its sentence: time_utc, monotonic_s, cause, kind, category, process
        (the subject's name, ""), and the event's other fields in `data`; of a process the incarnation is among
        these."""
        data: dict[str, Any] = msgspec.to_builtins(self.event)
        del data["kind"]
        process = getattr(self.event, "process", "")
        if isinstance(process, ProcessId):
            data = {"incarnation": process.incarnation, **data}
        for name in ("process", "job"):
            data.pop(name, None)
        return {
            "time_utc": self.time_utc,
            "monotonic_s": self.monotonic_s,
            "cause": self.cause,
            "kind": self.kind,
            "category": self.event.category,
            "process": self.event.subject,
            "data": data,
        }
