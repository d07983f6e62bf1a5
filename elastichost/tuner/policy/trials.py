"""Chooses which unmeasured configuration runs next, if any: as a move or as a trial. Pure.

A configuration that very probably saves time becomes a move. A configuration that may save time becomes a trial under
these conditions:

- its expected gain is larger than the noise of a block. A smaller gain could not be measured, so the search ends when
  all remaining gains are within the noise;
- it saves more time than it costs until the end of the run (`acquisition.values`); each further trial must save more
  than the one before;
- with `explore = "safe"`, it very probably holds the floor.

No expected speed exceeds the limit that the measured work implies (`models.ceiling`).

The model's errors do not include errors of its form. If the form is wrong, the tuner would stay at a bad plan. Two
rules correct that:

- The *usual plan* is the cold start of a run on a shared host: one worker for each core, and as few PS as allowed. It
  is within 1 % of the best plan in seven of nine recorded cases, which the model does not take into account. A run that
  started with other workers tries the usual plan once, if the measured work allows a gain there that exceeds the noise.
  So a run whose workers already compute all the time does not look at it, whatever the model predicts. Nor does a run
  with more workers than that which wait longer for the PS than they compute: while one waits, another uses its core,
  and fewer workers would leave it idle. In recorded jobs such a run lost 8 to 10 % there; most others gained.
- If trials have already gained much, the first plan was a bad one. Then a trial needs a lower probability to hold the
  floor, and the predicted log speed of configurations that differ from all measured ones may be wrong by UNSEEN. This
  rule ends when all cores are used, and when the usual plan is the best known one.

If there is a usual plan, the noise is that of a comparison of two blocks of different times. If there is none, it is
only the error of one block; after a large gain it is taken as zero, because a model that has seen one configuration may
predict almost no gain for a configuration that is eight times as fast (`sync_stragglers` of `bench tuner`). After a
change of the speed the usual plan is not preferred, because other jobs may use some of its cores.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import Configuration, ConfigurationArray, Observation, Predictions, as_array
from elastichost.tuner.models.ceiling import RELIEF
from elastichost.tuner.policy.acquisition import DecisionCosts, Values, values
from elastichost.tuner.policy.candidates import as_configurations
from elastichost.tuner.policy.decision import Kind, SpeedForecast, TunerSettings
from elastichost.tuner.policy.profile import error_beside_others

__all__ = ["MOST_MOVES", "SURE", "Chosen", "Options", "Progress", "choose"]

Floats = npt.NDArray[np.float64]

SURE = 0.8  # least probability that a move saves time and holds the floor
MOST_MOVES = 16  # largest number of moves until the speed changes; trials do not count
WORTH_MOVING = 0.005  # least expected saving of a move, as a share of the remaining time
WORTH_TRYING, HARDER = 0.003, 1.5  # least expected saving of a trial, as a share; factor on it after each trial
NOISE = 1.0  # least expected gain of a trial, in standard errors of a block
HELD = 0.9  # least probability that a "safe" trial holds the floor; high because the model's first errors are too small
UNSEEN = 0.5  # standard deviation of the model's error in log speed for configurations unlike all measured ones
WORTH_DOUBTING = 0.01  # as WORTH_TRYING, for trials for which the model predicts no gain
# If no trial is safe, up to DARING_TRIALS trials may run that hold the floor with a probability of at least DARING and
# are expected to save at least the share WORTH_DARING of the remaining time.
DARING, DARING_TRIALS, WORTH_DARING = 0.5, 2, 0.2
USUAL_HELD = 0.3  # least probability that the usual plan holds the floor: the model must not be certain that it is bad


class Options(msgspec.Struct, frozen=True):
    """The unmeasured configurations that may be chosen, and their predictions.

    space: float64 [n, 4]. predictions: their `log_error` is that of the difference to the best known configuration.
    unfamiliar, most: float64 [n], as in `residual_gp.Around`."""

    space: ConfigurationArray
    predictions: Predictions
    unfamiliar: Floats
    most: Floats

    def forecast(self, index: int) -> SpeedForecast:
        rows, predicted = as_configurations(self.space[[index]]), self.predictions
        return SpeedForecast(
            rows[0],
            float(predicted.samples_per_s[index]),
            float(predicted.low[index]),
            float(predicted.high[index]),
            bool(predicted.is_extrapolated[index]),
        )

    def fastest(self, *, but: int | None = None) -> SpeedForecast | None:
        """The configuration with the highest predicted speed, without the one at index `but`; None: there is none."""
        speeds = self.predictions.samples_per_s.copy()
        if but is not None:
            speeds[but] = -np.inf
        return self.forecast(int(np.argmax(speeds))) if len(speeds) > (but is not None) else None


class Progress(msgspec.Struct, frozen=True):
    """The progress of a search.

    trials, moves: number of trials and moves so far. has_gained: the best known configuration is much faster than the
    first plan. has_changed: the speed changed during the run for a reason other than the tuner's decisions."""

    trials: int = 0
    moves: int = 0
    has_gained: bool = False
    has_changed: bool = False


class Chosen(msgspec.Struct, frozen=True):
    """The chosen configuration: its index in `Options.space`, whether it is a trial or a move, and all values."""

    index: int
    kind: Kind
    values: Values


