"""The default policy: whoever adds most to the worth of the host starts, until nobody adds enough. Pure.

    gain of (job, mode, device) = W(S + j) - W(S),    W(S) = sum over j of v[j] s[j]  (`speeds`)

It starts if its gain is 0.05 at least and everyone keeps 0.35 of the speed it has alone. Compared are

    weight * gain + aging - balance * load of its GPU's fullest resource

and of those within 0.1 of the best the job with most left starts first: nothing ends before the longest does.

Nobody starves. A job's score grows without end while it waits. From ten minutes on it is *due*: it may add nothing and
slow others twice as much, and jobs that came later than its batch no longer pass it. So those ahead of it are finitely
many, they end, and when nothing runs something always starts if it fits, whatever it adds.

A job that is to run alone waits for the host to be empty. Meanwhile those start that end before that by what is
expected (backfilling; Lifka 1995), and no others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elastichost.tuner.colocation import speeds
from elastichost.tuner.colocation.candidates import bottleneck, outlasts
from elastichost.tuner.colocation.corrections import log_corrections, table
from elastichost.tuner.colocation.facts import Start
from elastichost.tuner.colocation.placement_input import PlacementInput

__all__ = ["complementary", "why_not"]

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
FINALISTS = 48  # that are looked at closely: the best by estimate, more only where none of these may start
ESTIMATE_SWEEPS = 9
ESTIMATE_GAIN, ESTIMATE_SPEED = 0.05, 0.8  # an estimate may miss a gain by so much, and a speed by a fifth
SLACK = 1e-9  # of rounding


@dataclass(frozen=True, slots=True)
class _Background:
    """What runs: speeds float64 [n], corrected; demand float64 [n, width]; value float64 [n]; its worth; seconds until
    each ends, float64 [n]; work_s: as `candidates.outlasts` has it."""

    demand: Floats
    value: Floats
    speed: Floats
    worth: float
    ends_s: Floats
    work_s: Floats


@dataclass(frozen=True, slots=True)
class _Assessment:
    """At k candidates, int64 [k]: what each adds, the least speed of all and whose that is (n: its own), its own speed,
    float64 [k]; what it counts for when they are compared; why not, of one that may not start: a column of WHY."""

    way: Whole
    gain: Floats
    slowest: Floats
    slowest_at: Whole
    own: Floats
    score: Floats
    hindered: Bools  # [k, len(WHY)]

    @property
    def allowed(self) -> Bools:
        return np.asarray(~self.hindered.any(axis=1))


WHY = ("held", "outlasts", "slow", "gain")


def complementary(inputs: PlacementInput) -> Start | None:
    """The next start; None: nobody that waits is worth one now."""
    ways = np.flatnonzero(inputs.open())
    if not len(ways):
        return None
    base = _background(inputs)
    for group in _by_estimate(inputs, base, ways):
        look = _assessed(inputs, base, group)
        if look.allowed.any():
            best = _best(inputs, look)
            return inputs.start(int(look.way[best]), _reason(inputs, base, look, best))
    return None


def _background(inputs: PlacementInput) -> _Background:
    computing = [one for one in inputs.running if not one.is_paused]
    demand = speeds.demand_matrix(computing, len(inputs.host.gpus))
    value = speeds.values(computing)
    logs = log_corrections(inputs.corrections, [one.demand.kind for one in computing])
    speed = speeds.corrected(speeds.speeds(demand), logs)
    alone_s = np.array([speeds.seconds_left(one.demand, one.mode) for one in computing], dtype=np.float64)
    waiting_s = np.array([speeds.seconds_left(job) for job in inputs.candidates.jobs], dtype=np.float64)
    running_s = sum(speeds.seconds_left(one.demand) for one in computing)
    work_s = np.append(np.where(inputs.waits, waiting_s, 0.0), running_s)
    return _Background(demand, value, speed, speeds.worth(value, speed), alone_s / speed, work_s)


def _by_estimate(inputs: PlacementInput, base: _Background, ways: Whole) -> list[Whole]:
    """The candidates in two groups, those that are best by a rough estimate first. Without those that are hopeless."""
    if len(ways) <= FINALISTS:
        return [ways]
    rough = _assessed(inputs, base, ways, ESTIMATE_SWEEPS)
    hopes = np.flatnonzero(rough.allowed)
    best = hopes[np.argsort(-rough.score[hopes], kind="stable")]
    return [ways[group] for group in (best[:FINALISTS], best[FINALISTS:]) if len(group)]


def _assessed(inputs: PlacementInput, base: _Background, way: Whole, sweeps: int = speeds.SWEEPS) -> _Assessment:
    ways, settings = inputs.candidates, inputs.settings
    together = speeds.speeds_with(base.demand, ways.demand[way], sweeps)
    together = speeds.corrected(together, _corrections(inputs, way))
    gain = together[:, :-1] @ base.value + ways.value[way] * together[:, -1] - base.worth
    slowest_at = together.argmin(axis=1)
    slowest, own = together.min(axis=1), together[:, -1]
    aged = inputs.waited_s[ways.job[way]] / max(settings.patience_s, SLACK)
    weight = np.array([job.weight for job in ways.jobs])[ways.job[way]]
    load = bottleneck(ways, base.demand)[way]
    score = weight * gain + settings.aging_gain * aged - settings.balance * load
    hindered = np.zeros((len(way), len(WHY)), dtype=np.bool_)
    ends_s = float(base.ends_s.max(initial=0.0))
    every = np.ones(len(ways))
    every[way] = own
    hindered[:, 0] = _held_back(inputs, way, ways.alone_s[way] / own, ends_s)
    hindered[:, 1] = outlasts(ways, every, ends_s, base.work_s, base.worth)[way]
    if inputs.running:
        patient = np.minimum(1.0, aged)
        slack, share = (SLACK, 1.0) if sweeps == speeds.SWEEPS else (ESTIMATE_GAIN, ESTIMATE_SPEED)
        hindered[:, 2] = slowest < share * settings.least_speed * (1 - patient / 2) - SLACK
        hindered[:, 3] = gain < settings.least_gain * (1 - patient) - slack
    return _Assessment(way, gain, slowest, slowest_at, own, score, hindered)


def _corrections(inputs: PlacementInput, way: Whole) -> Floats:
    """Log-corrections of those that run and of each candidate beside them, float64 [k, n + 1]. They are means over
    neighbours, so a kind of which nothing is known would dilute what is: whoever comes would seem to speed up those
    whom the others slow, and far too many would start. Nobody's correction rises by another neighbour."""
    running = [one.demand.kind for one in inputs.running if not one.is_paused]
    if not running or not inputs.corrections.pairs:
        return np.zeros((len(way), len(running) + 1))
    kinds = sorted({job.kind for job in inputs.candidates.jobs})
    kind = np.array([kinds.index(job.kind) for job in inputs.candidates.jobs])[inputs.candidates.job[way]]
    among = table(inputs.corrections, running, running)
    among_sum = among.sum(axis=1) - among.diagonal()
    beside = table(inputs.corrections, running, kinds)[:, kind].T
    # each has n neighbours: the others that run, and the newcomer; the newcomer has those that run
    others = len(running) - 1
    own = (among_sum + beside) / len(running)
    own = np.minimum(own, among_sum / others) if others else own
    found: Floats = np.concatenate([own, beside.mean(axis=1, keepdims=True)], axis=1)
    return found


