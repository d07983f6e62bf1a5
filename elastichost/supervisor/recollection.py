"""What the journal of a run tells the supervisor that resumes it. Pure: events in, facts out.

Lives, leases and roll backs are counted over the whole journal: no life or lease ever comes twice in a run. The rest
belongs to the rows in the arena: a run that went on from a checkpoint has forgotten what happened after it, and its
`arena` event says what the checkpoint knew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from elastichost.metrics import JournalEvent
from elastichost.supervisor.judging import JudgeMemory
from elastichost.supervisor.ledger_facts import DataSize, Quarantined
from elastichost.supervisor.outcome import Lookups, RollBack
from elastichost.supervisor.run import PlanCause

__all__ = ["ArenaOrigin", "EndedSize", "Lineage", "Recollection", "TornLife", "recollect"]

TUNER = "tuner: "  # so decisions begin that are followed; those of one that only watches do not

# new: filled with initial rows; checkpoint: by PS, from a checkpoint; arena: the one of a supervisor that died.
ArenaOrigin = Literal["new", "checkpoint", "arena"]


class TornLife(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A life of a worker that died within a batch: rows may hold a part of it."""

    worker: int
    life: int
    batches: int = 1  # more when commits were on the way

    def __str__(self) -> str:
        within = "a batch" if self.batches == 1 else f"{self.batches} batches"
        return f"worker-{self.worker}.{self.life} died within {within}: rows may hold a part of it"


