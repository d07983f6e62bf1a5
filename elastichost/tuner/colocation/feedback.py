"""Jobs that starve beside others, or that memory is short for: who is shrunk, slowed, paused, evicted, and when it gets
that back. Pure: a state and what was measured give the next state and actions.

    crowded:            shrink -> lower the weight         and back: raise the weight -> grow             (`stages`)
    short of memory:    shrink -> pause -> evict           and back: resume -> grow

Crowded: three windows in a row some job had less than a quarter of what it has alone, and less than 0.7 of what was
predicted, while others computed. A prediction that was merely wrong hurts nobody: `corrections` learn from it. The rung
down is taken by whoever takes more of the cores than expected, else by the newest that came after the one that starves
(of those on the same GPU, if there are others): before it came it was well, and its going back undoes the last
decision. It is not taken by who starves: that would send away, one after another, those whom one bad neighbour slows.
Nobody stands still for another's speed: the cores would do less, and what waits for a GPU or a cache gains little.

Short of memory: more than 95 % of the host's or a GPU's is in use. Then whoever exceeds its charge most goes down, else
the newest. Weight frees no memory, so that rung is left out; above 98 % nothing is waited for: it is paused at once,
and if that does not suffice evicted. The last that computes is left alone: nobody would gain by its standing still.

Hysteresis: after a step nothing happens for 15 s (short of memory: 5 s); a rung up needs five windows in a row in which
all had 0.85 of what was predicted, or 0.35 of what they have alone, twice as many after each time it went up before (at
most 16 times), and, but for the weight, memory below 85 %. When fewer compute than when the step was taken, the weight
is back at once, and for the other rungs two windows suffice; when nothing else computes, none, and who stands still
then goes on whatever memory is in use. Who was paused for two minutes is evicted, at most twice: it gives its memory
back and waits in the queue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from elastichost.tuner.colocation.corrections import SpeedSample
from elastichost.tuner.colocation.facts import CPU
from elastichost.tuner.colocation.stages import ActionKind, Stage, StageEvent, next_stage

__all__ = ["Action", "FeedbackState", "JobFeedback", "Pressure", "Window", "advance", "speed_samples"]

BAD_OF_PREDICTED = 0.7
BAD_ALONE = 0.25  # below `Settings.least_speed`, with which a job may start, so that it is not bad as it begins
BAD_WINDOWS = 3
GOOD_OF_PREDICTED, GOOD_ALONE = 0.85, 0.35
CALM_WINDOWS = 5
CALM_WINDOWS_FEWER = 2
MOST_DOUBLINGS = 4
SETTLE_S, SETTLE_MEMORY_S = 15.0, 5.0
MEMORY_HIGH, MEMORY_CRITICAL, MEMORY_LOW = 0.95, 0.98, 0.85
GREEDY = 1.3  # times its expected use of the cores
LONGEST_PAUSE_S = 120.0
MOST_EVICTIONS = 2
MOST_REMEMBERED = 256  # jobs that were evicted and have not come back


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One job that holds memory, in the newest window of a few seconds.

    speed: share of its speed alone in its mode; None: nothing to be judged by (paused, warming up, at a checkpoint).
    predicted: the same as the model has it, without corrections. since_s: when it was started. use_ratio: cores that it
    used over what was expected at its speed. over_bytes, over_gpu_bytes: by which it exceeds its charge."""

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
    """Share of what jobs may have that is in use: of the host's memory, and of each GPU's."""

    memory: float = 0.0
    gpus: tuple[float, ...] = ()


class Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """To be done to one job. resume: it computes again, at its own weight."""

    job: str
    kind: ActionKind
    reason: str


