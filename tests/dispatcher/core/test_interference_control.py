"""Jobs that slow each other: windows of their speed, the actions that follow, cores that are divided anew."""

from __future__ import annotations

import msgspec
import pytest

from elastichost.dispatcher.core.demands import Known
from elastichost.dispatcher.core.effects import Effect, FreezeJob, NoteEvent, ReniceJob, ResizeJob, ThawJob
from elastichost.dispatcher.core.entries import COMPUTING_NICE, JobEntry
from elastichost.dispatcher.core.interference_control import (
    LOW_NICE,
    STILL_S,
    WINDOW_S,
    InterferenceState,
    resized,
    shared,
    tended,
    windows_of,
)
from elastichost.dispatcher.facts import JobSample, Size
from elastichost.metrics import PlanStatus, ProposedPlan
from elastichost.runs.events import JobShared, JobTended
from elastichost.runs.events.text import text_of
from elastichost.tuner.colocation.facts import HostCapacity, PlacedJob, Placement
from elastichost.tuner.colocation.ledger import HostLedger, admit
from tests.dispatcher.jobs import MB, POWER, examined, look, request, seen

ROOM = HostCapacity(4, 10_000 * MB)
CORES = (0, 1, 2, 3)
LEDGER = HostLedger(ROOM)
MEASURED = Known(worker_cpu_s=1e-3, all_cpu_s=1.1e-3, seconds=30.0)  # a worker alone trains 1000 samples/s


def job(
    name: str, mode: int = 0, *, most: int = 1, known: Known = MEASURED, since_s: float = 0.0, memory_mb: int = 500
) -> JobEntry:
    """Returns a running job that has no look yet."""
    one = JobEntry(request(name), 0.0, state="running", examined=examined(name, most=most), known=known)
    demand = one.demand(POWER)
    one.placed = PlacedJob(demand, Placement(mode), 1200 * MB, since_s=since_s)
    one.seen, one.cores, one.admitted_bytes = seen(name, memory_mb=memory_mb), CORES, 1200 * MB
    return one


def looked_at(one: JobEntry, now_s: float, speed: float = 1.0, host_share: float = 1.0) -> None:
    """Gives the job a look. speed: share of its speed alone."""
    assert one.placed is not None
    samples = 2.0 * speed * one.placed.mode.samples_per_s
    one.look = JobSample(2.0, samples, samples * 1e-3, samples * 1.1e-3, one.placed.mode.workers, host_share)
    one.look_s = now_s


def kinds(effects: tuple[Effect, ...]) -> list[type]:
    """Returns the types of all effects but journal lines."""
    return [type(effect) for effect in effects if not isinstance(effect, NoteEvent)]


# --- windows ----------------------------------------------------------------------------------------------------------


def window_of(one: JobEntry, now_s: float) -> float | None:
    """The speed in the job's window."""
    (window,) = windows_of([one], ROOM, now_s)
    return window.speed


def test_a_window_has_the_speed_of_a_steady_job_with_a_recent_look() -> None:
    one = job("a")
    assert window_of(one, 10.0) is None, "the job has no look yet"
    looked_at(one, 10.0, 0.6)
    assert window_of(one, 10.0) == pytest.approx(0.6)
    assert window_of(one, 15.0) is None, "the look is too old"
    assert window_of(one, 11.0) == pytest.approx(0.6)
    young = job("a", since_s=9.0)
    looked_at(young, 10.0, 0.6)
    assert window_of(young, 10.0) is None, "the first seconds of a job do not count as its speed"
    one.state = "paused"
    assert window_of(one, 10.0) is None
    guessed = job("a", known=Known(1e-3, 1.1e-3))
    looked_at(guessed, 10.0, 0.6)
    assert window_of(guessed, 10.0) is None, "its speed alone was not measured"


def test_a_job_that_starts_or_stops_is_not_acted_on() -> None:
    """A pause would have no effect, but feedback would count it as done."""
    for state in ("starting", "stopping"):
        newest = job("newest", since_s=5.0, memory_mb=9000)
        newest.state = state  # type: ignore[assignment]
        effects, _ = tended(InterferenceState(), [job("a"), job("b", since_s=1.0), newest], ROOM, 9900 * MB, 10.0)
        assert [effect for effect in effects if isinstance(effect, FreezeJob)] == [FreezeJob("b")]
    leaving = job("a")
    leaving.state, leaving.stop_cause = "stopping", "evict"
    assert window_of(leaving, 10.0) is None, (
        "an evicted job has a window, because its memory will be freed, but no speed"
    )


