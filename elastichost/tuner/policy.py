"""The tuner of one job: looks at what is counted, fits the model, and decides what should run. Pure.

`advance` is called with every look. When a block of measurement is complete it decides: try another configuration, move
to it for good, go back to the best one known, or settle. Every decision has its reason in words.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.tuner.candidates import Bounds, as_configurations
from elastichost.tuner.choice import Stakes, Values, best_known, values
from elastichost.tuner.facts import Configuration, ConfigurationArray, Observation, Predictions, Workload
from elastichost.tuner.performance import Fit, Prior, fit
from elastichost.tuner.profile import BlockSettings, Look, ProfileState, fold, merged
from elastichost.tuner.space import Search, search_space

__all__ = [
    "Decision",
    "Forecast",
    "Options",
    "TunerSettings",
    "TunerState",
    "absorb",
    "advance",
    "measured",
    "stakes_of",
]

SURE = 0.8  # chance that a move pays, to call it one; and that a "safe" trial holds the floor
DRIFTED = 4.0  # standard errors between two blocks of one configuration: the world has changed
DRIFT_ERROR = 0.04  # blocks differ by as much without any drift
ATTEMPTS = 2  # a configuration that was asked for so often and never measured is left alone
MOST_RETURNS = 12  # to one configuration
RECONSIDER_S = 60.0  # a settled run looks at its candidates again

Kind = Literal["try", "move", "return", "settle"]


class TunerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What does not change while a job runs. moving_s: training lost by a move, until one was measured. most_trials: so
    many configurations are tried for what they may teach; moves that surely pay are not counted."""

    workload: Workload
    bounds: Bounds
    block: BlockSettings = BlockSettings()
    model: str = "elastichost"
    search: Search = "auto"
    explore: Literal["safe", "free", "off"] = "safe"
    floor: float = 0.9
    min_gain: float = 0.03
    moving_s: float = 0.5
    most_trials: int = 8
    seed: int = 0
    prior: Prior | None = None


class Forecast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is expected of one configuration: samples/s, with a 90 % interval."""

    configuration: Configuration
    samples_per_s: float
    low: float
    high: float
    is_extrapolated: bool = False


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`configuration`: what should run from now on. `confidence`: chance that it pays, moving included."""

    kind: Kind
    configuration: Configuration
    reason: str
    present: Forecast | None = None  # what runs, as measured
    expected: Forecast | None = None  # what should run, as predicted
    second: Forecast | None = None  # the next best choice
    gain_s: float = 0.0  # expected saving over the rest of the run, costs taken off
    cost_s: float = 0.0  # of moving
    confidence: float = 0.0
    observed: int = 0  # configurations that were measured
    rank: int = 0  # directions the measurements determine, of `parameters`
    parameters: int = 0


class TunerState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """observations: one a configuration. attempts: how often each was asked for. trials: of them, those for what they
    may teach. moving_s: what the last move cost."""

    profile: ProfileState = ProfileState()
    observations: tuple[Observation, ...] = ()
    attempts: dict[str, int] = {}
    trials: int = 0
    is_settled: bool = False
    considered_s: float = 0.0
    moving_s: float | None = None


def advance(
    state: TunerState, look: Look, samples_left: int, settings: TunerSettings
) -> tuple[TunerState, Decision | None]:
    """Takes one look; a decision when a block is complete and there is something to say."""
    state, block, has_drifted = absorb(state, look, settings)
    if block is None:
        return state, None
    is_due = look.at_s - state.considered_s >= RECONSIDER_S
    if state.is_settled and not has_drifted and not is_due:
        return state, None
    return _decide(state, block, samples_left, settings, look.at_s, "the speed has changed" if has_drifted else "")


