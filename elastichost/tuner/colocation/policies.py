"""Decides which jobs start now and why the others wait: the entry for all policies. Pure.

`dispatch` asks the policy for one start, adds it to the running jobs, and repeats that until the policy has no start.

complementary   the job that adds most to the total speed of the host (`complementary`)
rmixer_type     RMixer's rule; fifo, random, exclusive (`baselines`)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from elastichost.human_readable import mib
from elastichost.tuner.colocation import baselines
from elastichost.tuner.colocation.complementary import complementary, why_not
from elastichost.tuner.colocation.corrections import Corrections
from elastichost.tuner.colocation.facts import CPU, HostCapacity, JobDemand, PlacedJob, PolicyName, Start
from elastichost.tuner.colocation.ledger import Margins
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
    """Returns the starts to make now, in this order; may be empty.

    waiting: jobs that arrived together are in the order of the queue. running: all jobs that hold memory, including
    paused ones. margins: of the ledger. decisions: number of earlier starts, for the draws of `random`. The speeds of
    each start are predicted with it and the starts before it. Raises ValueError for two jobs with the same name."""
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
    """The reason for which a job waits, as a sentence. for_ever: it can never run on this host."""

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
    """Returns job -> reason for which it waits. Call it after `dispatch`, with the started jobs among the running ones;
    a job that would start now is reported as next. Raises as `dispatch`."""
    inputs = placement_input(waiting, running, host, settings, corrections, now_s, margins or Margins(), decisions)
    if (start := _policy(settings)(inputs)) is not None:
        return _why(inputs) | {start.job: WaitReason(f"is next: {start.reason}")}
    return _why(inputs)


def _why(inputs: PlacementInput) -> dict[str, WaitReason]:
    closed, rests, fitting = inputs.closed(), inputs.rests(), inputs.fitting()
    by_policy = why_not(inputs) if _policy(inputs.settings) is complementary else {}
    order, alone = inputs.in_order(), inputs.alone
    reasons = dict[str, WaitReason]()
    for index, job in enumerate(inputs.candidates.jobs):
        if not inputs.possible[index]:
            reasons[job.job] = WaitReason(f"can never run here: {_needs(inputs, index)}", for_ever=True)
            continue
        if closed:
            text = closed
        elif inputs.running and job.exclusive:
            text = f"must run alone this time, and {_still_run(len(inputs.running))}"
        elif rests[index]:
            text = f"waits for another {job.not_before_s - inputs.now_s:.0f} s after its eviction"
        elif not fitting[inputs.candidates.of(index)].any():
            text = _needs(inputs, index)
        elif job.job in by_policy:
            text = by_policy[job.job]
        else:
            text = _behind(inputs, order[0] if order else None, alone)
        reasons[job.job] = WaitReason(text)
    return reasons


def _behind(inputs: PlacementInput, first: int | None, alone: int | None) -> str:
    """The reason of the other policies for a waiting job for which enough memory is free. first: the head of the queue.
    alone: the next job that must run alone."""
    if alone is not None:
        return f"{inputs.candidates.jobs[alone].job} must run alone and starts first"
    if inputs.settings.policy == "exclusive" and inputs.running:
        return f"{inputs.running[0].demand.job} runs, and jobs run one at a time"
    if inputs.settings.policy == "rmixer_type":
        return "its kind dominates every device that it fits"
    return f"waits behind {inputs.candidates.jobs[first].job}" if first is not None else "waits behind other jobs"


def _needs(inputs: PlacementInput, index: int) -> str:
    """A sentence about the least memory that a job needs, and the free memory."""
    ways, free = inputs.candidates, inputs.free
    own = ways.of(index)
    if not len(own):
        return "it needs a GPU, and the host has none"
    need, need_gpu = (ways.estimate, ways.estimate_gpu) if free.is_empty else (ways.charge, ways.charge_gpu)
    own = own[np.argsort(need[own], kind="stable")]
    held = own[need[own] <= free.memory]
    if len(held) and (ways.arena[held] > free.arena).all():
        told = f"{mib(free.arena)} of {mib(inputs.host.arena_bytes or 0)} are free"
        return f"needs {mib(ways.arena[held].min())} in the file system of arenas, {told}"
    lacking = own[need[own] > free.memory]
    if len(lacking) == len(own):
        told = f"{mib(free.memory)} of {mib(inputs.host.memory_bytes)} are free"
        return f"needs {mib(need[own[0]])} of memory, {told}"
    on_gpus = own[(ways.device[own] != CPU) & (need[own] <= free.memory)]
    if not len(on_gpus):
        return f"needs {mib(need[own[0]])} of memory, {mib(free.memory)} are free"
    least, most = float(need_gpu[on_gpus].min()), float(free.gpus.max())
    return f"needs {mib(least)} of GPU memory, at most {mib(most)} are free on a GPU"


def _still_run(jobs: int) -> str:
    return "1 job still runs" if jobs == 1 else f"{jobs} jobs still run"
