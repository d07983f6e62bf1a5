"""The default policy: starts the job that adds most to the total speed of the host, until no job adds enough. Pure.

The gain of a candidate (job, mode, device) is the change of the worth W of the host,

    gain = W(S + j) - W(S),    W(S) = sum over j of v[j] s[j]

S: the running jobs. s[j]: predicted speed of job j as a share of its speed alone. v[j]: speed of its mode as a share of
its fastest mode (`speeds`).

Rules:
- A candidate may start if its gain is at least `least_gain` (0.05), and every job keeps at least `least_speed` (0.35)
  of its speed alone.
- Candidates are compared by  weight * gain + aging - balance * load of the fullest resource of its GPU.  Among those
  within `near_gain` (0.1) of the best, the job with most left starts first, because a batch ends with its longest job.
- While a job waits for its input, and no capacity of the source is known, only `unsure_gain` (0.5) of the gain of a
  further job that waits counts in comparisons.
- No job starves. The score of a job grows without limit while it waits. After `patience_s` (600 s) it is *due*: it
  needs no gain, may slow others twice as much, and jobs that arrived after its batch no longer pass it. So finitely
  many jobs are ahead of it, and they end. When no job runs, a job that fits always starts, whatever its gain.
- A job that must run alone waits until the host is empty. Meanwhile only jobs start that are expected to end before
  that (backfilling: Lifka 1995).
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
FINALISTS = 48  # candidates, best by estimate, that are evaluated exactly; the others only if none of these may start
ESTIMATE_SWEEPS = 9
ESTIMATE_GAIN, ESTIMATE_SPEED = 0.05, 0.8  # tolerances of an estimate: error of a gain, factor of a speed
SLACK = 1e-9  # tolerance of rounding


@dataclass(frozen=True, slots=True)
class _Background:
    """The n computing jobs. demand: float64 [n, width]. value: float64 [n]. speed: float64 [n], predicted and
    corrected. worth: their W. ends_s: float64 [n], seconds until each ends. work_s: as in `candidates.outlasts`."""

    demand: Floats
    value: Floats
    speed: Floats
    worth: float
    ends_s: Floats
    work_s: Floats


@dataclass(frozen=True, slots=True)
class _Assessment:
    """The evaluation of k candidates.

    way: int64 [k], their indices. gain: float64 [k]. slowest: float64 [k], the least speed of all jobs if the candidate
    starts; slowest_at: int64 [k], the index of that job (n: the candidate). own: float64 [k], its own speed. score:
    float64 [k], value in comparisons. hindered: bool, for each reason of WHY whether it prevents the start."""

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
    """Returns the next start; None: no waiting job may start now."""
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
    """The candidates in two groups: the FINALISTS that are best by a rough estimate, then the others. Candidates that
    clearly may not start are left out."""
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
    sure = np.where(_is_unsure(inputs)[ways.job[way]], settings.unsure_gain, 1.0)
    load = bottleneck(ways, base.demand)[way]
    score = weight * np.where(gain > 0, gain * sure, gain) + settings.aging_gain * aged - settings.balance * load
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


def _is_unsure(inputs: PlacementInput) -> Bools:
    """Jobs that wait for their input beside a running one, while it is not known whether they share a full source, bool
    [jobs]."""
    unsure = np.array([job.waits_for_unknown for job in inputs.candidates.jobs], dtype=np.bool_)
    waits = any(one.demand.waits_for_unknown for one in inputs.running if not one.is_paused)
    return unsure & (waits and inputs.settings.input_tracking)


def _corrections(inputs: PlacementInput, way: Whole) -> Floats:
    """Log corrections of the running jobs and of each candidate beside them, float64 [k, n + 1].

    A correction is a mean over neighbours, so a neighbour of an unknown kind (correction 0) would dilute the known
    ones: each further job would seem to speed up jobs that others slow, and far too many jobs would start. Therefore
    the correction of a job never rises when a neighbour is added."""
    running = [one.demand.kind for one in inputs.running if not one.is_paused]
    if not running or not inputs.corrections.pairs:
        return np.zeros((len(way), len(running) + 1))
    kinds = sorted({job.kind for job in inputs.candidates.jobs})
    kind = np.array([kinds.index(job.kind) for job in inputs.candidates.jobs])[inputs.candidates.job[way]]
    among = table(inputs.corrections, running, running)
    among_sum = among.sum(axis=1) - among.diagonal()
    beside = table(inputs.corrections, running, kinds)[:, kind].T
    # each running job has n neighbours: the other running jobs and the candidate; the candidate has all running jobs
    others = len(running) - 1
    own = (among_sum + beside) / len(running)
    own = np.minimum(own, among_sum / others) if others else own
    found: Floats = np.concatenate([own, beside.mean(axis=1, keepdims=True)], axis=1)
    return found


def _held_back(inputs: PlacementInput, way: Whole, own_s: Floats, ends_s: float) -> Bools:
    """Candidates that must not start because another job has priority, bool [k]: a job that must run alone waits for
    the empty host (and the candidate would end later than the running jobs), or a job is due and arrived before the
    candidate's batch. own_s: float64 [k], seconds until the candidate would end."""
    if not inputs.running:
        return np.zeros(len(way), dtype=np.bool_)
    if inputs.alone is not None:
        return own_s > ends_s
    return inputs.arrived_s[inputs.candidates.job[way]] > _due_until_s(inputs)


