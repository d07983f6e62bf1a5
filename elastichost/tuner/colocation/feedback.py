"""Reacts to jobs that starve beside others and to a shortage of memory: shrinks, slows, pauses or evicts jobs, and
reverses that later. Pure: a state and measurements give the next state and actions.

    crowded:            shrink -> lower the weight         and back: raise the weight -> grow             (`stages`)
    short of memory:    shrink -> pause -> evict           and back: resume -> grow

Rules:
- *Crowded*: in three consecutive windows a job has less than 0.25 of its speed alone and less than 0.7 of the predicted
  speed, while other jobs compute. (If only the prediction was wrong, no job is harmed; `corrections` learns from it.)
  One job goes a stage down: the job that uses most cores beyond its expectation (above 1.3 times). Otherwise it is the
  newest job that started after the starving one, preferably one on the same device: the starving job ran well before
  that start, so this undoes the last decision. A starving job never goes down, because otherwise all jobs that one bad
  neighbour slows would go down one after another. No job is paused for the speed of others: the cores would do less
  work, and a job that waits for a GPU or a cache gains little.
- *Short of memory*: more than 95 % of the memory of the host or of a GPU is in use. The job that exceeds its charge
  most goes a stage down, otherwise the newest. The stage "lowered" is skipped, because a lower weight frees no memory.
  Above 98 % the job is paused at once without waiting, and evicted if that does not suffice. The last job that computes
  never goes down, because no other job would gain.
- *Back*: a stage up requires five consecutive good windows: all jobs have at least 0.85 of the predicted speed or 0.35
  of their speed alone. The number doubles with each earlier return of the job (at most 16 times). Except for the
  weight, less than 85 % of the memory must be in use. If fewer jobs compute than after the step down, the weight is
  raised at once and other stages need two good windows. If no other job computes, no good window is needed, and a
  paused job resumes for any use of memory.
- After a step there is no other step for 15 s (for memory: 5 s). A job that was paused for 120 s is evicted, at most
  twice: it gives its memory back and waits in the queue.

Theory of operation. The caller calls `advance` with one window of each job that holds memory, every few seconds, and
with the memory pressure. `advance` counts bad windows per job and good windows of the host, and then tries three steps
in this order: for memory, for speed, and up. It returns at most one action; the caller carries it out. The state is an
immutable value. Jobs without a window are forgotten, except evicted ones: their count of evictions is kept until they
are started again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from elastichost.human_readable import mib
from elastichost.tuner.colocation.corrections import SpeedSample
from elastichost.tuner.colocation.facts import CPU
from elastichost.tuner.colocation.stages import ActionKind, Stage, StageEvent, next_stage

__all__ = ["Action", "FeedbackState", "JobFeedback", "Pressure", "Window", "advance", "speed_samples"]

BAD_OF_PREDICTED = 0.7
BAD_ALONE = 0.25  # below `ColocationSettings.least_speed`, with which a job may start, so that no job starts as bad
BAD_WINDOWS = 3
GOOD_OF_PREDICTED, GOOD_ALONE = 0.85, 0.35
CALM_WINDOWS = 5
CALM_WINDOWS_FEWER = 2
MOST_DOUBLINGS = 4
SETTLE_S, SETTLE_MEMORY_S = 15.0, 5.0
MEMORY_HIGH, MEMORY_CRITICAL, MEMORY_LOW = 0.95, 0.98, 0.85
GREEDY = 1.3  # least ratio of used to expected cores of a job that goes down before the newest
LONGEST_PAUSE_S = 120.0
MOST_EVICTIONS = 2
MOST_REMEMBERED = 256  # evicted jobs that are remembered until they are started again


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The measurements of one job that holds memory, over a window of a few seconds.

    speed: share of its speed alone in its mode; None: not measured (it is paused, warms up or makes a checkpoint).
    predicted: the predicted share, without corrections. since_s: time of its start. can_shrink: it has more than the
    least number of workers. use_ratio: used cores / cores expected at its speed. over_bytes, over_gpu_bytes: bytes
    beyond its charge."""

    job: str
    kind: str
    speed: float | None
    predicted: float
    since_s: float
    device: int = CPU
    can_shrink: bool = False
    use_ratio: float = 1.0
    over_bytes: int = 0
    over_gpu_bytes: int = 0