def choose(
    options: Options, best: Observation, costs: DecisionCosts, settings: TunerSettings, progress: Progress
) -> Chosen | None:
    """Returns the configuration with the largest net saving among the possible moves and trials; None: no configuration
    fulfils the conditions of the module docstring."""
    if not len(options.space):
        return None
    floor = settings.floor if settings.explore != "free" else 0.0
    exact = msgspec.structs.replace(best, log_error=0.0)  # predictions have the errors of differences to it
    worth = values(options.space, options.predictions, exact, costs, floor, options.most)
    share = _share(worth, costs)
    sure = (share > WORTH_MOVING) & (worth.sure >= SURE) & (worth.holds >= SURE) & (progress.moves < MOST_MOVES)
    if settings.explore == "off" or progress.trials >= settings.most_trials:
        return _most(worth, sure, sure)
    harder, usual = HARDER**progress.trials, _usual(settings)
    is_trusted = usual is not None and not progress.has_changed
    is_relaxed = progress.has_gained and not (is_trusted and best.configuration == usual)
    if is_trusted:
        least_gain = NOISE * error_beside_others(costs.log_error)
    else:
        least_gain = 0.0 if is_relaxed else NOISE * costs.log_error
    promises = worth.gain > least_gain
    held = 0.0 if settings.explore == "free" else SURE if is_relaxed else HELD
    chosen = _most(worth, sure | (promises & (share > WORTH_TRYING * harder) & (worth.holds >= held)), sure)
    if chosen is None and progress.trials < DARING_TRIALS:
        chosen = _most(worth, promises & (share > WORTH_DARING) & (worth.holds >= DARING), sure)
    if chosen is not None:
        return chosen
    doubted = np.zeros(len(options.space))
    allowed = _may_be_the_usual(options, best, usual, least_gain) & (worth.holds >= min(held, USUAL_HELD))
    if allowed.any():
        doubted = _doubted(options, exact, costs, settings, options.most)
        allowed &= doubted > WORTH_TRYING * harder
    if is_relaxed and not allowed.any():
        longest = msgspec.structs.replace(costs, block_s=settings.block.most_s + settings.block.warm_up_s)
        doubted = _doubted(options, exact, longest, settings, options.most * np.exp(-RELIEF))
        allowed = (worth.holds >= held) & (doubted > WORTH_DOUBTING * harder)
    return _most(Values(worth.gain, doubted * costs.remaining_s, worth.sure, worth.holds), allowed, sure)


def _doubted(
    options: Options, best: Observation, costs: DecisionCosts, settings: TunerSettings, most: Floats
) -> Floats:
    """The expected saving of a trial as a share of the remaining time, if the form of the model may be wrong by UNSEEN
    (log speed) times `unfamiliar`; float64 [n]."""
    predicted = options.predictions
    doubted = msgspec.structs.replace(predicted, log_error=np.hypot(predicted.log_error, UNSEEN * options.unfamiliar))
    return _share(values(options.space, doubted, best, costs, settings.floor, most), costs)


def _usual(settings: TunerSettings) -> Configuration | None:
    """The usual plan: the cold start of a run on a shared host. None if processes have their own cores, or GPUs."""
    least, most, cores = settings.bounds.least, settings.bounds.most, settings.workload.host_cores
    if not cores or settings.workload.has_gpus:
        return None
    return msgspec.structs.replace(least, workers=max(least.workers, min(cores, most.workers)))


def _may_be_the_usual(
    options: Options, best: Observation, usual: Configuration | None, least_gain: float
) -> npt.NDArray[np.bool_]:
    """The usual plan, if it has other workers than the best known plan, and the measured work allows more gain there
    than `least_gain` (log speed); bool [n]."""
    own = best.configuration
    is_same = usual is not None and (own.workers, own.worker_cores) == (usual.workers, usual.worker_cores)
    if usual is None or is_same or _needs_more_workers(best, usual):
        return np.zeros(len(options.space), dtype=np.bool_)
    possible = np.log(options.most / best.samples_per_s) - RELIEF
    found: npt.NDArray[np.bool_] = (options.space == as_array([usual])).all(axis=1) & (possible > least_gain)
    return found


def _needs_more_workers(best: Observation, usual: Configuration) -> bool:
    """Whether the best known plan has more workers than the usual one, with no more PS, and they wait longer for the PS
    than they compute."""
    own = best.configuration
    if own.workers <= usual.workers or own.servers > usual.servers or not best.compute_s:
        return False
    return (best.exchange_s or 0.0) > best.compute_s


def _most(worth: Values, allowed: npt.NDArray[np.bool_], sure: npt.NDArray[np.bool_]) -> Chosen | None:
    if not allowed.any():
        return None
    index = int(np.argmax(np.where(allowed, worth.net_s, -np.inf)))
    return Chosen(index, "move" if sure[index] else "try", worth)


def _share(worth: Values, costs: DecisionCosts) -> Floats:
    """The expected net saving of a trial as a share of the remaining time; float64 [n]."""
    return worth.net_s / costs.remaining_s if costs.remaining_s > 0 else np.zeros(len(worth.net_s))