def _due_until_s(inputs: PlacementInput) -> float:
    """Time of arrival after which jobs wait for a job that is due; inf: no job is due."""
    due = inputs.waits & inputs.possible & ~inputs.rests() & (inputs.waited_s >= inputs.settings.patience_s)
    return float(inputs.arrived_s[due].min(initial=np.inf)) + inputs.settings.batch_s


def _best(inputs: PlacementInput, look: _Assessment) -> int:
    """Index in the assessment: among the candidates nearly as good as the best, the job with most left, in its best
    mode and device."""
    score = np.where(look.allowed, look.score, -np.inf)
    near = score >= score.max() - inputs.settings.near_gain
    left_s = np.array([speeds.seconds_left(job) for job in inputs.candidates.jobs])[inputs.candidates.job[look.way]]
    # the job with most left; ties by score, then by order of arrival
    order = np.lexsort((look.way, -score, -np.where(near, left_s, -np.inf)))
    own = inputs.candidates.job[look.way] == inputs.candidates.job[look.way[order[0]]]
    return int(np.argmax(np.where(own, score, -np.inf)))


# --- sentences --------------------------------------------------------------------------------------------------------


def _reason(inputs: PlacementInput, base: _Background, look: _Assessment, at: int) -> str:
    gain = look.gain[at]
    worth = f"total speed of the host {base.worth:.2f} -> {base.worth + gain:.2f} ({_signed(gain)}) of one job alone"
    if not inputs.running:
        return f"no job runs; {worth}"
    others = int(look.allowed.sum()) - 1
    beaten = f"; best of {others + 1} candidates" if others else ""
    return (
        f"{worth}{beaten}; beside {len(inputs.running)} others it is expected to run at {look.own[at]:.2f} of its "
        f"speed alone, and the slowest job ({_whose(inputs, look, at)}) at {look.slowest[at]:.2f}"
    )


def _whose(inputs: PlacementInput, look: _Assessment, at: int) -> str:
    names = [one.demand.job for one in inputs.running if not one.is_paused]
    index = int(look.slowest_at[at])
    return names[index] if index < len(names) else inputs.candidates.jobs[inputs.candidates.job[look.way[at]]].job


def why_not(inputs: PlacementInput) -> dict[str, str]:
    """Returns job -> reason for which it does not start, for each waiting job for which enough memory is free."""
    ways = np.flatnonzero(inputs.open())
    if not len(ways):
        return {}
    look = _assessed(inputs, _background(inputs), ways)
    alone, reasons = inputs.alone, dict[str, str]()
    jobs, begins = np.unique(inputs.candidates.job[ways], return_index=True)  # the candidates of a job lie side by side
    for job, own in zip(jobs.tolist(), np.split(np.arange(len(ways)), begins[1:]), strict=True):
        # the candidate that is nearest to a start: the fewest reasons against it, then the highest score
        at = int(own[np.lexsort((-look.score[own], look.hindered[own].sum(axis=1)))[0]])
        reasons[inputs.candidates.jobs[job].job] = _hindrance(inputs, look, at, alone)
    return reasons


def _hindrance(inputs: PlacementInput, look: _Assessment, at: int, alone: int | None) -> str:
    """The reason against a candidate. alone: the next job that must run alone."""
    held, outlasting, slow, gain = look.hindered[at].tolist()
    if held and alone is not None:
        return f"{inputs.candidates.jobs[alone].job} must run alone and waits until the host is empty"
    if held:
        return f"jobs that arrived at least {inputs.settings.batch_s:.0f} s earlier have waited long and start first"
    if outlasting:
        return "on the CPU it would end after all other jobs, and no GPU is free for it"
    if slow:
        wanted = inputs.settings.least_speed
        slowest = f"{_whose(inputs, look, at)} would run at {look.slowest[at]:.2f} of its speed alone"
        return f"{slowest}; at least {wanted:.2f} is required"
    if gain:
        least = inputs.settings.least_gain
        return f"would add {_signed(look.gain[at])} to the total speed of the host; at least {least:.2f} is required"
    return f"may start: it would add {_signed(look.gain[at])} to the total speed of the host"


def _signed(gain: float) -> str:
    """A gain with its sign and two digits, never "-0.00"."""
    return f"{round(float(gain), 2) + 0.0:+.2f}"
