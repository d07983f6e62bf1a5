"""From what a run counts, look by look, to observations of its configurations: noise-aware, and without what disturbs.

Step times are noisy and correlated (lag-1 autocorrelation 0.6 to 0.75 of real runs), so a block's speed is a robust
mean over windows, and its error counts effective windows only. The first second after a change is left out.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import msgspec
import numpy as np

from elastichost.tuner.facts import Configuration, Observation, Workload

__all__ = [
    "BlockSettings",
    "ProfileSample",
    "ProfileState",
    "Totals",
    "change_of",
    "error_beside_others",
    "fold",
    "joined",
    "log_error_of",
    "merged",
    "rescaled",
    "so_far",
    "speed_of",
]

USUAL_CORRELATION = 0.65  # of neighbouring windows
USUAL_WINDOWS = 30  # so many windows say as much of it as what is usual
OUTLYING = 3.0  # standard deviations from which on a window counts for no more
LEAST_ERROR = 0.004  # what no block's error goes below: machines drift
MEDIAN_OVER_MEAN = math.sqrt(math.pi / 2)  # standard error of a median over that of a mean: robustness has its price
WANDERING, DOUBT = 0.04, 1.15  # blocks differ by as much without any drift; their errors are so much larger than told


class Totals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sums since the run began, over all processes of a role, the ended ones too."""

    batches: float = 0.0  # of one worker; in sync mode its parts of a step
    compute_s: float = 0.0
    reader_s: float = 0.0
    exchange_s: float = 0.0
    bytes_moved: float = 0.0
    worker_cpu_s: float = 0.0
    server_cpu_s: float = 0.0
    training_cpu_s: float = 0.0  # of `worker_cpu_s`, the threads that train; 0: not known


class ProfileSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was counted up to now. `configuration`: what runs, as planned; None while it is being changed.
    `is_steady`: there is nothing but training: no checkpoint, no evaluation, everybody present has work. `moving_s`:
    training that the change lost that was over since the look before. `most_workers`: more would find no memory, or
    could not be started; None: nothing is known that speaks against any number."""

    at_s: float
    configuration: Configuration | None
    is_steady: bool
    samples: int
    totals: Totals = Totals()
    hot_share: float | None = None
    moving_s: float | None = None
    most_workers: int | None = None


class BlockSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A block is long enough when it has `iterations`, lasts `least_s`, and its error is below `log_error`; at the
    latest after `most_s`."""

    least_s: float = 3.0
    most_s: float = 35.0
    iterations: int = 50
    log_error: float = 0.015
    warm_up_s: float = 1.0
    window_s: float = 0.5
    window_iterations: int = 10  # a window counts whole batches: with few of them that is noise of its own


class ProfileState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The block under way. `edge`: the look at which the window under way began, None while training is not steady;
    `since`, `until`: the block's first edge, and its last one."""

    configuration: Configuration | None = None
    warm_s: float = 0.0
    edge: ProfileSample | None = None
    since: ProfileSample | None = None
    rates: tuple[float, ...] = ()  # samples/s of the windows
    seconds: float = 0.0
    totals: Totals = Totals()  # of the block's windows
    samples: int = 0
    until: ProfileSample | None = None


def fold(
    state: ProfileState, look: ProfileSample, workload: Workload, settings: BlockSettings
) -> tuple[ProfileState, Observation | None]:
    """Adds one look. An observation when that completes a block; the next block of the configuration begins then. Also
    when a change cuts a block short that is long enough but for its error."""
    if look.configuration is None or look.configuration != state.configuration:
        began = ProfileState(look.configuration, look.at_s + settings.warm_up_s)
        return began, so_far(state, workload, settings)
    if not look.is_steady:
        # what was measured before counts; what follows has to warm up again
        return msgspec.structs.replace(state, edge=None, warm_s=look.at_s + settings.warm_up_s), None
    if look.at_s < state.warm_s:
        return state, None
    if state.edge is None:
        return msgspec.structs.replace(state, edge=look), None
    seconds, samples = look.at_s - state.edge.at_s, look.samples - state.edge.samples
    least = settings.window_iterations * workload.batch_size
    if seconds < settings.window_s or (samples < least and seconds < settings.most_s / 4):
        return state, None
    grown = ProfileState(
        state.configuration,
        state.warm_s,
        look,
        state.since or state.edge,
        (*state.rates, samples / seconds),
        state.seconds + seconds,
        _add(state.totals, look.totals, state.edge.totals),
        state.samples + samples,
        until=look,
    )
    if not _is_complete(grown, workload, settings):
        return grown, None
    fresh = ProfileState(state.configuration, state.warm_s, look)
    if np.median(grown.rates) <= 0:
        return fresh, None  # it stood still: that is no speed
    return fresh, _observation(grown, look, workload)