class Pressure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The used share of the memory that jobs may have, on the host and on each GPU."""

    memory: float = 0.0
    gpus: tuple[float, ...] = ()


class Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An action for one job. The kind "resume": it computes again, with its own weight."""

    job: str
    kind: ActionKind
    reason: str


class JobFeedback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of one job. bad: number of consecutive bad windows. was_shrunk: it has fewer workers now. changed_s:
    time of its last step. beside: number of jobs that computed after its last step down. returns: number of stages that
    it went up. evictions: number of its evictions."""

    job: str
    stage: Stage = Stage.RUNNING
    bad: int = 0
    was_shrunk: bool = False
    changed_s: float = 0.0
    beside: int = 0
    returns: int = 0
    evictions: int = 0


class FeedbackState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of all jobs. calm: number of consecutive windows in which all jobs were good. acted_s: time of the last
    step of any job."""

    jobs: tuple[JobFeedback, ...] = ()
    calm: int = 0
    acted_s: float | None = None

    def of(self, job: str) -> JobFeedback | None:
        return next((one for one in self.jobs if one.job == job), None)


def advance(
    state: FeedbackState, windows: Sequence[Window], pressure: Pressure, now_s: float
) -> tuple[FeedbackState, tuple[Action, ...]]:
    """Folds one window of each job that holds memory, and returns the new state and at most one action. Jobs without a
    window have ended; evicted ones are remembered until they are started again."""
    state = _folded(state, windows, now_s)
    for step in (_for_memory, _for_speed, _for_room):
        found = step(state, windows, pressure, now_s)
        if found is not None:
            job, event, why = found
            return _stepped(state, windows, job, event, why, now_s)
    return state, ()


_Step = tuple[str, StageEvent, str]


def speed_samples(state: FeedbackState, windows: Sequence[Window], now_s: float) -> tuple[SpeedSample, ...]:
    """Returns the samples for `corrections.learnt`: one for each measured job, with the kinds of all other computing
    jobs as neighbours."""
    computing = [one for one in windows if not _is_still(state.of(one.job))]
    found = []
    for one in computing:
        if one.speed is not None and one.speed > 0 and one.predicted > 0:
            others = tuple(sorted(other.kind for other in computing if other.job != one.job))
            found.append(SpeedSample(one.kind, others, math.log(one.speed / one.predicted), now_s))
    return tuple(found)


def _folded(state: FeedbackState, windows: Sequence[Window], now_s: float) -> FeedbackState:
    known = {one.job: _returned(one, windows, now_s) for one in state.jobs}
    is_alone = sum(not _is_still(known.get(one.job)) for one in windows) < 2
    jobs, are_good = list[JobFeedback](), list[bool]()
    for window in windows:
        one = known.get(window.job) or JobFeedback(window.job, changed_s=now_s)
        if window.speed is not None and not _is_still(one):
            # a job that runs alone is never bad, nor is a job with a lowered weight
            is_bad = not is_alone and one.stage is not Stage.LOWERED and _is_bad(window.speed, window)
            one = msgspec.structs.replace(one, bad=one.bad + 1 if is_bad else 0)
            is_good = window.speed >= min(GOOD_ALONE, GOOD_OF_PREDICTED * window.predicted)
            are_good.append(is_alone or one.stage is Stage.LOWERED or is_good)
        jobs.append(one)
    here = {window.job for window in windows}
    gone = [one for one in state.jobs if one.stage is Stage.EVICTED and one.job not in here]
    # without any measured job the window counts neither as good nor as bad
    calm = (state.calm + 1 if all(are_good) else 0) if are_good else state.calm
    return FeedbackState((*gone[-MOST_REMEMBERED:], *jobs), calm, state.acted_s)


def _returned(one: JobFeedback, windows: Sequence[Window], now_s: float) -> JobFeedback:
    """The state of a job in this window. An evicted job runs again if it was started after its eviction; before that it
    is still ending."""
    is_back = any(window.job == one.job and window.since_s > one.changed_s for window in windows)
    if one.stage is not Stage.EVICTED or not is_back:
        return one
    stage, _ = next_stage(one.job, one.stage, StageEvent.STARTED)
    return JobFeedback(one.job, stage, changed_s=now_s, evictions=one.evictions)


