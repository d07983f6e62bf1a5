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
from elastichost.tuner.colocation.facts import CPU, HostCapacity, JobDemand, PlacedJob, PolicyName, Start
from elastichost.tuner.colocation.ledger import Margins, mb_words
from elastichost.tuner.colocation.placement_input import PlacementInput, placement_input, predicted
from elastichost.tuner.colocation.settings import ColocationSettings

__all__ = ["POLICIES", "ColocationSettings", "WaitReason", "dispatch", "predicted", "why_waiting"]

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
    host: HostCapacity,
    settings: ColocationSettings,
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
    inputs = placement_input(waiting, running, host, settings, corrections, now_s, margins or Margins(), decisions)
    choose, starts = _policy(settings), list[Start]()
    while (start := choose(inputs)) is not None:
        starts.append(start)
        inputs = inputs.after(start)
    return tuple(starts)


def _policy(settings: ColocationSettings) -> Callable[[PlacementInput], Start | None]:
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
    host: HostCapacity,
    settings: ColocationSettings,
    corrections: Corrections,
    now_s: float,
    *,
    margins: Margins | None = None,
    decisions: int = 0,
) -> dict[str, WaitReason]:
    """Why each job that waits is not started, by name. To be asked after `dispatch`, with what it started
    among the running; a job that would start now is said to be next. Raises as `dispatch`."""
    inputs = placement_input(waiting, running, host, settings, corrections, now_s, margins or Margins(), decisions)
    if (start := _policy(settings)(inputs)) is not None:
        return _why(inputs) | {start.job: WaitReason(f"is next: {start.reason}")}
    return _why(inputs)


def _why(inputs: PlacementInput) -> dict[str, WaitReason]:
    closed, rests, fitting = inputs.closed(), inputs.rests(), inputs.fitting()
    by_policy = why_not(inputs) if _policy(inputs.settings) is complementary else {}
    first = next(iter(inputs.in_order()), None)
    reasons = dict[str, WaitReason]()
    for index, job in enumerate(inputs.candidates.jobs):
        if not inputs.possible[index]:
            reasons[job.job] = WaitReason(f"can never run here: {_needs(inputs, index)}", for_ever=True)
            continue
        if closed:
            text = closed
        elif inputs.running and job.exclusive:
            text = f"runs alone this time, and {_still_run(len(inputs.running))}"
        elif rests[index]:
            text = f"rests before it is tried again, for {job.not_before_s - inputs.now_s:.0f} s more"
        elif not fitting[inputs.candidates.job == index].any():
            text = _needs(inputs, index)
        elif job.job in by_policy:
            text = by_policy[job.job]
        else:
            text = _behind(inputs, first)
        reasons[job.job] = WaitReason(text)
    return reasons


def _behind(inputs: PlacementInput, first: int | None) -> str:
    """What the other policies have to say of a job that fits."""
    if inputs.alone is not None:
        return f"{inputs.candidates.jobs[inputs.alone].job} is to run alone and is first"
    if inputs.settings.policy == "exclusive" and inputs.running:
        return f"{inputs.running[0].demand.job} runs, and jobs run one at a time"
    if inputs.settings.policy == "rmixer_type":
        return "its kind is the one that dominates where it fits"
    return f"behind {inputs.candidates.jobs[first].job}" if first is not None else "behind others"


def _needs(inputs: PlacementInput, index: int) -> str:
    """The least memory that a job needs and what is free of it, in words."""
    ways, free = inputs.candidates, inputs.free
    own = np.flatnonzero(ways.job == index)
    if not len(own):
        return "it needs a GPU, and there is none"
    need, need_gpu = (ways.estimate, ways.estimate_gpu) if free.is_empty else (ways.charge, ways.charge_gpu)
    own = own[np.argsort(need[own], kind="stable")]
    lacking = own[need[own] > free.memory]
    if len(lacking) == len(own):
        told = f"{mb_words(free.memory)} of {mb_words(inputs.host.memory_bytes)} MB are free"
        return f"needs {mb_words(need[own[0]])} MB, {told}"
    on_gpus = own[(ways.device[own] != CPU) & (need[own] <= free.memory)]
    if not len(on_gpus):
        return f"needs {mb_words(need[own[0]])} MB, {mb_words(free.memory)} MB are free"
    least, most = float(need_gpu[on_gpus].min()), float(free.gpus.max())
    return f"needs {mb_words(least)} MB of a GPU, {mb_words(most)} MB are free on the emptiest"


def _still_run(jobs: int) -> str:
    return "1 job still runs" if jobs == 1 else f"{jobs} jobs still run"
