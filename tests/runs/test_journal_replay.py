"""The state that a resume reads from the journal."""

from __future__ import annotations

from elastichost.plan import ProcessId
from elastichost.runs.events import (
    AnyEvent,
    ArenaOpened,
    BatchTorn,
    EarlyStopped,
    EvaluationFinished,
    JournalLine,
    LeaseGranted,
    PlanChanged,
    PlanOrigin,
    ProcessLost,
    ProcessStarted,
    RunEnded,
    RunStarted,
    SamplesQuarantined,
    ShardMapPublished,
    TunerDecided,
)
from elastichost.runs.facts import ArenaOrigin, DataSize, EvaluationMemory, Lineage, Quarantined, TornBatches
from elastichost.runs.journal_replay import EndedSize, ReplayedJournal, replay
from elastichost.tuner.facts import Configuration
from elastichost.tuner.policy.decision import Decision


def replayed(*events: AnyEvent) -> ReplayedJournal:
    return replay(JournalLine("2026-01-01T00:00:00.000Z", 0.0, event) for event in events)


def arena(path: str, origin: ArenaOrigin = "new", lineage: Lineage | None = None, hosts: int = 1) -> ArenaOpened:
    return ArenaOpened(path, (path, *(f"{path}-h{host}" for host in range(1, hosts))), 0, origin, lineage)


def lease(number: int, epoch: int = 0, process: ProcessId = ProcessId("worker", 0, 1)) -> LeaseGranted:  # noqa: B008
    return LeaseGranted(process, lease=number, epoch=epoch, unit=0, start=0, stop=4)


DATA = DataSize(80, 2)
ENTRY = Quarantined(0, 1, 0, 4, 3)
MEMORY = EvaluationMemory(evaluated_at=40, best=0.7, without_better=1)
SECOND = ProcessId("worker", 1, 3)
STARTED, ENDED = RunStarted("1", "run"), RunEnded("done")
PUBLISHED = ShardMapPublished(2, ("server-0.1",), 0, 0.0)
STORY: tuple[AnyEvent, ...] = (
    STARTED,
    ProcessStarted(ProcessId("server", 0, 1), pid=7),
    arena("/one", lineage=Lineage(DATA)),
    PUBLISHED,
    lease(1),
    lease(2, 1, SECOND),
    ProcessLost(SECOND, pid=8, code=-9, state="running", reason="signal 9"),
    BatchTorn(SECOND),
    SamplesQuarantined(ENTRY, "deaths", "worker-1"),
    EvaluationFinished(40, 10, 0.1, 0.7, 0.5, None, MEMORY, "better"),
)


def test_an_empty_journal_gives_the_initial_state() -> None:
    assert replayed() == ReplayedJournal()


def test_the_lineage_of_the_present_arena_is_complete() -> None:
    known = replayed(*STORY)
    assert (known.arena, known.is_whole, known.has_ended, known.next_lease_id) == ("/one", True, False, 3)
    assert known.incarnations == {"server-0": 1, "worker-0": 1, "worker-1": 3}
    assert known.incarnations_of("worker") == ((0, 1), (1, 1), (1, 2), (1, 3))
    assert known.lineage == Lineage(DATA, 1, (ENTRY,), False, MEMORY, (TornBatches(1, 3),))


def test_an_arena_that_was_taken_over_keeps_its_lineage() -> None:
    torn = BatchTorn(ProcessId("worker", 0, 4), batches=2)
    known = replayed(*STORY, STARTED, arena("/one", "arena"), lease(9), torn)
    assert known.is_whole
    assert known.lineage.quarantined == (ENTRY,)
    assert known.lineage.torn_batches == 3
    assert known.next_lease_id == 10


def test_a_checkpoint_replaces_the_lineage_but_incarnations_and_leases_go_on() -> None:
    base = Lineage(DataSize(40, 1), 0, (), False, EvaluationMemory(evaluated_at=7))
    known = replayed(*STORY, STARTED, arena("/two", "checkpoint", base))
    assert (known.arena, known.is_whole, known.lineage) == ("/two", False, base)
    assert (known.next_lease_id, known.incarnations["worker-1"]) == (3, 3)
    assert replayed(*STORY, arena("/two", "checkpoint", base), PUBLISHED).is_whole


def test_an_early_stop_and_an_end_are_recorded() -> None:
    known = replayed(*STORY, EarlyStopped("no better", dropped=12), ENDED)
    assert known.lineage.stopped_early
    assert known.has_ended
    assert not replayed(*STORY, ENDED, STARTED).has_ended


def test_supervisors_are_counted() -> None:
    assert replayed().supervisors == 0
    assert replayed(*STORY).supervisors == 1
    assert replayed(*STORY, ENDED, STARTED).supervisors == 2


def test_the_number_of_hosts_is_the_number_of_arenas() -> None:
    assert replayed(arena("/one")).hosts == 1
    assert replayed(arena("/one", hosts=3), PUBLISHED).hosts == 3


def plan(workers: int, servers: int = 1, worker_cores: int = 1, origin: PlanOrigin = "") -> PlanChanged:
    return PlanChanged(workers, servers, worker_cores, (), "direct", "a test", origin)


def settled(workers: int, *, only_watches: bool = False) -> TunerDecided:
    decision = Decision("settle", Configuration(workers, 1, 2, 1), f"{workers} workers stay")
    return TunerDecided(decision, only_watches=only_watches)


def test_the_ended_size_is_the_newest_plan_that_is_not_a_trial() -> None:
    moved = (plan(2, origin="start"), plan(3, 2))
    assert replayed(*moved).ended == EndedSize(3, 2)
    tried = (*moved, plan(4, 1, 2, origin="trial"))
    assert replayed(*tried).ended == EndedSize(3, 2)
    assert replayed(*tried, settled(4)).ended == EndedSize(4, 1, 2)
    assert replayed(*tried, settled(4, only_watches=True)).ended == EndedSize(3, 2)
    assert replayed(*tried, plan(0, worker_cores=0)).ended == EndedSize(3, 2), (
        "the workers were drained at the end of the run"
    )


def test_a_requested_size_counts_as_requested_until_a_supervisor_starts_with_another_plan() -> None:
    asked = (plan(2, origin="start"), plan(5, 2, 1, origin="scale"))
    assert replayed(*asked).ended == EndedSize(5, 2, 1, was_asked=True)
    assert replayed(*asked, plan(4, 2)).ended == EndedSize(4, 2, 1, was_asked=True), "one worker fewer, to save memory"
    assert replayed(*asked, plan(5, 2, origin="scale")).ended == EndedSize(5, 2, 1, was_asked=True)
    assert replayed(*asked, plan(2, origin="start")).ended == EndedSize(2, 1)