def absorb(state: TunerState, look: Look, settings: TunerSettings) -> tuple[TunerState, Observation | None, bool]:
    """Takes one look and decides nothing: what is known then, the block that it completes, and whether that tells that
    the speed has changed."""
    profile, block = fold(state.profile, look, settings.workload, settings.block)
    moving_s = state.moving_s
    if look.moving_s is not None:
        moving_s = look.moving_s if moving_s is None else (moving_s + look.moving_s) / 2
    state = msgspec.structs.replace(state, profile=profile, moving_s=moving_s)
    if block is None:
        return state, None, False
    known = {one.configuration: one for one in state.observations}
    before = known.get(block.configuration)
    has_drifted = before is not None and _has_drifted(before, block)
    if has_drifted:
        known = {}  # what was measured before the change says little of now; the model's prior keeps what it can
    known[block.configuration] = merged(before, block) if before is not None and not has_drifted else block
    return msgspec.structs.replace(state, observations=tuple(known.values())), block, has_drifted


def _has_drifted(before: Observation, block: Observation) -> bool:
    """More than noise between a configuration's earlier measurement and this one."""
    apart = abs(float(np.log(max(block.samples_per_s, 1e-9) / max(before.samples_per_s, 1e-9))))
    return apart > DRIFTED * float(np.sqrt(before.log_error**2 + block.log_error**2 + DRIFT_ERROR**2))


def _decide(
    state: TunerState, block: Observation, samples_left: int, settings: TunerSettings, now_s: float, news: str
) -> tuple[TunerState, Decision | None]:
    observations = state.observations
    stakes = stakes_of(state, samples_left, settings)
    best = best_known(observations, stakes)
    fitted = fit(settings.model, settings.workload, observations, settings.prior)
    options = _options(fitted, block.hot_share, state, settings)
    chosen = _choose(options, best, stakes, settings, state)
    was_settled = state.is_settled
    state = msgspec.structs.replace(state, considered_s=now_s, is_settled=False)
    facts = _Facts(block, best, fitted, stakes, news)
    if chosen is not None:
        return _go(state, options, chosen, facts)
    if best.configuration != block.configuration and state.attempts.get(_key(best.configuration), 0) < MOST_RETURNS:
        text = f"back to {best.configuration}: {_ratio(block, best)}"
        attempted = msgspec.structs.replace(state, attempts=_attempted(state, best.configuration))
        return attempted, facts.decision("return", best, text)
    settled = msgspec.structs.replace(state, is_settled=True)
    if was_settled and not news:
        return settled, None
    second = options.fastest()
    text = f"{best.configuration} stays: {_why_stay(second, best)}"
    return settled, msgspec.structs.replace(facts.decision("settle", best, text), second=second)


def stakes_of(state: TunerState, samples_left: int, settings: TunerSettings) -> Stakes:
    """Something was observed."""
    fastest = max(one.samples_per_s for one in state.observations)
    return Stakes(
        remaining_s=samples_left / max(fastest, 1e-9),
        moving_s=settings.moving_s if state.moving_s is None else state.moving_s,
        block_s=settings.block.least_s + settings.block.warm_up_s,
        min_gain=settings.min_gain,
        most_cores=settings.bounds.cores or settings.bounds.most.cores,
    )


class Options(msgspec.Struct, frozen=True):
    """Configurations that may be chosen and were not measured, and what is expected of them; float64 [n, 4]."""

    space: ConfigurationArray
    predictions: Predictions

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


def _options(fitted: Fit, hot_share: float | None, state: TunerState, settings: TunerSettings) -> Options:
    def speed(array: ConfigurationArray) -> npt.NDArray[np.float64]:
        return fitted.predict(array, hot_share).samples_per_s

    space = search_space(settings.bounds, settings.search, speed, settings.seed)
    out = {_key(one.configuration) for one in state.observations}
    out |= {key for key, times in state.attempts.items() if times >= ATTEMPTS}
    is_open = np.array([_key(c) not in out for c in as_configurations(space)], dtype=np.bool_)
    space = space[is_open]
    return Options(space, fitted.predict(space, hot_share))


class _Chosen(msgspec.Struct, frozen=True):
    index: int
    kind: Kind
    values: Values


