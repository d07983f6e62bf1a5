"""Which of the configurations that were not measured should run next, if any. Pure.

What surely pays is moved to. A look at what may pay has to be worth it:

- its expected gain is larger than the noise of a block: a smaller one would not be seen, so that the search ends where
  all that is left is within the noise;
- it saves more than it costs, within the time that is left (`acquisition.values`), and each further look has to save
more;
- it holds the floor, with `explore = "safe"`.

No expectation exceeds what measured work leaves possible (`ceiling`).

A model is sure of its own form, and where that is wrong it stays at a plan that is not good. Two things are done about
that. The usual plan, with which a run on a shared host begins when nothing is known, has a worker for each core and as
few PS as may be. It is within 1 % of the best in seven of nine recorded cases, and the model does not know that: a run
that began elsewhere looks there once. And where looks have gained much already, the first plan was a bad one: a look
may be less sure to hold the floor, and what is unlike all that was measured may be off by UNSEEN. What that may gain
ends where all cores are used. It also ends when the usual plan is the best known: there the run would have been left
alone.

With a usual plan, noise is that of two blocks of different times. Without one it is only what the windows of a block
say of it, and no noise counts after much was gained: a model that has seen one configuration may expect nearly nothing
of another that is eight times as fast (`sync_stragglers` of `bench tuner`). After the speed has changed the usual plan
is not trusted: others may have taken some of its cores.
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

SURE = 0.8  # chance that a move pays, to call it one, and that it holds the floor
MOST_MOVES = 16  # until the speed changes; trials are not counted
WORTH_MOVING = 0.005  # of the time that is left: a move that is expected to save less is left alone
WORTH_TRYING, HARDER = 0.003, 1.5  # the same of a trial; after each one so many times as much
NOISE = 1.0  # of the standard error of a block: what is expected to gain no more is not looked at
HELD = 0.9  # chance that a "safe" look holds the floor, by the model's own errors: these are too small at first
UNSEEN = 0.5  # standard deviation, in log speed, by which the model may be wrong where nothing alike was measured
WORTH_DOUBTING = 0.01  # as WORTH_TRYING, where the model says that nothing is gained
# where nothing is safe, so often what is rather safe than not is tried, if it is expected to save that much
DARING, DARING_TRIALS, WORTH_DARING = 0.5, 2, 0.2
USUAL_HELD = 0.3  # the same chance of the usual plan: the model must not be sure that it is bad


class Options(msgspec.Struct, frozen=True):
    """Configurations that may be chosen and were not measured, and what is expected of them; float64 [n, 4].
    predictions: their `log_error` is of the difference to the best known; unfamiliar, most: as in
    `residual_gp.Surface`."""

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
        """By prediction; None: there is none (but that one)."""
        speeds = self.predictions.samples_per_s.copy()
        if but is not None:
            speeds[but] = -np.inf
        return self.forecast(int(np.argmax(speeds))) if len(speeds) > (but is not None) else None


class Progress(msgspec.Struct, frozen=True):
    """Of a search: looks and moves that were made, whether the best known is much better than the first plan, and
    whether the speed has changed since the run began, by nothing that the tuner did."""

    trials: int = 0
    moves: int = 0
    has_gained: bool = False
    has_changed: bool = False


class Chosen(msgspec.Struct, frozen=True):
    index: int
    kind: Kind
    values: Values


def choose(
    options: Options, best: Observation, costs: DecisionCosts, settings: TunerSettings, progress: Progress
) -> Chosen | None:
    """The configuration that is worth most, of those that surely pay and those that may be tried. None: nothing is
    worth it."""
    if not len(options.space):
        return None
    floor = settings.floor if settings.explore != "free" else 0.0
    exact = msgspec.structs.replace(best, log_error=0.0)  # the predictions' errors are of differences to it
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
    doubted = _doubted(options, exact, costs, settings, options.most)
    allowed = (worth.holds >= min(held, USUAL_HELD)) & (doubted > WORTH_TRYING * harder)
    allowed &= False if usual is None else (options.space == as_array([usual])).all(axis=1)
    if is_relaxed and not allowed.any():
        longest = msgspec.structs.replace(costs, block_s=settings.block.most_s + settings.block.warm_up_s)
        doubted = _doubted(options, exact, longest, settings, options.most * np.exp(-RELIEF))
        allowed = (worth.holds >= held) & (doubted > WORTH_DOUBTING * harder)
    return _most(Values(worth.gain, doubted * costs.remaining_s, worth.sure, worth.holds), allowed, sure)


def _doubted(
    options: Options, best: Observation, costs: DecisionCosts, settings: TunerSettings, most: Floats
) -> Floats:
    """Of the time that is left, that a look is expected to save if the model may be wrong in its form; float64 [n]."""
    predicted = options.predictions
    doubted = msgspec.structs.replace(predicted, log_error=np.hypot(predicted.log_error, UNSEEN * options.unfamiliar))
    return _share(values(options.space, doubted, best, costs, settings.floor, most), costs)


def _usual(settings: TunerSettings) -> Configuration | None:
    """What a run on a shared host begins with when nothing is known; None where processes have cores of their own, or
    GPUs."""
    least, most, cores = settings.bounds.least, settings.bounds.most, settings.workload.host_cores
    if not cores or settings.workload.has_gpus:
        return None
    return msgspec.structs.replace(least, workers=max(least.workers, min(cores, most.workers)))


def _most(worth: Values, allowed: npt.NDArray[np.bool_], sure: npt.NDArray[np.bool_]) -> Chosen | None:
    if not allowed.any():
        return None
    index = int(np.argmax(np.where(allowed, worth.net_s, -np.inf)))
    return Chosen(index, "move" if sure[index] else "try", worth)


def _share(worth: Values, costs: DecisionCosts) -> Floats:
    """Of the time that is left, that a look is expected to save; float64 [n]."""
    return worth.net_s / costs.remaining_s if costs.remaining_s > 0 else np.zeros(len(worth.net_s))
