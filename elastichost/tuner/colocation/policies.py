"""Who starts now, and why the others wait: one entry for all policies. Pure.

waiting, running, host  ->  the start that the policy would make, as if it ran already  ->  ... until there is none

complementary   whoever adds most to the worth of the host (`complementary`)
rmixer_type     RMixer's rule; fifo, random, exclusive (`baselines`)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from elastichost.tuner.colocation import baselines
from elastichost.tuner.colocation.complementary import complementary, why_not
from elastichost.tuner.colocation.corrections import Corrections
from elastichost.tuner.colocation.facts import CPU, HostRoom, JobDemand, PlacedJob, PolicyName, Start
from elastichost.tuner.colocation.ledger import Margins, mb_words
from elastichost.tuner.colocation.scene import PlacementInput, predicted, scene_of
from elastichost.tuner.colocation.settings import Settings

__all__ = ["POLICIES", "Settings", "WaitReason", "dispatch", "predicted", "why_waiting"]

POLICIES: dict[PolicyName, Callable[[PlacementInput], Start | None]] = {
    "complementary": complementary,
    "rmixer_type": baselines.rmixer_type,
    "fifo": baselines.fifo,
    "random": baselines.random,
    "exclusive": baselines.exclusive,
}


def dispatch(
    waiting: Sequence[JobDemand],
    running: Sequence[PlacedJob],
    host: HostRoom,
    settings: Settings,
    corrections: Corrections,
    now_s: float,
    *,
    margins: Margins | None = None,
    decisions: int = 0,
) -> tuple[Start, ...]:
    """What starts now, in this order; empty: nothing. waiting: in the order of the queue where they arrived together;
    running: all that hold memory, those that are paused too; margins: the ledger's; decisions: starts made before, for
    the draws of `random`. The speeds of each start are those with it and those before it. Raises ValueError for two
    jobs of one name."""
    scene = scene_of(waiting, running, host, settings, corrections, now_s, margins or Margins(), decisions)
    choose, starts = _policy(settings), list[Start]()
    while (start := choose(scene)) is not None:
        starts.append(start)
        scene = scene.after(start)
    return tuple(starts)


def _policy(settings: Settings) -> Callable[[PlacementInput], Start | None]:
    if settings.policy == "complementary" and not settings.complementarity:
        return baselines.in_order
    return POLICIES[settings.policy]


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Why a job is not started, for people. for_ever: it can never run on this host."""

    text: str
    for_ever: bool = False


def why_waiting(
    waiting: Sequence[JobDemand],
    running: Sequence[PlacedJob],
    host: HostRoom,
    settings: Settings,
    corrections: Corrections,
    now_s: float,
    *,
    margins: Margins | None = None,
    decisions: int = 0,
) -> dict[str, WaitReason]:
    """Why each job that waits is not started, by name. To be asked after `dispatch`, with what it started
    among the running; a job that would start now is said to be next. Raises as `dispatch`."""
    scene = scene_of(waiting, running, host, settings, corrections, now_s, margins or Margins(), decisions)
    if (start := _policy(settings)(scene)) is not None:
        return _why(scene) | {start.job: WaitReason(f"is next: {start.reason}")}
    return _why(scene)


def _why(scene: PlacementInput) -> dict[str, WaitReason]:
    closed, rests, fitting = scene.closed(), scene.rests(), scene.fitting()
    by_policy = why_not(scene) if _policy(scene.settings) is complementary else {}
    first = next(iter(scene.in_order()), None)
    reasons = dict[str, WaitReason]()
    for index, job in enumerate(scene.ways.jobs):
        if not scene.possible[index]:
            reasons[job.job] = WaitReason(f"can never run here: {_needs(scene, index)}", for_ever=True)
            continue
        if closed:
            text = closed
        elif scene.running and job.exclusive:
            text = f"runs alone this time, and {_still_run(len(scene.running))}"
        elif rests[index]:
            text = f"rests before it is tried again, for {job.not_before_s - scene.now_s:.0f} s more"
        elif not fitting[scene.ways.job == index].any():
            text = _needs(scene, index)
        elif job.job in by_policy:
            text = by_policy[job.job]
        else:
            text = _behind(scene, first)
        reasons[job.job] = WaitReason(text)
    return reasons


def _behind(scene: PlacementInput, first: int | None) -> str:
    """What the other policies have to say of a job that fits."""
    if scene.alone is not None:
        return f"{scene.ways.jobs[scene.alone].job} is to run alone and is first"
    if scene.settings.policy == "exclusive" and scene.running:
        return f"{scene.running[0].demand.job} runs, and jobs run one at a time"
    if scene.settings.policy == "rmixer_type":
        return "its kind is the one that dominates where it fits"
    return f"behind {scene.ways.jobs[first].job}" if first is not None else "behind others"


def _needs(scene: PlacementInput, index: int) -> str:
    """The least memory that a job needs and what is free of it, in words."""
    ways, room = scene.ways, scene.room
    own = np.flatnonzero(ways.job == index)
    if not len(own):
        return "it needs a GPU, and there is none"
    need, need_gpu = (ways.estimate, ways.estimate_gpu) if room.is_empty else (ways.charge, ways.charge_gpu)
    own = own[np.argsort(need[own], kind="stable")]
    lacking = own[need[own] > room.memory]
    if len(lacking) == len(own):
        free = f"{mb_words(room.memory)} of {mb_words(scene.host.memory_bytes)} MB are free"
        return f"needs {mb_words(need[own[0]])} MB, {free}"
    on_gpus = own[(ways.device[own] != CPU) & (need[own] <= room.memory)]
    if not len(on_gpus):
        return f"needs {mb_words(need[own[0]])} MB, {mb_words(room.memory)} MB are free"
    least, most = float(need_gpu[on_gpus].min()), float(room.gpus.max())
    return f"needs {mb_words(least)} MB of a GPU, {mb_words(most)} MB are free on the emptiest"


def _still_run(jobs: int) -> str:
    return "1 job still runs" if jobs == 1 else f"{jobs} jobs still run"
