"""What complementary dispatching is compared with: RMixer's published rule, first come first served, random, one at a
time. Pure.

All take a job's fastest mode that fits. None of them predicts speeds: the speeds in their starts are forecasts only.
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
    """As `PlacementInput.open`, with nothing beside a job that is to run alone."""
    if inputs.running and inputs.alone is not None:
        return np.zeros(len(inputs.candidates), dtype=np.bool_)
    return inputs.open()


def _of(inputs: PlacementInput, ways: Bools, job: int) -> Bools:
    found: Bools = ways & (inputs.candidates.job == job)
    return found


def _value(inputs: PlacementInput, way: int) -> str:
    return f"{inputs.candidates.value[way]:.0%} of its fastest mode's speed alone"


def fifo(inputs: PlacementInput) -> Start | None:
    """The head of the queue, if it fits; nobody passes it."""
    ways, order = _open(inputs), inputs.in_order()
    # one that is to run alone has the queue to itself
    head = inputs.alone if inputs.alone is not None else order[0] if order else None
    if head is None or not (own := _of(inputs, ways, head)).any():
        return None
    way = fastest_candidate(inputs, own)
    return inputs.start(way, f"first of {len(order)} that wait, in order of arrival; at {_value(inputs, way)}")


def in_order(inputs: PlacementInput) -> Start | None:
    """The first in order of arrival that fits; those that do not are passed."""
    ways = _open(inputs)
    for place, job in enumerate(inputs.in_order()):
        if (own := _of(inputs, ways, job)).any():
            way = fastest_candidate(inputs, own)
            passed = f"; {place} before it do not fit" if place else ""
            return inputs.start(way, f"first that fits in order of arrival{passed}; at {_value(inputs, way)}")
    return None


def exclusive(inputs: PlacementInput) -> Start | None:
    """The head of the queue, when nothing runs."""
    return None if inputs.running else fifo(inputs)


def random(inputs: PlacementInput) -> Start | None:
    """Any job that fits, each as likely; on any of the GPUs that its fastest mode fits. The draw depends on the seed
    and on how many starts there were before."""
    ways = _open(inputs)
    jobs = np.unique(inputs.candidates.job[ways])
    if not len(jobs):
        return None
    draws = np.random.default_rng([inputs.settings.seed, inputs.decisions])
    own = _of(inputs, ways, int(draws.choice(jobs)))
    best = own & (inputs.candidates.mode == inputs.candidates.mode[fastest_candidate(inputs, own)])
    way = int(draws.choice(np.flatnonzero(best)))
    reason = f"drawn from {len(jobs)} that fit (seed {inputs.settings.seed}, draw {inputs.decisions})"
    return inputs.start(way, f"{reason}; at {_value(inputs, way)}")


# --- RMixer -----------------------------------------------------------------------------------------------------------


def rmixer_type(inputs: PlacementInput) -> Start | None:
    """RMixer's rule (TPDS 2024), as it is read here.

    Jobs by their utilisation (the largest demand of their fastest mode), the highest first. GPUs by charged memory, the
    least first: each takes the first job that fits and whose kind is not the kind that dominates the GPU (by summed
    utilisation). If none differs, the first that fits (`rmixer_same_type`). What no GPU takes: the tail, lowest
    utilisation first, to the CPU, by the same rule. A host without GPUs is one device, filled from the front."""
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
    """Jobs that wait, the highest utilisation first; of equals the one that came first."""
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
            beside = f"{dominant} dominates {where}" if dominant else f"nothing is on {where}"
            return inputs.start(way, f"first by utilisation that fits: {kind}, and {beside}; at {_value(inputs, way)}")
    return None


def _dominant(inputs: PlacementInput, device: int) -> str:
    """The kind of which most is demanded by those on a device; empty: nobody is there."""
    use: dict[str, float] = defaultdict(float)
    for one in inputs.running:
        if one.placement.device == device:
            use[one.demand.kind] += max(one.mode.demand)
    return max(sorted(use), key=lambda kind: use[kind]) if use else ""