class JobFeedback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One job. bad: windows in a row; was_shrunk: it has fewer workers now; changed_s: last step; beside: jobs that
    computed after its last step down; returns: rungs that it went up, ever; evictions: ever."""

    job: str
    stage: Stage = Stage.RUNNING
    bad: int = 0
    was_shrunk: bool = False
    changed_s: float = 0.0
    beside: int = 0
    returns: int = 0
    evictions: int = 0


class FeedbackState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """calm: windows in a row in which all were well; acted_s: the last step of anyone."""

    jobs: tuple[JobFeedback, ...] = ()
    calm: int = 0
    acted_s: float | None = None

    def of(self, job: str) -> JobFeedback | None:
        return next((one for one in self.jobs if one.job == job), None)


def advance(
    state: FeedbackState, windows: Sequence[Window], pressure: Pressure, now_s: float
) -> tuple[FeedbackState, tuple[Action, ...]]:
    """Folds one window of every job that holds memory, and says what is to be done: one action at most. Jobs that are
    not in `windows` are gone; those that were evicted are remembered until they come back."""
    state = _folded(state, windows, now_s)
    for step in (_for_memory, _for_speed, _for_room):
        found = step(state, windows, pressure, now_s)
        if found is not None:
            job, event, why = found
            return _stepped(state, windows, job, event, why, now_s)
    return state, ()


_Step = tuple[str, StageEvent, str]


def speed_samples(state: FeedbackState, windows: Sequence[Window], now_s: float) -> tuple[SpeedSample, ...]:
    """What these windows teach of pairs of kinds (`corrections.learnt`): of each job that was measured, beside all
    others that compute."""
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
            # alone it has what it has: nobody is to blame; nor for the speed of one that was told to give way
            is_bad = not is_alone and one.stage is not Stage.LOWERED and _is_bad(window.speed, window)
            one = msgspec.structs.replace(one, bad=one.bad + 1 if is_bad else 0)
            is_good = window.speed >= min(GOOD_ALONE, GOOD_OF_PREDICTED * window.predicted)
            are_good.append(is_alone or one.stage is Stage.LOWERED or is_good)
        jobs.append(one)
    here = {window.job for window in windows}
    gone = [one for one in state.jobs if one.stage is Stage.EVICTED and one.job not in here]
    # where nobody was measured it was neither calm nor bad
    calm = (state.calm + 1 if all(are_good) else 0) if are_good else state.calm
    return FeedbackState((*gone[-MOST_REMEMBERED:], *jobs), calm, state.acted_s)


def _returned(one: JobFeedback, windows: Sequence[Window], now_s: float) -> JobFeedback:
    """A job that was evicted is back when it was started after that; until then it is on its way out."""
    is_back = any(window.job == one.job and window.since_s > one.changed_s for window in windows)
    if one.stage is not Stage.EVICTED or not is_back:
        return one
    stage, _ = next_stage(one.job, one.stage, StageEvent.STARTED)
    return JobFeedback(one.job, stage, changed_s=now_s, evictions=one.evictions)


def _is_still(one: JobFeedback | None) -> bool:
    return one is not None and one.stage in (Stage.PAUSED, Stage.EVICTED)


def _is_bad(speed: float, window: Window) -> bool:
    """A job that was let in although it would be slow, because it had waited for long, is not bad for that."""
    return speed < min(BAD_ALONE, BAD_OF_PREDICTED * window.predicted)


def _has_settled(state: FeedbackState, settle_s: float, now_s: float) -> bool:
    return state.acted_s is None or now_s - state.acted_s >= settle_s


def _stages(state: FeedbackState) -> dict[str, JobFeedback]:
    return {one.job: one for one in state.jobs}


# --- down -------------------------------------------------------------------------------------------------------------


def _for_memory(state: FeedbackState, windows: Sequence[Window], pressure: Pressure, now_s: float) -> _Step | None:
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
    whose = f"it exceeds its charge by {over / 1e6:,.0f} MB" if over else "it is the newest"
    return target.job, event, f"{share:.0%} of the {what} is in use ({MEMORY_HIGH:.0%} may be); {whose}"


def _may_go_down(state: FeedbackState, concerned: list[Window], windows: Sequence[Window]) -> list[Window]:
    """Not who is on its way out. While somebody is, nobody else is evicted: its memory is coming. Not the last that
    computes."""
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
        whose = f"it takes {target.use_ratio:.1f} times the cores that were expected"
    elif newer:
        beside = [one for one in newer if one.device == worst.device]
        target = max(beside or newer, key=lambda one: one.since_s)
        whose = "it is the newest"
    else:
        return None
    why = f"{worst.job} has {worst.speed or 0.0:.2f} of its speed alone after {BAD_WINDOWS} such windows, "
    why += f"{worst.predicted:.2f} was predicted; {whose}"
    return target.job, StageEvent.CROWDED if target.can_shrink else StageEvent.CROWDED_LEAST, why


# --- up ---------------------------------------------------------------------------------------------------------------


def _for_room(state: FeedbackState, windows: Sequence[Window], pressure: Pressure, now_s: float) -> _Step | None:
    """The job farthest down first, of these the one that was started first; one that finds no room holds up nobody."""
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
    """Why it goes up, in words; None: it does not. computing: jobs; share: of the memory, that is in use."""
    is_still, is_weight = _is_still(one), one.stage is Stage.LOWERED
    is_only, are_fewer = computing == (not is_still), computing < one.beside
    # weight takes no memory; and what stands still has its own already
    if share >= MEMORY_LOW and not is_weight and not (is_only and is_still):
        return None
    if is_only:
        return "nothing else computes"
    has_settled = _has_settled(state, SETTLE_S, now_s)
    if are_fewer and (is_weight or (has_settled and state.calm >= CALM_WINDOWS_FEWER)):
        return f"{computing} compute, {one.beside} did when it went down"
    wanted = CALM_WINDOWS * 2 ** min(one.returns, MOST_DOUBLINGS)
    return f"all were well for {wanted} windows" if has_settled and state.calm >= wanted else None


def _stuck(one: JobFeedback, now_s: float) -> _Step | None:
    if one.stage is not Stage.PAUSED or now_s - one.changed_s < LONGEST_PAUSE_S or one.evictions >= MOST_EVICTIONS:
        return None
    return one.job, StageEvent.STUCK, f"it was paused for {now_s - one.changed_s:.0f} s and no room came"


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
    # what was counted was counted under other conditions
    jobs = tuple(msgspec.structs.replace(moved if each.job == job else each, bad=0) for each in state.jobs)
    actions = () if kind is None else (Action(job, kind, f"{kind} {job}: {why}"),)
    return FeedbackState(jobs, 0, now_s), actions