def so_far(state: ProfileState, workload: Workload, settings: BlockSettings) -> Observation | None:
    """What the block under way says, however large its error; None: it is too short for anything."""
    if state.until is None or not _is_long(state, workload, settings) or np.median(state.rates) <= 0:
        return None
    return _observation(state, state.until, workload)


def _is_long(state: ProfileState, workload: Workload, settings: BlockSettings) -> bool:
    return state.seconds >= settings.least_s and state.samples >= settings.iterations * workload.batch_size


def _is_complete(state: ProfileState, workload: Workload, settings: BlockSettings) -> bool:
    if state.seconds >= settings.most_s:
        return True
    return _is_long(state, workload, settings) and log_error_of(state.rates) <= settings.log_error


def speed_of(rates: tuple[float, ...]) -> float:
    """Samples/s: the mean of windows, those farther than three standard deviations from the median (of logs) taken to
    be there. A median would be the speed of most windows, but how long a run takes, and what its processes time, are
    means: of windows with a coefficient of variation of 0.5 the two are 10 % apart. Some window is positive."""
    logs = np.log(np.maximum(np.asarray(rates, dtype=np.float64), 1e-9))
    middle = float(np.median(logs))
    reach = OUTLYING * 1.4826 * float(np.median(np.abs(logs - middle)))
    return float(np.exp(np.clip(logs, middle - reach, middle + reach)).mean())


def error_beside_others(log_error: float) -> float:
    """Standard error of a block's log speed where it is compared to a block of another time; log_error: its own."""
    return math.hypot(DOUBT * log_error, WANDERING)


def log_error_of(rates: tuple[float, ...]) -> float:
    """Standard error of the log of the median of `rates`: sd * sqrt(pi/2) / sqrt(n_eff), with
    n_eff = n (1 - rho) / (1 + rho), rho the lag-1 autocorrelation.

    Of few windows rho is found too small by (1 + 4 rho) / n (Kendall, Biometrika 41, 1954) and is hardly known: it is
    weighed against what is usual. What all of them have in common does not show among them: sd^2 is 1 / (1 - 1 / n_eff)
    times what is seen.
    """
    positive = np.log(np.maximum(np.asarray(rates, dtype=np.float64), 1e-9))
    n = len(positive)
    if n < 3:
        return 0.5
    centred = positive - np.median(positive)
    # robust where most windows agree; the plain one where they do not
    spread = max(1.4826 * float(np.median(np.abs(centred))), 0.5 * float(positive.std(ddof=1)))
    rho = USUAL_CORRELATION
    if (power := float((centred**2).sum())) > 0:
        seen = float((centred[1:] * centred[:-1]).sum()) / power
        seen = min(0.95, max(0.0, seen + (1 + 4 * seen) / n))
        rho = (USUAL_WINDOWS * USUAL_CORRELATION + n * seen) / (USUAL_WINDOWS + n)
    effective = max(1.0, n * (1 - rho) / (1 + rho))
    spread /= math.sqrt(max(0.3, 1 - 1 / effective))
    return max(LEAST_ERROR, spread * MEDIAN_OVER_MEAN / math.sqrt(effective))