class EndedSize(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of the newest plan that was more than a trial. was_asked: `scale` asked for it, or for one before it."""

    workers: int
    servers: int
    worker_cores: int = 1
    was_asked: bool = False


class Lineage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What belongs to the rows, beside the record of committed batches. `arena` events carry it."""

    data: DataSize = DataSize()  # that is trained
    epoch: int = 0  # the newest one that has begun
    quarantined: tuple[Quarantined, ...] = ()
    stopped_early: bool = False
    judge: JudgeMemory = JudgeMemory()
    torn: tuple[TornLife, ...] = ()
    lookups: Lookups = Lookups()  # before the arena was made
    started_from: str = ""  # the checkpoint of another run that it began from

    @property
    def torn_batches(self) -> int:
        return sum(life.batches for life in self.torn)


class Recollection(msgspec.Struct, frozen=True):
    """`arena`: path of the newest one, "" when there is none. `is_whole`: its rows were initialised or restored, or
    can be initialised by whoever comes. `has_ended`: the last supervisor ended the run itself and removed its arena.
    `hosts`: whose arenas the rows lay in. `ended`: with what the run trained at last, None: not known."""

    arena: str = ""
    hosts: int = 1
    has_ended: bool = False
    origin: ArenaOrigin = "new"
    is_whole: bool = False
    lineage: Lineage = Lineage()
    lives: Mapping[str, int] = {}  # "worker-0" -> its highest life
    next_lease_id: int = 1
    roll_backs: tuple[RollBack, ...] = ()
    ended: EndedSize | None = None

    def lives_of(self, role: str) -> tuple[tuple[int, int], ...]:
        """(index, life) of every life of a role there was."""
        found: list[tuple[int, int]] = []
        for name, highest in sorted(self.lives.items()):
            its_role, _, index = name.rpartition("-")
            if its_role == role:
                found += [(int(index), life) for life in range(1, highest + 1)]
        return tuple(found)


class _ArenaData(msgspec.Struct, frozen=True):
    path: str
    hosts: int = 1
    origin: ArenaOrigin = "new"
    lineage: Lineage | None = None


class _LeaseData(msgspec.Struct, frozen=True):
    lease: int
    epoch: int


class _FoldedData(msgspec.Struct, frozen=True):
    lives: dict[str, int]


class _LifeData(msgspec.Struct, frozen=True):
    life: int = 0


class _TornData(msgspec.Struct, frozen=True):
    life: int
    batches: int = 1


class _PlanData(msgspec.Struct, frozen=True):
    workers: int
    servers: int
    worker_cores: int = 0  # 0: of a journal that does not tell
    cause: PlanCause = ""


class _Configuration(msgspec.Struct, frozen=True):
    workers: int
    servers: int
    worker_cores: int


class _SettledData(msgspec.Struct, frozen=True):
    configuration: _Configuration


class _EvaluationData(msgspec.Struct, frozen=True):
    memory: JudgeMemory = JudgeMemory()


def recollect(events: Iterable[JournalEvent]) -> Recollection:
    """Folds a journal. Raises msgspec.ValidationError when an event is not what this version writes."""
    known, lives = Recollection(), dict[str, int]()
    for event in events:
        if event.process and event.kind in ("process_started", "process_lost", "lease"):
            life = msgspec.convert(event.data, _LifeData).life
            lives[event.process] = max(lives.get(event.process, 0), life)
        elif event.kind == "leases_folded":
            for process, life in msgspec.convert(event.data, _FoldedData).lives.items():
                lives[process] = max(lives.get(process, 0), life)
        known = _fold(known, event)
    return msgspec.structs.replace(known, lives=lives)


def _fold(known: Recollection, event: JournalEvent) -> Recollection:
    match event.kind:
        case "arena":
            return _arena(known, msgspec.convert(event.data, _ArenaData))
        case "run_started" | "run_ended":
            return msgspec.structs.replace(known, has_ended=event.kind == "run_ended")
        case "shard_map":
            return msgspec.structs.replace(known, is_whole=True)  # published when all PS have all their rows
        case "lease" | "leases_folded":
            lease = msgspec.convert(event.data, _LeaseData)
            number = max(known.next_lease_id, lease.lease + 1)
            epoch = max(known.lineage.epoch, lease.epoch)
            return _with(msgspec.structs.replace(known, next_lease_id=number), epoch=epoch)
        case "quarantine":
            given_up = msgspec.convert(event.data, Quarantined)
            return _with(known, quarantined=(*known.lineage.quarantined, given_up))
        case "torn_batch":
            data = msgspec.convert(event.data, _TornData)
            torn = TornLife(int(event.process.rpartition("-")[2]), data.life, data.batches)
            return _with(known, torn=(*known.lineage.torn, torn))
        case "evaluation":
            return _with(known, judge=msgspec.convert(event.data, _EvaluationData).memory)
        case "roll_back":
            entry = msgspec.convert(event.data, RollBack)
            return msgspec.structs.replace(known, roll_backs=(*known.roll_backs, entry), is_whole=False)
        case "decision" if "dropped" in event.data:
            return _with(known, stopped_early=True)
        case "decision" if {"workers", "servers"} <= event.data.keys():
            return msgspec.structs.replace(known, ended=_size(known.ended, msgspec.convert(event.data, _PlanData)))
        case "decision" if event.data.get("kind") == "settle" and event.text.startswith(TUNER):
            size = msgspec.convert(event.data, _SettledData).configuration
            return msgspec.structs.replace(known, ended=EndedSize(size.workers, size.servers, size.worker_cores))
        case _:
            return known


def _size(before: EndedSize | None, plan: _PlanData) -> EndedSize | None:
    if not (plan.workers and plan.worker_cores) or plan.cause == "trial":
        return before  # workers were drained because the run ends; or it is not known yet whether it is any good
    was_asked = plan.cause == "scale" or (plan.cause == "" and before is not None and before.was_asked)
    return EndedSize(plan.workers, plan.servers, plan.worker_cores, was_asked)


def _arena(known: Recollection, data: _ArenaData) -> Recollection:
    goes_on = data.origin == "arena"
    return msgspec.structs.replace(
        known,
        arena=data.path,
        hosts=data.hosts,
        origin=data.origin,
        is_whole=known.is_whole if goes_on else data.origin == "new",
        lineage=known.lineage if goes_on and data.lineage is None else data.lineage or Lineage(),
    )


def _with(known: Recollection, **changes: object) -> Recollection:
    return msgspec.structs.replace(known, lineage=msgspec.structs.replace(known.lineage, **changes))
