"""Which of the configurations that were not measured should run next, if any. Pure.

First what surely pays, and what is worth a look by what is believed of the errors of predictions. When that is nothing,
these errors are doubted. They come from a model that fits what was measured, and where it is wrong in its form it is
sure all the same: so what is unlike all that was measured may be off by more. That makes a look worth more, and never
one safe: only what holds the floor by the model's own errors is tried for it, and where a block of any length pays.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.tuner.candidates import as_configurations
from elastichost.tuner.choice import Stakes, Values, values
from elastichost.tuner.decision import Forecast, Kind, TunerSettings
from elastichost.tuner.facts import ConfigurationArray, Observation, Predictions

__all__ = ["MOST_MOVES", "SURE", "Chosen", "Options", "choose"]

Floats = npt.NDArray[np.float64]

SURE = 0.8  # chance that a move pays, to call it one; and that a "safe" trial holds the floor
MOST_MOVES = 16  # until the speed changes; trials are not counted
WORTH_MOVING = 0.005  # of the time that is left: a move that is expected to save less is left alone
WORTH_TRYING, HARDER = 0.003, 1.5  # the same of a trial; after each one so many times as much
UNSEEN = 0.5  # standard deviation, in log speed, by which the model may be wrong where nothing alike was measured
# where nothing is safe, so often what is rather safe than not is tried, if it is expected to save that much
DARING, DARING_TRIALS, WORTH_DARING = 0.5, 2, 0.2


class Options(msgspec.Struct, frozen=True):
    """Configurations that may be chosen and were not measured, and what is expected of them; float64 [n, 4].
    predictions: their `log_error` is of the difference to the best known; unfamiliar: as in `kriging.Surface`."""

    space: ConfigurationArray
    predictions: Predictions
    unfamiliar: Floats

    def forecast(self, index: int) -> Forecast:
        rows, predicted = as_configurations(self.space[[index]]), self.predictions
        return Forecast(
            rows[0],
            float(predicted.samples_per_s[index]),
            float(predicted.low[index]),
            float(predicted.high[index]),
            bool(predicted.is_extrapolated[index]),
        )

    def fastest(self, *, but: int | None = None) -> Forecast | None:
        """By prediction; None: there is none (but that one)."""
        speeds = self.predictions.samples_per_s.copy()
        if but is not None:
            speeds[but] = -np.inf
        return self.forecast(int(np.argmax(speeds))) if len(speeds) > (but is not None) else None


class Chosen(msgspec.Struct, frozen=True):
    index: int
    kind: Kind
    values: Values


def choose(
    options: Options,
    best: Observation,
    stakes: Stakes,
    settings: TunerSettings,
    trials: int,
    moves: int,
) -> Chosen | None:
    """The configuration that is worth most, of those that surely pay and those that may be tried. None: nothing is
    worth it. trials, moves: so many were made."""
    if not len(options.space):
        return None
    floor = settings.floor if settings.explore != "free" else 0.0
    exact = msgspec.structs.replace(best, log_error=0.0)  # the predictions' errors are of differences to it
    worth = values(options.space, options.predictions, exact, stakes, floor)
    share = _share(worth, stakes)
    sure = (share > WORTH_MOVING) & (worth.sure >= SURE) & (worth.holds >= SURE) & (moves < MOST_MOVES)
    if settings.explore == "off" or trials >= settings.most_trials:
        return _most(worth, sure, sure)
    enough, is_safe = WORTH_TRYING * HARDER**trials, worth.holds >= (SURE if settings.explore == "safe" else 0.0)
    chosen = _most(worth, sure | ((share > enough) & is_safe), sure)
    if chosen is None and trials < DARING_TRIALS:
        chosen = _most(worth, (share > WORTH_DARING) & (worth.holds >= DARING), sure)
    if chosen is None:
        longest = msgspec.structs.replace(stakes, block_s=settings.block.most_s + settings.block.warm_up_s)
        doubted = values(options.space, _doubted(options), exact, longest, floor)
        worth = Values(doubted.net_s, worth.sure, worth.holds)
        chosen = _most(worth, (_share(worth, stakes) > enough) & is_safe, sure)
    return chosen


def _most(worth: Values, allowed: npt.NDArray[np.bool_], sure: npt.NDArray[np.bool_]) -> Chosen | None:
    if not allowed.any():
        return None
    index = int(np.argmax(np.where(allowed, worth.net_s, -np.inf)))
    return Chosen(index, "move" if sure[index] else "try", worth)


def _share(worth: Values, stakes: Stakes) -> Floats:
    """Of the time that is left, that a look is expected to save; float64 [n]."""
    return worth.net_s / stakes.remaining_s if stakes.remaining_s > 0 else np.zeros(len(worth.net_s))


def _doubted(options: Options) -> Predictions:
    predicted = options.predictions
    return msgspec.structs.replace(predicted, log_error=np.hypot(predicted.log_error, UNSEEN * options.unfamiliar))