def _held_back(inputs: PlacementInput, way: Whole, own_s: Floats, ends_s: float) -> Bools:
    """Candidates for which another job is not to wait, bool [k]: one that is to run alone and waits for the host to be
    empty (unless they end before that), one that is due and came before their batch. own_s: until each would end."""
    if not inputs.running:
        return np.zeros(len(way), dtype=np.bool_)
    if inputs.alone is not None:
        return own_s > ends_s
    return inputs.arrived_s[inputs.candidates.job[way]] > _due_until_s(inputs)


def _due_until_s(inputs: PlacementInput) -> float:
    """What arrived later waits for a job that is due."""
    due = inputs.waits & inputs.possible & ~inputs.rests() & (inputs.waited_s >= inputs.settings.patience_s)
    return float(inputs.arrived_s[due].min(initial=np.inf)) + inputs.settings.batch_s


def _best(inputs: PlacementInput, look: _Assessment) -> int:
    """Index within the look: of those nearly as good as the best the job with most left, in the way that suits it."""
    score = np.where(look.allowed, look.score, -np.inf)
    near = score >= score.max() - inputs.settings.near_gain
    left_s = np.array([speeds.seconds_left(job) for job in inputs.candidates.jobs])[inputs.candidates.job[look.way]]
    # the job with most left; of equals the best, then the one that came first
    order = np.lexsort((look.way, -score, -np.where(near, left_s, -np.inf)))
    own = inputs.candidates.job[look.way] == inputs.candidates.job[look.way[order[0]]]
    return int(np.argmax(np.where(own, score, -np.inf)))


