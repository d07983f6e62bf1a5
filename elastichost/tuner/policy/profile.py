"""Turns the counters of a run into observations of its configurations: with errors, and without disturbed times. Pure.

Step times are noisy and correlated (lag-1 autocorrelation 0.6 to 0.75 in real runs). So the speed of a block is a
robust mean over windows, and its standard error uses the number of independent windows. The first second after a change
of the configuration is left out.
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

USUAL_CORRELATION = 0.65  # prior mean of the correlation of neighbouring windows
USUAL_WINDOWS = 30  # the prior has the weight of this number of windows
OUTLYING = 3.0  # windows farther from the median than this number of standard deviations are clipped to it
LEAST_ERROR = 0.004  # lower limit of the error of a block, because machines drift
MEDIAN_OVER_MEAN = math.sqrt(math.pi / 2)  # standard error of a median over that of a mean of normal values
# Errors between blocks of different times: a standard deviation without any drift, and a factor on the block's error.
WANDERING, DOUBT = 0.04, 1.15


class Totals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Sums since the start of the run over all processes of a role, including processes that ended."""

    batches: float = 0.0  # batches of single workers; in sync mode a worker's parts of a step
    compute_s: float = 0.0
    reader_s: float = 0.0
    exchange_s: float = 0.0
    bytes_moved: float = 0.0
    worker_cpu_s: float = 0.0
    server_cpu_s: float = 0.0
    training_cpu_s: float = 0.0  # the part of `worker_cpu_s` of the training threads; 0: not known
    source_wait_s: float = 0.0  # reading threads waited for bytes of the source
    # Samples of workers with a GPU, and of CPU workers. While both kinds train, the sums above but `server_cpu_s` are
    # those of the CPU workers.
    gpu_samples: float = 0.0
    cpu_samples: float = 0.0


class ProfileSample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The counters of a run at one time.

    configuration: the running configuration according to the plan; None while it is being changed. is_steady: the run
    only trains: no checkpoint, no evaluation, and all processes have work. samples: trained since the start of the run.
    moving_s: seconds of training lost by a change that ended since the sample before; None: no change ended.
    most_workers: the number of workers that memory and start failures allow; None: no known limit."""

    at_s: float
    configuration: Configuration | None
    is_steady: bool
    samples: int
    totals: Totals = Totals()
    hot_share: float | None = None
    moving_s: float | None = None
    most_workers: int | None = None


class BlockSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The length of blocks. A block is complete when it has at least `iterations` iterations, lasts at least `least_s`
    seconds and its standard error is at most `log_error`, or when it lasts `most_s` seconds."""

    least_s: float = 3.0
    most_s: float = 35.0
    iterations: int = 50
    log_error: float = 0.015
    warm_up_s: float = 1.0
    window_s: float = 0.5
    window_iterations: int = 10  # a window counts whole batches; with few batches the rounding adds noise


