"""Policies that complementary dispatching is compared with: RMixer's published rule, first come first served, random,
one job at a time. Pure.

All of them use the fastest mode of a job that fits. None of them uses predicted speeds for its choice; the speeds in
their starts are only forecasts.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from elastichost.tuner.colocation.facts import CPU, Start
from elastichost.tuner.colocation.placement_input import PlacementInput, fastest_candidate

__all__ = ["exclusive", "fifo", "in_order", "random", "rmixer_type"]

Bools = npt.NDArray[np.bool_]


def _open(inputs: PlacementInput) -> Bools:
    """As `PlacementInput.open`; but no candidate if jobs run and the next job must run alone."""
    if inputs.running and inputs.alone is not None:
        return np.zeros(len(inputs.candidates), dtype=np.bool_)
    return inputs.open()


def _of(inputs: PlacementInput, ways: Bools, job: int) -> Bools:
    found: Bools = ways & (inputs.candidates.job == job)
    return found


def _value(inputs: PlacementInput, way: int) -> str:
    return f"its mode has {inputs.candidates.value[way]:.0%} of the speed of its fastest mode"


def fifo(inputs: PlacementInput) -> Start | None:
    """First come, first served: starts the head of the queue if it fits; no job passes it."""
    ways, order = _open(inputs), inputs.in_order()
    # a job that must run alone is the head of the queue
    head = inputs.alone if inputs.alone is not None else order[0] if order else None
    if head is None or not (own := _of(inputs, ways, head)).any():
        return None
    way = fastest_candidate(inputs, own)
    return inputs.start(way, f"first of {len(order)} waiting jobs in order of arrival; {_value(inputs, way)}")


def in_order(inputs: PlacementInput) -> Start | None:
    """Starts the first job in order of arrival that fits; it may pass jobs that do not fit."""
    ways = _open(inputs)
    for place, job in enumerate(inputs.in_order()):
        if (own := _of(inputs, ways, job)).any():
            way = fastest_candidate(inputs, own)
            passed = f" (earlier jobs that do not fit: {place})" if place else ""
            return inputs.start(way, f"first job in order of arrival that fits{passed}; {_value(inputs, way)}")
    return None


def exclusive(inputs: PlacementInput) -> Start | None:
    """Starts the head of the queue when no job runs."""
    return None if inputs.running else fifo(inputs)


def random(inputs: PlacementInput) -> Start | None:
    """Starts a job drawn uniformly from those that fit, on a GPU drawn from those that its fastest mode fits. The draw
    depends only on the seed and on the number of earlier starts."""
    ways = _open(inputs)
    jobs = np.unique(inputs.candidates.job[ways])
    if not len(jobs):
        return None
    draws = np.random.default_rng([inputs.settings.seed, inputs.decisions])
    own = _of(inputs, ways, int(draws.choice(jobs)))
    best = own & (inputs.candidates.mode == inputs.candidates.mode[fastest_candidate(inputs, own)])
    way = int(draws.choice(np.flatnonzero(best)))
    reason = f"drawn from {len(jobs)} jobs that fit (seed {inputs.settings.seed}, draw {inputs.decisions})"
    return inputs.start(way, f"{reason}; {_value(inputs, way)}")


# --- RMixer -----------------------------------------------------------------------------------------------------------


def rmixer_type(inputs: PlacementInput) -> Start | None:
    """The rule of RMixer (TPDS 2024) in the reading of this project.

    Jobs are ordered by utilisation (the largest demand of their fastest mode), highest first. GPUs are ordered by
    charged memory, least first. Each GPU gets the first job that fits and is of another kind than the one that
    dominates the GPU (by summed utilisation). If there is none, it gets the first job that fits (`rmixer_same_type`).
    Jobs that no GPU takes go to the CPU by the same rule, lowest utilisation first. A host without GPUs is one device,
    filled with the highest utilisation first."""
    ways = _open(inputs)
    if not ways.any():
        return None
    on_cpu = inputs.candidates.device == CPU
    front = _by_utilisation(inputs)
    gpus = np.argsort(-inputs.free.gpus, kind="stable").tolist()
    passes = [(device, front) for device in gpus]
    tail = [(CPU, front[::-1] if gpus else front)]
    for turns in (passes, tail):
        for differing in (True, False) if inputs.settings.rmixer_same_type else (True,):
            for device, order in turns:
                on_device = ways & (on_cpu if device == CPU else inputs.candidates.device == device)
                if (start := _first_of(inputs, on_device, device, order, differing)) is not None:
                    return start
    return None


def _by_utilisation(inputs: PlacementInput) -> list[int]:
    """The waiting jobs by falling utilisation; equal ones in order of arrival."""
    use = np.zeros(len(inputs.candidates.jobs))
    for index, job in enumerate(inputs.candidates.jobs):
        use[index] = max(max(job.modes, key=lambda mode: mode.samples_per_s).demand)
    return sorted(inputs.in_order(), key=lambda job: -float(use[job]))


def _first_of(inputs: PlacementInput, ways: Bools, device: int, order: list[int], differing: bool) -> Start | None:
    dominant = _dominant(inputs, device)
    for job in order:
        kind = inputs.candidates.jobs[job].kind
        if (not differing or kind != dominant) and (own := _of(inputs, ways, job)).any():
            way = fastest_candidate(inputs, own)
            where = "the CPU" if device == CPU else f"GPU {inputs.host.gpus[device].index}"
            beside = f"{dominant} jobs dominate {where}" if dominant else f"no job is on {where}"
            reason = f"first job by utilisation that fits: its kind is {kind}, {beside}"
            return inputs.start(way, f"{reason}; {_value(inputs, way)}")
    return None


def _dominant(inputs: PlacementInput, device: int) -> str:
    """The kind with the largest summed utilisation on a device; empty: no job is there."""
    use: dict[str, float] = defaultdict(float)
    for one in inputs.running:
        if one.placement.device == device:
            use[one.demand.kind] += max(one.mode.demand)
    return max(sorted(use), key=lambda kind: use[kind]) if use else ""