def _is_still(one: JobFeedback | None) -> bool:
    return one is not None and one.stage in (Stage.PAUSED, Stage.EVICTED)


def _is_bad(speed: float, window: Window) -> bool:
    """Whether a window is bad. A job that was started with a low predicted speed, because it had waited long, is not
    bad as long as it is near the prediction."""
    return speed < min(BAD_ALONE, BAD_OF_PREDICTED * window.predicted)


def _has_settled(state: FeedbackState, settle_s: float, now_s: float) -> bool:
    return state.acted_s is None or now_s - state.acted_s >= settle_s


def _stages(state: FeedbackState) -> dict[str, JobFeedback]:
    return {one.job: one for one in state.jobs}


# --- steps down -------------------------------------------------------------------------------------------------------


def _for_memory(state: FeedbackState, windows: Sequence[Window], pressure: Pressure, now_s: float) -> _Step | None:
    """The step down if memory is short; None: no step."""
    shares = [("memory", pressure.memory, CPU), *((f"memory of GPU {at}", p, at) for at, p in enumerate(pressure.gpus))]
    what, share, device = max(shares, key=lambda one: one[1])
    is_critical = share > MEMORY_CRITICAL
    if share <= MEMORY_HIGH or not (is_critical or _has_settled(state, SETTLE_MEMORY_S, now_s)):
        return None
    concerned = _may_go_down(state, [one for one in windows if device in (CPU, one.device)], windows)
    if not concerned:
        return None

    def exceeds(window: Window) -> tuple[int, float]:
        return max(0, window.over_bytes if device == CPU else window.over_gpu_bytes), window.since_s

    target = max(concerned, key=exceeds)
    over, _ = exceeds(target)
    if is_critical:
        event = StageEvent.CRITICAL
    else:
        event = StageEvent.MEMORY if target.can_shrink else StageEvent.MEMORY_LEAST
    name = target.job
    whose = f"{name} exceeds its charge by {mib(over)}" if over else f"{name} is the newest job"
    return target.job, event, f"{share:.0%} of the {what} is in use (limit {MEMORY_HIGH:.0%}); {whose}"


def _may_go_down(state: FeedbackState, concerned: list[Window], windows: Sequence[Window]) -> list[Window]:
    """The jobs that may go a stage down. Not evicted jobs that have not ended; while there is one, no paused job is
    evicted, because memory will be freed. Not the last job that computes."""
    stages = _stages(state)
    is_leaving = any(stages[one.job].stage is Stage.EVICTED for one in windows)
    computing = sum(not _is_still(stages[one.job]) for one in windows)
    found = []
    for window in concerned:
        stage = stages[window.job].stage
        if stage is Stage.PAUSED:
            if not is_leaving:
                found.append(window)
        elif stage is not Stage.EVICTED and computing > 1:
            found.append(window)
    return found


def _for_speed(state: FeedbackState, windows: Sequence[Window], pressure: Pressure, now_s: float) -> _Step | None:
    """The step down if a job starves; None: no step."""
    stages = _stages(state)
    victims = [one for one in windows if stages[one.job].bad >= BAD_WINDOWS]
    computing = [one for one in windows if not _is_still(stages[one.job])]
    if not victims or len(computing) < 2 or not _has_settled(state, SETTLE_S, now_s):
        return None
    worst = min(victims, key=lambda one: (one.speed or 0.0) / max(one.predicted, 1e-9))
    may = [one for one in computing if one not in victims and stages[one.job].stage is not Stage.LOWERED]
    greedy = [one for one in may if one.use_ratio > GREEDY]
    newer = [one for one in may if one.since_s > worst.since_s]
    if greedy:
        target = max(greedy, key=lambda one: (one.use_ratio, one.since_s))
        whose = f"{target.job} uses {target.use_ratio:.1f} times the expected cores"
    elif newer:
        beside = [one for one in newer if one.device == worst.device]
        target = max(beside or newer, key=lambda one: one.since_s)
        whose = f"{target.job} is the newest job"
    else:
        return None
    why = f"{worst.job} has {worst.speed or 0.0:.2f} of its speed alone ({worst.predicted:.2f} was predicted), "
    why += f"after {BAD_WINDOWS} bad windows in a row; {whose}"
    return target.job, StageEvent.CROWDED if target.can_shrink else StageEvent.CROWDED_LEAST, why


