"""What the journal tells a supervisor that resumes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from elastichost.metrics import JournalEvent
from elastichost.supervisor.judging import JudgeMemory
from elastichost.supervisor.ledger_facts import DataSize, Quarantined
from elastichost.supervisor.recollection import EndedSize, Lineage, Recollection, TornLife, recollect


def event(kind: str, process: str = "", **data: Any) -> JournalEvent:
    return JournalEvent("2026-01-01T00:00:00.000Z", 0.0, kind, kind, process, data)


def arena(path: str, origin: str = "new", lineage: Lineage | None = None) -> JournalEvent:
    return event("arena", path=path, origin=origin, lineage=msgspec.to_builtins(lineage))


def lease(number: int, epoch: int = 0, process: str = "worker-0", life: int = 1) -> JournalEvent:
    return event("lease", process, lease=number, epoch=epoch, unit=0, start=0, stop=4, life=life)


DATA = DataSize(80, 2)
ENTRY = Quarantined(0, 1, 0, 4, 3)
MEMORY = JudgeMemory(evaluated_at=40, best=0.7, without_better=1)
STORY = (
    event("run_started"),
    event("process_started", "server-0", pid=7, life=1),
    arena("/one", lineage=Lineage(DATA)),
    event("shard_map", epoch=2),
    lease(1),
    lease(2, 1, "worker-1", 3),
    event("process_lost", "worker-1", code=-9, life=3, pid=8),
    event("torn_batch", "worker-1", life=3),
    event("quarantine", "worker-1", **msgspec.to_builtins(ENTRY)),
    event("evaluation", memory=msgspec.to_builtins(MEMORY)),
)


def test_an_empty_journal_tells_nothing() -> None:
    assert recollect(()) == Recollection()


def test_everything_of_the_present_arena_is_known() -> None:
    known = recollect(STORY)
    assert (known.arena, known.is_whole, known.has_ended, known.next_lease_id) == ("/one", True, False, 3)
    assert known.lives == {"server-0": 1, "worker-0": 1, "worker-1": 3}
    assert known.lives_of("worker") == ((0, 1), (1, 1), (1, 2), (1, 3))
    assert known.lineage == Lineage(DATA, 1, (ENTRY,), False, MEMORY, (TornLife(1, 3),))


def test_an_arena_that_was_taken_over_keeps_what_belongs_to_it() -> None:
    known = recollect(
        (
            *STORY,
            event("run_started"),
            arena("/one", "arena"),
            lease(9),
            event("torn_batch", "worker-0", life=4, batches=2),
        )
    )
    assert known.is_whole
    assert known.lineage.quarantined == (ENTRY,)
    assert known.lineage.torn_batches == 3
    assert known.next_lease_id == 10


def test_after_a_checkpoint_only_what_it_knew_counts_but_lives_and_leases_go_on() -> None:
    base = Lineage(DataSize(40, 1), 0, (), False, JudgeMemory(evaluated_at=7))
    known = recollect((*STORY, event("run_started"), arena("/two", "checkpoint", base)))
    assert (known.arena, known.is_whole, known.lineage) == ("/two", False, base)
    assert (known.next_lease_id, known.lives["worker-1"]) == (3, 3)
    assert recollect((*STORY, arena("/two", "checkpoint", base), event("shard_map", epoch=2))).is_whole


def test_an_early_stop_and_an_end_are_known() -> None:
    known = recollect((*STORY, event("decision", dropped=12), event("run_ended")))
    assert known.lineage.stopped_early
    assert known.has_ended
    assert not recollect((*STORY, event("run_ended"), event("run_started"))).has_ended


def test_a_journal_of_another_kind_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        recollect((event("quarantine", "worker-0", epoch="first"),))


def test_in_how_many_arenas_the_rows_were() -> None:
    assert recollect((arena("/one"),)).hosts == 1
    assert recollect((event("arena", path="/one", hosts=3), event("shard_map", epoch=2))).hosts == 3


def plan(workers: int, servers: int = 1, worker_cores: int = 1, cause: str = "") -> JournalEvent:
    return event("decision", workers=workers, servers=servers, worker_cores=worker_cores, access="direct", cause=cause)


def settled(workers: int, text: str = "tuner: 3 workers stay") -> JournalEvent:
    configuration = {"workers": workers, "servers": 1, "worker_cores": 2, "server_cores": 1}
    return JournalEvent("", 0.0, "decision", text, "", {"kind": "settle", "configuration": configuration})


def test_a_run_ended_with_its_newest_plan_that_was_more_than_a_trial() -> None:
    moved = (plan(2, cause="start"), plan(3, 2))
    assert recollect(moved).ended == EndedSize(3, 2)
    tried = (*moved, plan(4, 1, 2, cause="trial"))
    assert recollect(tried).ended == EndedSize(3, 2)
    assert recollect((*tried, settled(4))).ended == EndedSize(4, 1, 2)
    watched = settled(4, "tuner, which only watches: 4 workers stay")
    assert recollect((*tried, watched)).ended == EndedSize(3, 2)
    assert recollect((*tried, plan(0, worker_cores=0))).ended == EndedSize(3, 2), "workers were drained at its end"


def test_a_size_that_was_asked_for_stays_so_until_a_run_begins_with_another() -> None:
    asked = (plan(2, cause="start"), plan(5, 2, 1, cause="scale"))
    assert recollect(asked).ended == EndedSize(5, 2, 1, was_asked=True)
    assert recollect((*asked, plan(4, 2))).ended == EndedSize(4, 2, 1, was_asked=True), "a worker fewer, for memory"
    assert recollect((*asked, plan(5, 2, cause="scale"))).ended == EndedSize(5, 2, 1, was_asked=True)
    assert recollect((*asked, plan(2, cause="start"))).ended == EndedSize(2, 1)


def test_a_journal_that_does_not_tell_threads_tells_no_size() -> None:
    assert recollect((event("decision", workers=3, servers=1, access="direct"),)).ended is None