def _choose(
    options: Options, best: Observation, stakes: Stakes, settings: TunerSettings, state: TunerState
) -> _Chosen | None:
    """The configuration that is worth most: one that surely pays, else a trial. None: nothing is worth it."""
    if not len(options.space):
        return None
    floor = settings.floor if settings.explore != "free" else 0.0
    worth = values(options.space, options.predictions, best, stakes, floor)
    pays = worth.net_s > 0
    sure = pays & (worth.sure >= SURE) & (worth.holds >= SURE)
    if sure.any():
        return _Chosen(int(np.argmax(np.where(sure, worth.net_s, -np.inf))), "move", worth)
    if settings.explore == "off" or state.trials >= settings.most_trials:
        return None
    safe = pays & (worth.holds >= SURE) if settings.explore == "safe" else pays
    if not safe.any():
        return None
    return _Chosen(int(np.argmax(np.where(safe, worth.net_s, -np.inf))), "try", worth)


class _Facts(msgspec.Struct, frozen=True):
    """What every decision tells."""

    block: Observation
    best: Observation
    fitted: Fit
    stakes: Stakes
    news: str

    def decision(self, kind: Kind, chosen: Observation, text: str) -> Decision:
        """About a configuration that was measured."""
        reason = f"{self.news}; {text}" if self.news else text
        return Decision(
            kind=kind,
            configuration=chosen.configuration,
            reason=reason,
            present=measured(self.block),
            expected=measured(chosen),
            cost_s=self.stakes.moving_s if kind == "return" else 0.0,
            observed=self.fitted.configurations,
            rank=self.fitted.rank,
            parameters=self.fitted.parameters_total,
        )


def _go(state: TunerState, options: Options, chosen: _Chosen, facts: _Facts) -> tuple[TunerState, Decision]:
    expected = options.forecast(chosen.index)
    target = expected.configuration
    trials = state.trials + (chosen.kind == "try")
    state = msgspec.structs.replace(state, attempts=_attempted(state, target), trials=trials)
    gain = expected.samples_per_s / facts.best.samples_per_s - 1
    sure = float(chosen.values.sure[chosen.index])
    text = (
        f"{target} is expected to train {_rate(expected)} samples/s ({gain:+.0%} of the best known, "
        f"{facts.best.configuration}); it pays with {sure:.0%}"
    )
    if chosen.kind == "try":
        text += f", and looking costs {facts.stakes.block_s + 2 * facts.stakes.moving_s:.1f} s at most"
    decision = msgspec.structs.replace(
        facts.decision(chosen.kind, facts.best, text),
        configuration=target,
        expected=expected,
        second=options.fastest(but=chosen.index) or measured(facts.best),
        gain_s=float(chosen.values.net_s[chosen.index]),
        cost_s=facts.stakes.moving_s,
        confidence=sure,
    )
    return state, decision


def _attempted(state: TunerState, target: Configuration) -> dict[str, int]:
    return {**state.attempts, _key(target): state.attempts.get(_key(target), 0) + 1}


def _key(configuration: Configuration) -> str:
    c = configuration
    return f"{c.workers},{c.servers},{c.worker_cores},{c.server_cores}"


def measured(observation: Observation) -> Forecast:
    """What was measured, with the 90 % interval of its error."""
    wide = float(np.exp(1.645 * observation.log_error))
    rate = observation.samples_per_s
    return Forecast(observation.configuration, rate, rate / wide, rate * wide)


def _rate(expected: Forecast) -> str:
    return f"{expected.samples_per_s:,.0f} ({expected.low:,.0f} to {expected.high:,.0f})"


def _ratio(block: Observation, best: Observation) -> str:
    return (
        f"{block.configuration} trains {block.samples_per_s:,.0f} samples/s, "
        f"{best.configuration} {best.samples_per_s:,.0f}"
    )


def _why_stay(second: Forecast | None, best: Observation) -> str:
    speed = f"{best.samples_per_s:,.0f} samples/s measured"
    if second is None:
        return f"{speed}, and every other configuration that is allowed was measured"
    share = second.samples_per_s / best.samples_per_s - 1
    return f"{speed}; of those not measured {second.configuration} is the best: {_rate(second)} ({share:+.0%})"