def test_a_window_has_the_excess_and_whether_the_job_can_shrink() -> None:
    (window,) = windows_of([job("a", 1, most=2, memory_mb=1500)], ROOM, 10.0)
    assert (window.over_bytes, window.can_shrink, window.kind) == (300 * MB, True, "dense")
    (window,) = windows_of([job("a", memory_mb=100)], ROOM, 10.0)
    assert (window.over_bytes, window.can_shrink) == (0, False)


def test_cores_that_no_job_uses_lower_the_predicted_speed() -> None:
    """All cores are busy, and the second job uses 30 % of them; so feedback does not act on it."""
    alone, beside = job("a", most=4, mode=3), job("b", most=4, mode=3)
    looked_at(alone, 10.0, 1.0, host_share=0.3)
    looked_at(beside, 10.0, 0.3, host_share=1.0)
    (window,) = windows_of([alone], ROOM, 10.0)
    assert window.predicted == pytest.approx(1.0, abs=0.01)
    (window,) = windows_of([beside], ROOM, 10.0)
    assert window.predicted < 0.7


# --- actions ----------------------------------------------------------------------------------------------------------


def test_jobs_at_their_predicted_speed_are_left_alone() -> None:
    state, jobs = InterferenceState(), [job("a"), job("b")]
    for now_s in range(1, 40):
        for one in jobs:
            looked_at(one, float(now_s), 0.95, host_share=0.6)
        effects, evicted = tended(state, jobs, ROOM, 1000 * MB, float(now_s))
        assert (kinds(effects), evicted) == ([], ())
    assert state.next_s == 37 + WINDOW_S, "each window begins when the one before ends"


def crowded(state: InterferenceState, jobs: list[JobEntry], until_s: int, speed: float = 0.15) -> list[Effect]:
    """Tends jobs of which the first is far slower than predicted and the others are not. Returns the effects."""
    effects: list[Effect] = []
    for now_s in range(10, until_s):
        for one in jobs:
            looked_at(one, float(now_s), speed if one is jobs[0] else 0.9, host_share=0.6)
        found, _ = tended(state, jobs, ROOM, 1000 * MB, float(now_s))
        effects += found
    return effects


def test_the_newest_job_loses_a_worker_and_then_cpu_weight_and_computes_on() -> None:
    first, newest = job("first", since_s=0.0), job("newest", 1, most=2, since_s=1.0)
    effects = crowded(InterferenceState(), [first, newest], 90)
    done = [effect for effect in effects if not isinstance(effect, NoteEvent)]
    assert done == [ResizeJob("newest", size=Size(1, 1, 1)), ReniceJob("newest", LOW_NICE)]
    assert (newest.state, newest.nice) == ("running", LOW_NICE)
    assert newest.placed is not None and newest.placed.mode.workers == 1
    events = [effect.event for effect in effects if isinstance(effect, NoteEvent)]
    told = [(event.job, event.action) for event in events if isinstance(event, JobTended)]
    assert len(events) == 2 and told == [("newest", "shrink"), ("newest", "lower")]
    assert text_of(events[0]).startswith("shrink newest: ")
    assert first.state == "running"


def test_a_job_gets_weight_and_workers_back_at_once_when_the_other_is_gone() -> None:
    state = InterferenceState()
    first, newest = job("first", since_s=0.0), job("newest", 1, most=2, since_s=1.0)
    crowded(state, [first, newest], 60)
    assert newest.nice == LOW_NICE
    effects: list[Effect] = []
    for now_s in range(60, 70):
        looked_at(newest, float(now_s), 1.0, host_share=0.3)
        found, _ = tended(state, [newest], ROOM, 100 * MB, float(now_s))
        effects += found
    done = [effect for effect in effects if not isinstance(effect, NoteEvent)]
    assert done == [ReniceJob("newest", COMPUTING_NICE), ResizeJob("newest", size=Size(2, 1, 1))]


