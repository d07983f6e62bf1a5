"""Feedback: which job goes a stage down, and how it comes back: in order, with hysteresis, and always at last."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.errors import IllegalTransitionError
from elastichost.tuner.colocation.feedback import (
    Action,
    FeedbackState,
    JobFeedback,
    Pressure,
    Window,
    advance,
    speed_samples,
)
from elastichost.tuner.colocation.stages import TRANSITIONS, Stage, StageEvent, next_stage
from tests.effort import examples

WINDOW_S = 5.0
CALM = Pressure(0.5)


def window(job: str, speed: float | None = 0.9, since_s: float = 0.0, **others: object) -> Window:
    facts: dict[str, object] = {"kind": "dense", "predicted": 0.9, **others}
    return Window(job, speed=speed, since_s=since_s, **facts)  # type: ignore[arg-type]


@dataclass
class Host:
    """A host that receives windows one after the other, and records the actions."""

    state: FeedbackState = field(default_factory=FeedbackState)
    now_s: float = 0.0
    done: list[tuple[str, str]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def see(self, *windows: Window, times: int = 1, pressure: Pressure = CALM) -> list[tuple[str, str]]:
        """Sends the windows `times` times, and returns the actions."""
        before = len(self.done)
        for _ in range(times):
            self.now_s += WINDOW_S
            self.state, actions = advance(self.state, windows, pressure, self.now_s)
            self._take(actions)
        return self.done[before:]

    def _take(self, actions: tuple[Action, ...]) -> None:
        assert len(actions) <= 1
        self.done += [(one.kind, one.job) for one in actions]
        self.reasons += [one.reason for one in actions]

    def stage(self, job: str) -> Stage:
        one = self.state.of(job)
        assert one is not None
        return one.stage


def crowd(**newest: object) -> list[Window]:
    """Windows in which the old job starves and the newest does not."""
    return [window("old", 0.2), window("new", 0.9, since_s=10.0, **newest)]


# --- the table --------------------------------------------------------------------------------------------------------


def test_an_event_that_is_not_in_the_table_raises() -> None:
    with pytest.raises(
        IllegalTransitionError, match="co-location of a: event 'room' is not allowed in state 'running'"
    ):
        next_stage("a", Stage.RUNNING, StageEvent.ROOM)
    allowed = sum((stage, event) in TRANSITIONS for stage in Stage for event in StageEvent)
    assert allowed == len(TRANSITIONS) < len(Stage) * len(StageEvent)


def test_every_stage_has_a_way_down_and_a_way_back() -> None:
    down = {
        StageEvent.CROWDED,
        StageEvent.CROWDED_LEAST,
        StageEvent.MEMORY,
        StageEvent.MEMORY_LEAST,
        StageEvent.CRITICAL,
        StageEvent.STUCK,
    }
    rungs = list(Stage)
    for (stage, event), (after, action) in TRANSITIONS.items():
        is_down = rungs.index(after) > rungs.index(stage)
        assert is_down == (event in down)
        assert (action is None) == (event is StageEvent.STARTED)
    for stage in set(Stage) - {Stage.EVICTED}:
        assert (stage, StageEvent.CRITICAL) in TRANSITIONS
    for stage in set(Stage) - {Stage.RUNNING, Stage.EVICTED}:
        assert (stage, StageEvent.ROOM) in TRANSITIONS


# --- crowded ----------------------------------------------------------------------------------------------------------


def test_after_three_bad_windows_the_newest_is_shrunk_then_lowered_and_never_paused() -> None:
    host = Host()
    assert host.see(*crowd(can_shrink=True), times=2) == []
    assert host.see(*crowd(can_shrink=True)) == [("shrink", "new")]
    assert host.see(*crowd(), times=2) == [], "the last action must take effect"
    assert host.see(*crowd(), times=1) == [("lower", "new")]
    assert host.see(*crowd(), times=100) == [], "no job is paused for the speed of another"
    assert host.reasons[0] == (
        "shrink new: old has 0.20 of its speed alone (0.90 was predicted), after 3 bad windows in a row; "
        "new is the newest job"
    )


def test_only_a_later_job_goes_down_and_never_a_starving_one() -> None:
    first, starves = window("first", 0.9), window("starves", 0.1, since_s=10.0)
    assert Host().see(first, starves, times=20) == []
    assert Host().see(window("old", 0.2), window("new", 0.1, since_s=10.0), times=20) == []


def test_one_worker_is_not_shrunk() -> None:
    host = Host()
    assert host.see(*crowd(), times=3) == [("lower", "new")]
    assert host.stage("new") is Stage.LOWERED


def test_bad_windows_must_be_in_a_row() -> None:
    host = Host()
    for _ in range(5):
        assert host.see(*crowd(), times=2) == []
        assert host.see(window("old", 0.8), window("new", since_s=10.0)) == []


@pytest.mark.parametrize(
    ("speed", "predicted", "is_bad"),
    [
        (0.24, 0.9, True),
        (0.26, 0.9, False),  # slower than predicted, but not starving
        (0.2, 0.3, True),
        (0.22, 0.3, False),  # nearly as predicted: it was started with a low speed
        (None, 0.9, False),
    ],
)
def test_which_windows_are_bad(speed: float | None, predicted: float, is_bad: bool) -> None:
    bad = window("old", speed, predicted=predicted)
    assert bool(Host().see(bad, window("new", since_s=1.0), times=3)) == is_bad


def test_a_single_job_is_never_bad() -> None:
    assert Host().see(window("a", 0.1), times=20) == []


def test_a_job_that_uses_more_cores_than_expected_goes_down_before_the_newest() -> None:
    host = Host()
    hog = window("hog", 0.9, since_s=5.0, use_ratio=1.6)
    assert host.see(window("old", 0.2), hog, window("new", 0.4, since_s=10.0), times=3) == [("lower", "hog")]
    assert "hog uses 1.6 times the expected cores" in host.reasons[0]


def test_on_a_gpu_the_newest_job_of_that_gpu_goes_down() -> None:
    here = [window("old", 0.2, device=0), window("mate", 0.9, since_s=5.0, device=0)]
    away = window("new", 0.9, since_s=10.0, device=1)
    assert Host().see(*here, away, times=3) == [("lower", "mate")]
    assert Host().see(here[0], away, times=3) == [("lower", "new")], "no other job is on its GPU"


# --- memory -----------------------------------------------------------------------------------------------------------


def test_if_memory_is_short_the_job_beyond_its_charge_goes_down_without_lowered() -> None:
    host, short = Host(), Pressure(0.96)
    windows = [window("liar", over_bytes=10**9, can_shrink=True), window("new", since_s=10.0)]
    assert host.see(*windows, pressure=short) == [("shrink", "liar")]
    assert host.reasons[0].endswith("96% of the memory is in use (limit 95%); liar exceeds its charge by 953.7 MiB")
    assert host.see(*windows, pressure=short) == [("pause", "liar")]
    assert host.see(*windows, pressure=short) == [("evict", "liar")]
    assert host.see(*windows, pressure=short, times=5) == [], (
        "liar frees memory soon, and new is the last that computes"
    )


def test_at_critical_memory_a_job_is_paused_at_once() -> None:
    host, last = Host(), Pressure(0.99)
    windows = [window("old"), window("new", since_s=10.0, can_shrink=True), window("third", since_s=5.0)]
    assert host.see(*windows, pressure=last) == [("pause", "new")]
    assert host.see(*windows, pressure=last) == [("evict", "new")]
    assert host.see(*windows, pressure=last) == [("pause", "third")], (
        "no second job is evicted before the first has ended"
    )
    assert host.see(*windows, pressure=last, times=4) == []


def test_the_memory_of_a_gpu_concerns_only_its_jobs() -> None:
    windows = [window("on 0", device=0), window("on 1", device=1), window("new", since_s=10.0)]
    host = Host()
    assert host.see(*windows, pressure=Pressure(0.5, (0.5, 0.97))) == [("pause", "on 1")]
    assert "97% of the memory of GPU 1" in host.reasons[0]
    assert Host().see(*windows, pressure=Pressure(0.95, (0.95, 0.95))) == []


def test_the_only_job_never_goes_down() -> None:
    assert Host().see(window("a", over_bytes=10**9), times=5, pressure=Pressure(0.99)) == []


# --- back -------------------------------------------------------------------------------------------------------------


def down_to(stage: Stage, *, shrinks: bool = False) -> Host:
    """A host with a job in this stage: lowered because another job starved, or paused because memory was short."""
    host = Host()
    for _ in range(20):
        one = host.state.of("new")
        if one is not None and one.stage is stage:
            break
        is_last = stage is Stage.PAUSED and (not shrinks or (one is not None and one.was_shrunk))
        host.see(*crowd(can_shrink=shrinks), pressure=Pressure(0.96 if is_last else 0.5))
    assert host.stage("new") is stage
    host.done.clear()
    return host


GOOD = [window("old"), window("new", since_s=10.0)]


def test_with_room_a_job_goes_up_stage_by_stage() -> None:
    host = down_to(Stage.PAUSED, shrinks=True)
    assert host.see(*GOOD, times=4) == []
    assert host.see(*GOOD) == [("resume", "new")], "after five good windows"
    assert host.see(*GOOD, times=9) == []
    assert host.see(*GOOD) == [("grow", "new")], "after ten, the second time"
    assert host.see(*GOOD, times=200) == []
    assert host.state.of("new") == JobFeedback("new", changed_s=host.state.acted_s or 0.0, beside=1, returns=2)
    host = down_to(Stage.LOWERED, shrinks=True)
    assert host.see(*GOOD, times=15) == [("raise", "new"), ("grow", "new")]


@pytest.mark.parametrize("stage", [Stage.PAUSED, Stage.LOWERED])
def test_a_job_that_was_never_shrunk_is_running_again_after_one_step(stage: Stage) -> None:
    host = down_to(stage)
    assert len(host.see(*GOOD, times=60)) == 1
    assert host.stage("new") is Stage.RUNNING


@pytest.mark.parametrize("speed", [0.26, 0.34])
def test_between_bad_and_good_there_is_no_step(speed: float) -> None:
    host = down_to(Stage.LOWERED)
    assert host.see(window("old", speed), window("new", since_s=10.0), times=60) == []


def test_while_memory_is_used_only_the_weight_is_raised() -> None:
    host = down_to(Stage.PAUSED)
    assert host.see(*GOOD, times=20, pressure=Pressure(0.9)) == []
    assert host.see(*GOOD, times=1, pressure=Pressure(0.8)) == [("resume", "new")]
    host = down_to(Stage.LOWERED)
    assert host.see(*GOOD, times=5, pressure=Pressure(0.9)) == [("raise", "new")]


def test_if_fewer_jobs_compute_the_weight_is_back_at_once_and_the_rest_sooner() -> None:
    host = Host()
    three = [window("old", 0.2), window("third"), window("new", since_s=10.0)]
    assert host.see(*three, times=3) == [("lower", "new")]
    assert host.see(window("third"), window("new", since_s=10.0)) == [("raise", "new")]
    host = Host()
    host.see(*three, times=1, pressure=Pressure(0.96))
    assert host.stage("new") is Stage.PAUSED
    left = [window("old"), window("new", None, since_s=10.0)]
    assert host.see(*left, times=2) == []
    assert host.see(*left, times=1) == [("resume", "new")]


def test_a_single_job_gets_everything_back_at_once_if_memory_is_free() -> None:
    alone = window("new", since_s=10.0)
    host = down_to(Stage.LOWERED, shrinks=True)
    assert host.see(alone, times=2) == [("raise", "new"), ("grow", "new")]
    host = down_to(Stage.PAUSED, shrinks=True)
    assert host.see(alone, times=20, pressure=Pressure(0.9)) == [("resume", "new")]
    assert host.see(alone, pressure=Pressure(0.8)) == [("grow", "new")]


def test_a_job_that_waits_for_memory_does_not_delay_one_that_waits_for_weight() -> None:
    host = down_to(Stage.LOWERED)
    windows = [*GOOD, window("third", since_s=5.0)]
    host.see(*windows)
    still = window("liar", since_s=6.0, over_bytes=10**9)
    assert host.see(*windows, still, pressure=Pressure(0.99)) == [("pause", "liar")]
    assert host.see(*windows, still, times=5, pressure=Pressure(0.9)) == [("raise", "new")]


def test_an_evicted_job_is_remembered_and_evicted_at_most_twice() -> None:
    host, full = Host(), Pressure(0.9)
    for round_ in range(3):
        windows = [window("old"), window("new", since_s=host.now_s + 1.0)]
        host.see(*windows, pressure=Pressure(0.99))
        assert host.stage("new") is Stage.PAUSED
        found = host.see(*windows, times=60, pressure=full)
        assert (("evict", "new") in found) == (round_ < 2)
        if round_ < 2:
            assert "was paused for 120 s" in host.reasons[-1]
            assert host.stage("new") is Stage.EVICTED, "it is still ending, whatever its windows are"
            host.see(window("old"), times=3, pressure=full)
            assert host.stage("new") is Stage.EVICTED, "also in the queue"
    assert host.stage("new") is Stage.PAUSED


def test_ended_jobs_are_forgotten() -> None:
    host = Host()
    host.see(window("a"), window("b"))
    host.see(window("b"))
    assert [one.job for one in host.state.jobs] == ["b"]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.none() | st.floats(0, 1), min_size=4, max_size=4),
            st.sampled_from([0.5, 0.9, 0.96, 0.99]),
            st.lists(st.booleans(), min_size=4, max_size=4),
        ),
        max_size=60,
    )
)
def test_for_any_windows_no_transition_is_illegal_and_a_job_computes(
    seen: list[tuple[list[float | None], float, list[bool]]],
) -> None:
    host = Host()
    for speeds, share, shrinks in seen:
        windows = [
            window(f"j{at}", speed, since_s=float(at), can_shrink=shrink)
            for at, (speed, shrink) in enumerate(zip(speeds, shrinks, strict=True))
        ]
        host.see(*windows, pressure=Pressure(share))
        computing = [one for one in host.state.jobs if one.stage not in (Stage.PAUSED, Stage.EVICTED)]
        assert computing, "all jobs are paused"


# --- speed samples ----------------------------------------------------------------------------------------------------


def test_speed_samples_contain_the_jobs_that_compute_together() -> None:
    host = down_to(Stage.PAUSED)
    windows = [
        window("old", 0.45, kind="dense"),
        window("other", 0.9, kind="input"),
        window("warming", None, kind="embedding"),
        window("new", None, since_s=10.0, kind="dense"),
    ]
    host.see(*windows)
    old, other = speed_samples(host.state, windows, 7.0)
    assert (old.kind, old.neighbours, old.at_s) == ("dense", ("embedding", "input"), 7.0)
    assert old.log_ratio == pytest.approx(math.log(0.5)), "compared with the model without corrections"
    assert other.neighbours == ("dense", "embedding")