# --- steps up ---------------------------------------------------------------------------------------------------------


def _for_room(state: FeedbackState, windows: Sequence[Window], pressure: Pressure, now_s: float) -> _Step | None:
    """The step up; None: no step. The job that is farthest down comes first, of several the one that was started first.
    If it may not go up, the next job is tried."""
    stages, rungs = _stages(state), list(Stage)
    down = [one for one in windows if stages[one.job].stage not in (Stage.RUNNING, Stage.EVICTED)]
    down.sort(key=lambda one: (-rungs.index(stages[one.job].stage), one.since_s))
    computing = len(windows) - sum(_is_still(stages[window.job]) for window in windows)
    for window in down:
        one = stages[window.job]
        share = max(pressure.memory, pressure.gpus[window.device] if 0 <= window.device < len(pressure.gpus) else 0.0)
        why = _room_for(state, one, computing, share, now_s)
        if why is not None:
            is_whole = one.stage in (Stage.LOWERED, Stage.PAUSED) and not one.was_shrunk
            return (
                one.job,
                StageEvent.ROOM_WHOLE if is_whole else StageEvent.ROOM,
                f"{why}; {share:.0%} of the memory is in use",
            )
        if (step := _stuck(one, now_s)) is not None:
            return step
    return None


def _room_for(state: FeedbackState, one: JobFeedback, computing: int, share: float, now_s: float) -> str | None:
    """The reason for which a job goes up; None: it does not. computing: number of computing jobs. share: used share of
    the memory."""
    is_still, is_weight = _is_still(one), one.stage is Stage.LOWERED
    is_only, are_fewer = computing == (not is_still), computing < one.beside
    # a higher weight needs no memory, and a paused job holds its memory already
    if share >= MEMORY_LOW and not is_weight and not (is_only and is_still):
        return None
    if is_only:
        return "no other job computes"
    has_settled = _has_settled(state, SETTLE_S, now_s)
    if are_fewer and (is_weight or (has_settled and state.calm >= CALM_WINDOWS_FEWER)):
        return f"{computing} jobs compute now, {one.beside} when it went down"
    wanted = CALM_WINDOWS * 2 ** min(one.returns, MOST_DOUBLINGS)
    return f"all jobs had good speeds for {wanted} windows" if has_settled and state.calm >= wanted else None


def _stuck(one: JobFeedback, now_s: float) -> _Step | None:
    """The eviction of a job that was paused for LONGEST_PAUSE_S; None: no step."""
    if one.stage is not Stage.PAUSED or now_s - one.changed_s < LONGEST_PAUSE_S or one.evictions >= MOST_EVICTIONS:
        return None
    return one.job, StageEvent.STUCK, f"it was paused for {now_s - one.changed_s:.0f} s, and memory is still short"


def _stepped(
    state: FeedbackState, windows: Sequence[Window], job: str, event: StageEvent, why: str, now_s: float
) -> tuple[FeedbackState, tuple[Action, ...]]:
    one = _stages(state)[job]
    stage, kind = next_stage(job, one.stage, event)
    is_up = event in (StageEvent.ROOM, StageEvent.ROOM_WHOLE)
    computing = sum(not _is_still(_stages(state)[window.job]) for window in windows)
    moved = msgspec.structs.replace(
        one,
        stage=stage,
        was_shrunk=(one.was_shrunk or kind == "shrink") and kind != "grow",
        changed_s=now_s,
        beside=one.beside if is_up else computing - (kind == "pause"),
        returns=one.returns + is_up,
        evictions=one.evictions + (kind == "evict"),
    )
    # all counts restart, because they were made under other conditions
    jobs = tuple(msgspec.structs.replace(moved if each.job == job else each, bad=0) for each in state.jobs)
    actions = () if kind is None else (Action(job, kind, f"{kind} {job}: {why}"),)
    return FeedbackState(jobs, 0, now_s), actions