def test_a_job_that_was_lowered_and_then_paused_resumes_with_its_own_weight() -> None:
    state = InterferenceState()
    first, newest = job("first", since_s=0.0), job("newest", since_s=1.0, memory_mb=9000)
    crowded(state, [first, newest], 40)
    assert newest.nice == LOW_NICE
    effects, _ = tended(state, [first, newest], ROOM, 9990 * MB, 60.0)
    assert (kinds(effects), newest.state) == ([FreezeJob], "paused")
    effects, _ = tended(state, [newest], ROOM, 9000 * MB, 70.0)
    assert [one for one in effects if not isinstance(one, NoteEvent)] == [
        ReniceJob("newest", COMPUTING_NICE),
        ThawJob("newest"),
    ]
    assert (newest.state, newest.nice) == ("running", COMPUTING_NICE)


def test_when_memory_is_short_the_job_above_its_charge_is_paused_and_then_evicted() -> None:
    state, jobs = InterferenceState(), [job("a", since_s=5.0), job("liar", memory_mb=9000)]
    effects, evicted = tended(state, jobs, ROOM, 9900 * MB, 10.0)
    assert (kinds(effects), evicted) == ([FreezeJob], ())
    assert jobs[1].state == "paused"
    effects, evicted = tended(state, jobs, ROOM, 9900 * MB, 14.0)
    assert evicted == ("liar",)


# --- cores ------------------------------------------------------------------------------------------------------------


def test_a_resize_has_only_what_changes() -> None:
    one = job("a", most=3)
    assert list(resized(one, 2, None)) == [ResizeJob("a", size=Size(3, 1, 1), cores=None)]
    assert one.placed is not None and one.placed.mode.workers == 3
    assert list(resized(one, 2, (1, 2))) == [ResizeJob("a", size=None, cores=(1, 2))]
    assert one.cores == (1, 2)


def test_measured_jobs_of_open_size_get_cores_of_their_own() -> None:
    jobs = [job("a", most=2), job("b", most=2)]
    effects = shared(InterferenceState(), jobs, CORES, LEDGER, POWER, 10.0)
    resizes = {effect.job: effect for effect in effects if isinstance(effect, ResizeJob)}
    cores = [one.cores for one in jobs]
    assert set(resizes) == {"a", "b"}
    assert [len(own) for own in cores] == [2, 2]
    assert sorted(cores[0] + cores[1]) == list(CORES)
    assert all(one.placed is not None and one.placed.mode.workers == 2 for one in jobs)
    notes = [effect.event for effect in effects if isinstance(effect, NoteEvent)]
    given = {event.job: event.cores for event in notes if isinstance(event, JobShared)}
    assert len(given) == len(notes) == 2
    assert given == {one.job: one.cores for one in jobs}
    for event in notes:
        assert f"on cores {', '.join(map(str, given[event.subject]))}: " in text_of(event)


def test_no_job_gets_more_workers_than_the_ledger_has_memory_for() -> None:
    """The charge is 1200 of 1300 MB; a second worker would need 1800 MB."""
    one = job("a", most=2)
    assert one.placed is not None
    heavy = tuple(
        msgspec.structs.replace(mode, memory_bytes=900 * mode.workers * MB) for mode in one.placed.demand.modes
    )
    one.placed = msgspec.structs.replace(one.placed, demand=msgspec.structs.replace(one.placed.demand, modes=heavy))
    full = admit(HostLedger(HostCapacity(4, 1300 * MB)), one.placed)
    shared(InterferenceState(), [one], CORES, full, POWER, 10.0)
    assert one.placed is not None and one.placed.mode.workers == 1
    shared(InterferenceState(), [one], CORES, LEDGER, POWER, 10.0)
    assert one.placed is not None and one.placed.mode.workers == 2


def test_cores_stay_for_a_while_and_do_not_change_without_a_reason() -> None:
    state, jobs = InterferenceState(), [job("a", most=2), job("b", most=2)]
    assert shared(state, jobs, CORES, LEDGER, POWER, 10.0)
    assert shared(state, jobs, CORES, LEDGER, POWER, 10.0 + STILL_S / 2) == ()
    assert shared(state, jobs, CORES, LEDGER, POWER, 11.0 + STILL_S) == ()