class ProfileState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The block that is being measured. warm_s: time at which the warm-up ends. edge: the sample at which the current
    window began; None while training is not steady. since, until: samples at the start of the first window and at the
    end of the last one."""

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
    """Folds one sample. Returns an observation if the sample completes a block; then the next block of the same
    configuration begins. A change of the configuration also completes a block, if it is long enough by time and
    iterations."""
    if look.configuration is None or look.configuration != state.configuration:
        began = ProfileState(look.configuration, look.at_s + settings.warm_up_s)
        return began, so_far(state, workload, settings)
    if not look.is_steady:
        # the windows measured so far stay valid; after the disturbance the run must warm up again
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
        return fresh, None  # the run trained nothing in this block, so there is no speed to report
    return fresh, _observation(grown, look, workload)


def so_far(state: ProfileState, workload: Workload, settings: BlockSettings) -> Observation | None:
    """The observation from the block so far, without regard to its error; None: the block is too short."""
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
    """The speed of a block in samples/s: the mean of its windows, where logs are clipped to OUTLYING standard
    deviations around their median. A mean is used because the duration of a run and the times of its processes are
    means too; for windows with a coefficient of variation of 0.5, median and mean differ by 10 %. At least one window
    must be positive."""
    logs = np.log(np.maximum(np.asarray(rates, dtype=np.float64), 1e-9))
    middle = float(np.median(logs))
    reach = OUTLYING * 1.4826 * float(np.median(np.abs(logs - middle)))
    return float(np.exp(np.clip(logs, middle - reach, middle + reach)).mean())


def error_beside_others(log_error: float) -> float:
    """Standard error of a block's log speed in comparisons with blocks of other times. log_error: the block's own."""
    return math.hypot(DOUBT * log_error, WANDERING)


def log_error_of(rates: tuple[float, ...]) -> float:
    """Standard error of the log of the median of `rates`:

        log_error = sd * sqrt(pi / 2) / sqrt(n_eff),   n_eff = n (1 - rho) / (1 + rho)

    n: number of windows. sd: standard deviation of their logs. rho: lag-1 autocorrelation. n_eff: number of independent
    windows. The estimate of rho from few windows is too small by (1 + 4 rho) / n (Kendall, Biometrika 41, 1954) and
    imprecise, so it is corrected and averaged with USUAL_CORRELATION. Deviations that all windows share do not show in
    the spread among them, so sd^2 is the observed variance / (1 - 1 / n_eff). With fewer than 3 windows it is 0.5.
    """
    positive = np.log(np.maximum(np.asarray(rates, dtype=np.float64), 1e-9))
    n = len(positive)
    if n < 3:
        return 0.5
    centred = positive - np.median(positive)
    # the robust estimate, but at least half of the plain standard deviation
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
    # async: an iteration is one batch of one worker. sync: it is one step, of which each worker computes a part.
    iterations = max(1.0, state.samples / workload.batch_size)
    has_both = totals.gpu_samples > 0 and totals.cpu_samples > 0
    gpu_share = totals.gpu_samples / (totals.gpu_samples + totals.cpu_samples) if has_both else 0.0
    workers = state.configuration.workers if workload.mode == "sync" else 1

    def timed(total: float) -> float | None:
        """Seconds per batch. Workers report sums of times and of batches together, a little later than samples."""
        return total / totals.batches if total > 0 and totals.batches > 0 else None

    def used(total: float, processes: float) -> float | None:
        return total / iterations / processes if total > 0 else None

    speed = speed_of(state.rates)
    return Observation(
        configuration=state.configuration,
        samples_per_s=speed,
        log_error=log_error_of(state.rates),
        seconds=state.seconds,
        iterations=int(iterations),
        at_s=look.at_s,
        hot_share=look.hot_share,
        compute_s=timed(totals.compute_s),
        reader_s=timed(totals.reader_s),
        exchange_s=timed(totals.exchange_s),
        server_cpu_s=used(totals.server_cpu_s, 1),
        worker_cpu_s=used(totals.worker_cpu_s, workers * (1.0 - gpu_share)),
        bytes_moved=timed(totals.bytes_moved),
        training_cpu_s=timed(totals.training_cpu_s),
        gpu_samples_per_s=gpu_share * speed if has_both else None,
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
    """Merges two observations of one configuration: speeds weighted by precision, times weighted by iterations. Raises
    ValueError for different configurations."""
    if before.configuration != block.configuration:
        raise ValueError(f"cannot merge observations of {before.configuration} and {block.configuration}")
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
        gpu_samples_per_s=_mean(before, block, "gpu_samples_per_s"),
        **{name: _mean(before, block, name) for name in TIMINGS},
    )


def _mean(before: Observation, block: Observation, name: Timing | Literal["gpu_samples_per_s"]) -> float | None:
    first, second = getattr(before, name), getattr(block, name)
    if first is None or second is None:
        return second if first is None else first  # type: ignore[no-any-return]
    total = max(1, before.iterations + block.iterations)
    return float((first * before.iterations + second * block.iterations) / total)


# --- observations of several configurations ---------------------------------------------------------------------------


def joined(observations: tuple[Observation, ...], block: Observation) -> tuple[Observation, ...]:
    """Adds a block to the observations, one per configuration, in the order of their first measurement."""
    known = {one.configuration: one for one in observations}
    before = known.get(block.configuration)
    known[block.configuration] = block if before is None else merged(before, block)
    return tuple(known.values())


def change_of(observations: tuple[Observation, ...], block: Observation) -> float:
    """The change of log(samples_per_s) of the block's configuration since its earlier observation. Raises ValueError if
    there is none."""
    for one in observations:
        if one.configuration == block.configuration:
            return math.log(block.samples_per_s / one.samples_per_s)
    raise ValueError(f"there is no earlier observation of {block.configuration}")


def rescaled(observations: tuple[Observation, ...], block: Observation, doubt: float) -> tuple[Observation, ...]:
    """Rescales the observations of other configurations after a change of speed, under the assumption that all
    configurations changed by the same factor. Errors grow by `doubt` times the change of the log speed; timings are
    removed."""
    change = change_of(observations, block)
    return tuple(
        msgspec.structs.replace(
            one,
            samples_per_s=one.samples_per_s * math.exp(change),
            log_error=math.hypot(one.log_error, doubt * change),
            gpu_samples_per_s=None if one.gpu_samples_per_s is None else one.gpu_samples_per_s * math.exp(change),
            **dict.fromkeys(TIMINGS),
        )
        for one in observations
        if one.configuration != block.configuration
    )