# --- in words ---------------------------------------------------------------------------------------------------------


def _reason(inputs: PlacementInput, base: _Background, look: _Assessment, at: int) -> str:
    gain = look.gain[at]
    worth = f"total speed of the host {base.worth:.2f} -> {base.worth + gain:.2f} ({_signed(gain)}) of one job alone"
    if not inputs.running:
        return f"nothing runs; {worth}"
    others = int(look.allowed.sum()) - 1
    beaten = f"; best of {others + 1} candidates" if others else ""
    return (
        f"{worth}{beaten}; beside {len(inputs.running)} others it is expected to run at {look.own[at]:.2f} of its "
        f"speed alone, the slowest job ({_whose(inputs, look, at)}) at {look.slowest[at]:.2f}"
    )


def _whose(inputs: PlacementInput, look: _Assessment, at: int) -> str:
    names = [one.demand.job for one in inputs.running if not one.is_paused]
    index = int(look.slowest_at[at])
    return names[index] if index < len(names) else inputs.candidates.jobs[inputs.candidates.job[look.way[at]]].job


def why_not(inputs: PlacementInput) -> dict[str, str]:
    """Of each waiting job that has memory, why no way to start it is taken, in words; by name."""
    ways = np.flatnonzero(inputs.open())
    if not len(ways):
        return {}
    look = _assessed(inputs, _background(inputs), ways)
    reasons = {}
    for job in np.unique(inputs.candidates.job[ways]).tolist():
        own = np.flatnonzero(inputs.candidates.job[ways] == job)
        # the way that is stopped last: the fewest hindrances, then the best
        at = int(own[np.lexsort((-look.score[own], look.hindered[own].sum(axis=1)))[0]])
        reasons[inputs.candidates.jobs[job].job] = _hindrance(inputs, look, at)
    return reasons


def _hindrance(inputs: PlacementInput, look: _Assessment, at: int) -> str:
    held, outlasting, slow, gain = look.hindered[at].tolist()
    if held and inputs.alone is not None:
        return f"{inputs.candidates.jobs[inputs.alone].job} is to run alone and waits for the host to be empty"
    if held:
        return f"jobs that came {inputs.settings.batch_s:.0f} s or more before it have waited for long and are first"
    if outlasting:
        return "on the CPU it would end after all others, and its GPU is not free"
    if slow:
        wanted = inputs.settings.least_speed
        return f"{_whose(inputs, look, at)} would run at {look.slowest[at]:.2f} of its speed, {wanted:.2f} is the least"
    if gain:
        least = inputs.settings.least_gain
        return f"would add {_signed(look.gain[at])} to the total speed of the host; at least {least:.2f} is wanted"
    return f"may start: it would add {_signed(look.gain[at])} to the total speed of the host"


def _signed(gain: float) -> str:
    """No "-0.00" for what is rounding."""
    return f"{round(float(gain), 2) + 0.0:+.2f}"