def test_cores_that_a_job_just_got_are_not_given_to_another() -> None:
    state, first = InterferenceState(), [job("a", most=2), job("b", most=2)]
    shared(state, first, CORES, LEDGER, POWER, 10.0)
    newcomer = job("c", most=2)
    jobs = [*first, newcomer]
    shared(state, jobs, CORES, LEDGER, POWER, 11.0)
    assert (len(first[0].cores), len(first[1].cores), newcomer.cores) == (2, 2, CORES), (
        "the new job runs on all cores meanwhile"
    )
    shared(state, jobs, CORES, LEDGER, POWER, 11.0 + STILL_S)
    assert sorted(core for one in jobs for core in one.cores) == list(CORES)


@pytest.mark.parametrize("why", ["fixed size", "not measured", "not running"])
def test_a_job_that_cannot_be_resized_gets_no_cores_of_its_own(why: str) -> None:
    one = job("a") if why == "fixed size" else job("a", most=2, known=Known(1e-3, 1.1e-3))
    if why == "not running":
        one = job("a", most=2)
        one.state = "stopping"
    assert shared(InterferenceState(), [one], CORES, LEDGER, POWER, 10.0) == ()


def test_a_job_that_waits_for_its_input_runs_on_all_cores() -> None:
    waiting = job("a", most=2, known=Known(1e-3, 1.1e-3, reader_samples_per_s=20.0, seconds=30.0))
    assert waiting.placed is not None and waiting.placed.demand.kind == "input"
    computing = job("b", most=4)
    shared(InterferenceState(), [waiting, computing], CORES, LEDGER, POWER, 10.0)
    assert waiting.cores == CORES
    assert computing.cores == CORES


def test_a_look_without_samples_has_speed_0() -> None:
    one = job("a")
    one.look, one.look_s = look(samples=0.0), 10.0
    assert window_of(one, 10.0) == 0.0, "a job that trains nothing is slow"


def test_a_job_whose_source_has_stalled_has_no_speed() -> None:
    """No other job slows it, so none may be acted on for it."""
    one = job("a")
    one.look, one.look_s = msgspec.structs.replace(look(samples=0.0), input_wait_s=1.9), 10.0
    assert window_of(one, 10.0) is None


def test_the_division_of_cores_does_not_give_back_what_feedback_took() -> None:
    state = InterferenceState()
    first, newest = job("first", since_s=0.0), job("newest", 1, most=2, since_s=1.0)
    crowded(state, [first, newest], 30)
    assert newest.placed is not None and newest.placed.mode.workers == 1
    shared(state, [newest], CORES, LEDGER, POWER, 100.0)
    assert newest.placed.mode.workers == 1
    shared(InterferenceState(), [newest], CORES, LEDGER, POWER, 100.0)
    assert newest.placed.mode.workers == 2


# --- proposals of the jobs' own tuners --------------------------------------------------------------------------------


def proposing(name: str, wanted: PlanStatus, present: PlanStatus | None = None, *, most: int = 2) -> JobEntry:
    """Returns a job with its largest number of workers on all cores, whose run proposes a plan. present: the plan for
    which it proposes it; None: the one that it has."""
    one = job(name, most - 1, most=most)
    has = PlanStatus(most, 1, 1)
    assert one.seen is not None and one.seen.status is not None
    proposal = ProposedPlan(present or has, wanted, "try", "it may be faster")
    status = msgspec.structs.replace(one.seen.status, plan=has, proposal=proposal)
    one.seen = msgspec.structs.replace(one.seen, status=status)
    return one


def given(one: JobEntry, state: InterferenceState | None = None, now_s: float = 10.0) -> list[Effect]:
    """Divides the cores of a host with as many cores as the job has workers. Returns the effects."""
    assert one.placed is not None
    cores = tuple(range(one.placed.mode.workers))
    one.cores = cores
    return list(shared(state or InterferenceState(), [one], cores, LEDGER, POWER, now_s))


