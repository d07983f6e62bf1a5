"""Folds the journal of a run into the state that a resume needs. Pure.

Rules:
- Incarnations, lease numbers and roll backs are counted over the whole journal. No incarnation and no lease number is
  used twice in a run.
- The `Lineage` (data, epoch, quarantined samples, torn batches, evaluations) belongs to the rows in the newest arena.

Input: the lines of journal.jsonl and leases.jsonl, in order. Output: one `ReplayedJournal`.

`replay` applies one event after the other. An `ArenaOpened` event replaces the lineage. With origin "checkpoint" or
"new" the run has dropped everything that it trained after that checkpoint, and the event contains the lineage of the
checkpoint. With origin "arena" the rows are the same as before, so the lineage stays unless the event contains one.
`is_whole` is true when all rows exist: at once for a new arena (initial rows can be computed at any time), and from the
first `ShardMapPublished` event on for an arena that is filled from a checkpoint. A roll back makes it false.

After a kill of the supervisor the journal has no `RunEnded` event, so `has_ended` is false, and the arena may still
exist with the rows that the lineage describes. Plans of origin "trial" are ignored: a resume does not start with a size
that the tuner only tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from elastichost.runs.events import (
    AnyEvent,
    ArenaOpened,
    BatchTorn,
    EarlyStopped,
    EvaluationFinished,
    JournalLine,
    LeaseGranted,
    LeasesFolded,
    PlanChanged,
    ProcessLost,
    ProcessStarted,
    ProcessStartFailed,
    RolledBack,
    RunEnded,
    RunStarted,
    SamplesQuarantined,
    ShardMapPublished,
    TunerDecided,
)
from elastichost.runs.facts import ArenaOrigin, Lineage, TornBatches
from elastichost.runs.result import RollBack

__all__ = ["EndedSize", "ReplayedJournal", "replay"]


class EndedSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Size of the newest plan that is not a trial. was_asked: a `scale` command requested this size or an earlier one
    that it replaces."""

    workers: int
    servers: int
    worker_cores: int = 1
    was_asked: bool = False


class ReplayedJournal(msgspec.Struct, frozen=True):
    """The state of a run, as its journal has it.

    arena: path of the newest arena, "" if there is none. hosts: number of hosts with an arena. is_whole: all rows of
    the arena exist, or can be initialised. has_ended: the last supervisor ended the run in order and removed its arena.
    ended: size with which the run trained last; None: not known. supervisors: number of supervisors that have worked on
    the run so far."""

    arena: str = ""
    hosts: int = 1
    has_ended: bool = False
    origin: ArenaOrigin = "new"
    is_whole: bool = False
    lineage: Lineage = Lineage()
    incarnations: Mapping[str, int] = {}  # "worker-0" -> its highest incarnation
    next_lease_id: int = 1
    roll_backs: tuple[RollBack, ...] = ()
    ended: EndedSize | None = None
    supervisors: int = 0

    def incarnations_of(self, role: str) -> tuple[tuple[int, int], ...]:
        """(index, incarnation) of every incarnation of a role ("worker", "server") so far."""
        found: list[tuple[int, int]] = []
        for name, highest in sorted(self.incarnations.items()):
            its_role, _, index = name.rpartition("-")
            if its_role == role:
                found += [(int(index), incarnation) for incarnation in range(1, highest + 1)]
        return tuple(found)


def replay(lines: Iterable[JournalLine]) -> ReplayedJournal:
    """Folds all lines of a journal, in order."""
    known, incarnations = ReplayedJournal(), dict[str, int]()
    for line in lines:
        for name, incarnation in _incarnations_of(line.event):
            incarnations[name] = max(incarnations.get(name, 0), incarnation)
        known = _fold(known, line.event)
    return msgspec.structs.replace(known, incarnations=incarnations)


def _incarnations_of(event: AnyEvent) -> Iterable[tuple[str, int]]:
    match event:
        case ProcessStarted() | ProcessStartFailed() | ProcessLost() | LeaseGranted():
            return ((event.process.name, event.process.incarnation),)
        case LeasesFolded():
            return event.incarnations.items()
        case _:
            return ()


def _fold(known: ReplayedJournal, event: AnyEvent) -> ReplayedJournal:
    match event:
        case ArenaOpened():
            return _arena(known, event)
        case RunStarted():
            return msgspec.structs.replace(known, has_ended=False, supervisors=known.supervisors + 1)
        case RunEnded():
            return msgspec.structs.replace(known, has_ended=True)
        case ShardMapPublished():
            return msgspec.structs.replace(known, is_whole=True)  # it is published when all PS have all their rows
        case LeaseGranted() | LeasesFolded():
            number = max(known.next_lease_id, event.lease + 1)
            epoch = max(known.lineage.epoch, event.epoch)
            return _with(msgspec.structs.replace(known, next_lease_id=number), epoch=epoch)
        case SamplesQuarantined():
            return _with(known, quarantined=(*known.lineage.quarantined, event.entry))
        case BatchTorn():
            torn = TornBatches(event.process.index, event.process.incarnation, event.batches)
            return _with(known, torn=(*known.lineage.torn, torn))
        case EvaluationFinished():
            return _with(known, evaluations=event.memory)
        case RolledBack():
            return msgspec.structs.replace(known, roll_backs=(*known.roll_backs, event.entry), is_whole=False)
        case EarlyStopped():
            return _with(known, stopped_early=True)
        case PlanChanged():
            return msgspec.structs.replace(known, ended=_size(known.ended, event))
        case TunerDecided(only_watches=False) if event.decision.kind == "settle":
            size = event.decision.configuration
            return msgspec.structs.replace(known, ended=EndedSize(size.workers, size.servers, size.worker_cores))
        case _:
            return known


def _size(before: EndedSize | None, plan: PlanChanged) -> EndedSize | None:
    if not (plan.workers and plan.worker_cores) or plan.origin == "trial":
        return before  # the workers were drained because the run ends, or the plan is a trial that is not settled yet
    was_asked = plan.origin == "scale" or (plan.origin == "" and before is not None and before.was_asked)
    return EndedSize(plan.workers, plan.servers, plan.worker_cores, was_asked)


def _arena(known: ReplayedJournal, event: ArenaOpened) -> ReplayedJournal:
    goes_on = event.origin == "arena"
    return msgspec.structs.replace(
        known,
        arena=event.path,
        hosts=event.hosts,
        origin=event.origin,
        is_whole=known.is_whole if goes_on else event.origin == "new",
        lineage=known.lineage if goes_on and event.lineage is None else event.lineage or Lineage(),
    )


def _with(known: ReplayedJournal, **changes: object) -> ReplayedJournal:
    return msgspec.structs.replace(known, lineage=msgspec.structs.replace(known.lineage, **changes))