def _observation(state: ProfileState, look: ProfileSample, workload: Workload) -> Observation:
    assert state.configuration is not None
    totals = state.totals
    # async: an iteration is a worker's batch. sync: a step of all, of which each worker computes its part.
    iterations = max(1.0, state.samples / workload.batch_size)
    workers = state.configuration.workers if workload.mode == "sync" else 1

    def timed(total: float) -> float | None:
        """Workers tell sums of time and of batches together, a little after the samples are counted."""
        return total / totals.batches if total > 0 and totals.batches > 0 else None

    def used(total: float, processes: int) -> float | None:
        return total / iterations / processes if total > 0 else None

    return Observation(
        configuration=state.configuration,
        samples_per_s=speed_of(state.rates),
        log_error=log_error_of(state.rates),
        seconds=state.seconds,
        iterations=int(iterations),
        at_s=look.at_s,
        hot_share=look.hot_share,
        compute_s=timed(totals.compute_s),
        reader_s=timed(totals.reader_s),
        exchange_s=timed(totals.exchange_s),
        server_cpu_s=used(totals.server_cpu_s, 1),
        worker_cpu_s=used(totals.worker_cpu_s, workers),
        bytes_moved=timed(totals.bytes_moved),
        training_cpu_s=timed(totals.training_cpu_s),
    )


def _add(sums: Totals, now: Totals, before: Totals) -> Totals:
    return Totals(
        **{
            name: getattr(sums, name) + max(0, getattr(now, name) - getattr(before, name))
            for name in Totals.__struct_fields__
        }
    )


Timing = Literal["compute_s", "reader_s", "exchange_s", "server_cpu_s", "worker_cpu_s", "bytes_moved", "training_cpu_s"]
TIMINGS: tuple[Timing, ...] = get_args(Timing)


def merged(before: Observation, block: Observation) -> Observation:
    """One observation of a configuration from two: speeds by precision, times by iterations. Raises ValueError for
    different configurations."""
    if before.configuration != block.configuration:
        raise ValueError(f"{before.configuration} and {block.configuration} are not one configuration")
    weights = np.array([before.log_error**-2, block.log_error**-2])
    logs = np.log([max(before.samples_per_s, 1e-9), max(block.samples_per_s, 1e-9)])
    seconds = before.seconds + block.seconds
    return Observation(
        configuration=block.configuration,
        samples_per_s=float(np.exp((weights * logs).sum() / weights.sum())),
        log_error=max(LEAST_ERROR, float(weights.sum() ** -0.5)),
        seconds=seconds,
        iterations=before.iterations + block.iterations,
        at_s=block.at_s,
        hot_share=block.hot_share if block.hot_share is not None else before.hot_share,
        **{name: _mean(before, block, name) for name in TIMINGS},
    )


def _mean(before: Observation, block: Observation, name: Timing) -> float | None:
    first, second = getattr(before, name), getattr(block, name)
    if first is None or second is None:
        return second if first is None else first  # type: ignore[no-any-return]
    total = max(1, before.iterations + block.iterations)
    return float((first * before.iterations + second * block.iterations) / total)


# --- what is known of several -----------------------------------------------------------------------------------------


def joined(observations: tuple[Observation, ...], block: Observation) -> tuple[Observation, ...]:
    """One a configuration, in the order in which they were measured first."""
    known = {one.configuration: one for one in observations}
    before = known.get(block.configuration)
    known[block.configuration] = block if before is None else merged(before, block)
    return tuple(known.values())


def change_of(observations: tuple[Observation, ...], block: Observation) -> float:
    """Of log(samples_per_s), since the block's configuration was measured before. Raises ValueError when it was not."""
    for one in observations:
        if one.configuration == block.configuration:
            return math.log(block.samples_per_s / one.samples_per_s)
    raise ValueError(f"{block.configuration} was not measured before")


def rescaled(observations: tuple[Observation, ...], block: Observation, doubt: float) -> tuple[Observation, ...]:
    """What was measured of others before the speed changed, as it is now if all changed alike: errors grow by `doubt`
    times the change, and of what processes timed nothing is left."""
    change = change_of(observations, block)
    return tuple(
        msgspec.structs.replace(
            one,
            samples_per_s=one.samples_per_s * math.exp(change),
            log_error=math.hypot(one.log_error, doubt * change),
            **dict.fromkeys(TIMINGS),
        )
        for one in observations
        if one.configuration != block.configuration
    )