def test_what_a_job_s_own_tuner_proposes_is_granted_within_its_cores() -> None:
    one = proposing("a", PlanStatus(1, 3, 2))
    assert one.own_tuner == "its tuner proposes 1 worker x 2 cores, 3 PS: it may be faster"
    told, resize = given(one)
    assert resize == ResizeJob("a", size=Size(1, 3, 2), is_proposal=True)
    assert isinstance(told, NoteEvent) and isinstance(told.event, JobShared)
    assert (told.event.size, "its own tuner proposes it" in told.event.reason) == ("1 worker x 2 cores, 3 PS", True)
    assert one.placed is not None
    mode = one.placed.mode
    assert (mode.workers, mode.servers, mode.worker_cores) == (1, 3, 2)
    one.replaced(POWER)
    assert one.placed is not None and one.placed.mode == mode, "the dispatcher plans with it from now on"
    assert one.own_tuner == "its tuner has got 1 worker x 2 cores, 3 PS, as it proposed"


def test_a_proposal_that_needs_more_cores_or_memory_is_not_granted() -> None:
    assert given(proposing("a", PlanStatus(2, 1, 2))) == []
    assert given(proposing("a", PlanStatus(3, 1, 1))) == []
    assert given(proposing("a", PlanStatus(2, 2, 1)))
    one = proposing("a", PlanStatus(2, 1, 1), PlanStatus(1, 1, 2), most=2)
    assert one.placed is not None
    one.placed = msgspec.structs.replace(one.placed, placement=Placement(0))
    one.examined = msgspec.structs.replace(one.examined, threads=2)
    assert one.becomes(Size(1, 1, 2), POWER) and one.proposal is not None
    heavy = tuple(
        msgspec.structs.replace(mode, memory_bytes=900 * mode.workers * MB) for mode in one.placed.demand.modes
    )
    one.placed = msgspec.structs.replace(one.placed, demand=msgspec.structs.replace(one.placed.demand, modes=heavy))
    full = admit(HostLedger(HostCapacity(4, 1300 * MB)), one.placed)
    cores = (0, 1)
    one.cores = cores
    assert shared(InterferenceState(), [one], cores, full, POWER, 10.0) == ()


def test_a_proposal_for_another_size_than_the_job_has_is_stale() -> None:
    one = proposing("a", PlanStatus(1, 3, 2), PlanStatus(1, 1, 1))
    assert one.proposal is None and one.own_tuner == ""
    assert given(one) == []
    one = proposing("a", PlanStatus(2, 2, 1))
    assert given(one, state := InterferenceState())
    assert given(one, state, 11.0 + STILL_S) == [], "its status is from before the grant"


def test_a_job_that_gets_other_cores_does_not_get_its_proposal() -> None:
    """It was measured with the cores until now."""
    jobs = [proposing("a", PlanStatus(2, 2, 1)), job("b", most=2)]
    effects = shared(InterferenceState(), jobs, CORES, LEDGER, POWER, 10.0)
    resizes = {effect.job: effect for effect in effects if isinstance(effect, ResizeJob)}
    assert resizes["a"].cores is not None and not resizes["a"].is_proposal


def test_a_granted_size_stays_until_the_run_has_measured_it() -> None:
    one, state = proposing("a", PlanStatus(1, 2, 1)), InterferenceState()
    cores = (0, 1)
    one.cores = cores
    assert shared(state, [one], cores, LEDGER, POWER, 10.0)
    assert one.seen is not None and one.seen.status is not None
    status = msgspec.structs.replace(one.seen.status, plan=PlanStatus(1, 2, 1), proposal=None, is_measured=False)
    one.seen = msgspec.structs.replace(one.seen, status=status)
    one.replaced(POWER)
    assert one.is_tried and one.own_tuner == "its tuner measures 1 worker, 2 PS, as it proposed"
    sizes = [one.size for one in shared(state, [one], cores, LEDGER, POWER, 20.0) if isinstance(one, ResizeJob)]
    assert sizes == [None], "one worker needs only one core, but it stays one worker"
    one.seen = msgspec.structs.replace(one.seen, status=msgspec.structs.replace(status, is_measured=True))
    (_, back) = shared(state, [one], cores, LEDGER, POWER, 30.0)
    assert isinstance(back, ResizeJob) and back.size == Size(2, 2, 1), (
        "the dispatcher believes that two workers are faster"
    )
