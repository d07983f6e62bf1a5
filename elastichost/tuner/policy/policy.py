"""The tuner of one job: measures the running configuration, fits the model, and decides which one should run. Pure.

Rules:
- A decision is made when a block of measurement is complete, or earlier if the block so far is clear.
- Decisions are "try" (another configuration), "move" (to a faster one), "return" (to the best known), "settle" (stay).
- With `explore = "safe"` a trial that is clearly below the floor is left at once.
- A settled run is reconsidered after RECONSIDER_S seconds; after each time without a change the wait doubles.
- A detected change of speed makes old observations doubtful, and allows all trials and moves again.

The docstring of the package has the theory of operation.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import Configuration, ConfigurationArray, Observation, as_array
from elastichost.tuner.models.base import Fit, Prior
from elastichost.tuner.models.registry import fit
from elastichost.tuner.models.residual_gp import Surface, surface
from elastichost.tuner.policy.acquisition import DecisionCosts, best_known, price_of
from elastichost.tuner.policy.candidates import contains
from elastichost.tuner.policy.decision import Decision, Kind, SpeedForecast, TunerSettings, TunerState, measured
from elastichost.tuner.policy.drift import observe
from elastichost.tuner.policy.floor import early_observation, is_below, slow_budget_s
from elastichost.tuner.policy.profile import (
    BlockSettings,
    ProfileSample,
    ProfileState,
    change_of,
    error_beside_others,
    fold,
    joined,
    rescaled,
    so_far,
)
from elastichost.tuner.policy.reasons import rate, ratio, why_stay
from elastichost.tuner.policy.search_space import codes, search_space
from elastichost.tuner.policy.trials import SURE, Chosen, Options, Progress, choose

__all__ = [
    "Decision",
    "SpeedForecast",
    "TunerSettings",
    "TunerState",
    "absorb",
    "advance",
    "decision_costs",
    "measured",
]

SUSPICIOUS = 2.5  # a drift sum above this value, half of the alarm, keeps a block out of the pooled observations
FADING = 0.5  # after a change of speed, earlier knowledge gets an additional error of this share of the change
ATTEMPTS = 2  # a configuration that was decided for this number of times and never measured is not tried again
MOST_RETURNS = 12  # largest number of returns until the speed changes
TIE = 0.005  # configurations whose log speeds differ by less are equally good
EARLY = 0.1  # advantage in log speed that is decided before a block is complete; also the least large gain
RECONSIDER_S = 60.0  # seconds until a settled run is reconsidered; doubles after each time without a change


def advance(
    state: TunerState, look: ProfileSample, samples_left: int, settings: TunerSettings
) -> tuple[TunerState, Decision | None]:
    """Folds one sample. Returns the new state, and a decision if one is due (see the module docstring)."""
    before, settings = state, _within(settings, look.most_workers)
    state, block, has_drifted = absorb(state, look, settings)
    if block is None:
        if len(state.profile.rates) <= len(before.profile.rates):
            return state, None
        state, left = _watched(state, samples_left, settings, look.at_s)
        if left is not None:
            return state, left
        if state.is_settled or not _is_telling(before.profile, state.profile, settings.block):
            return state, None
        return _decide_early(state, samples_left, settings, look.at_s)
    if has_drifted:
        state = _forgotten(before, state, block, settings)
    if look.configuration != block.configuration:
        return state, None  # a change of the configuration ended the block
    is_due = look.at_s - state.considered_s >= max(RECONSIDER_S, state.patience_s)
    if state.is_settled and not has_drifted and not is_due:
        return state, None
    return _decide(state, block, samples_left, settings, look.at_s, has_drifted=has_drifted)


def _within(settings: TunerSettings, most_workers: int | None) -> TunerSettings:
    bounds = settings.bounds
    if most_workers is None or most_workers >= bounds.most.workers:
        return settings
    most = msgspec.structs.replace(bounds.most, workers=max(bounds.least.workers, most_workers))
    return msgspec.structs.replace(settings, bounds=msgspec.structs.replace(bounds, most=most))


def absorb(
    state: TunerState, look: ProfileSample, settings: TunerSettings
) -> tuple[TunerState, Observation | None, bool]:
    """Folds one sample, and decides nothing. Returns the state, a complete block, and whether the speed has changed."""
    profile, block = fold(state.profile, look, settings.workload, settings.block)
    moving_s = state.moving_s
    if look.moving_s is not None:
        moving_s = look.moving_s if moving_s is None else (moving_s + look.moving_s) / 2
    state = msgspec.structs.replace(state, profile=profile, moving_s=moving_s)
    if block is None:
        return state, None, False
    doubtful = msgspec.structs.replace(block, log_error=error_beside_others(block.log_error))
    drift, has_drifted = observe(state.drift, doubtful)
    observations, faded = state.observations, state.faded
    if has_drifted:
        observations, faded = (block,), rescaled(_known(state), block, FADING)
    elif block.configuration in state.drift.references and max(drift.up, drift.down) > SUSPICIOUS:
        # The next block shows whether the speed has changed. Until then this one is not pooled with earlier ones.
        drift = msgspec.structs.replace(drift, references=state.drift.references)
    else:
        observations = joined(observations, block)
    return msgspec.structs.replace(state, observations=observations, faded=faded, drift=drift), block, has_drifted


def _known(state: TunerState) -> tuple[Observation, ...]:
    """The observations since the change of speed, and the rescaled earlier ones of other configurations."""
    measured_now = {one.configuration for one in state.observations}
    return (*state.observations, *(one for one in state.faded if one.configuration not in measured_now))


def _forgotten(before: TunerState, state: TunerState, block: Observation, settings: TunerSettings) -> TunerState:
    """The state after a detected change of speed. The model that was fitted before becomes the prior, with errors
    widened by FADING times the change. All counters restart, so every configuration may be tried again."""
    learnt = fit(settings.model, settings.workload, before.observations, _prior(before, settings)).posterior()
    doubt = FADING * change_of(before.observations, block)
    prior = Prior(learnt.mean, {name: float(np.hypot(sd, doubt)) for name, sd in learnt.sd.items()})
    return msgspec.structs.replace(
        state, prior=prior, attempts={}, trials=0, moves=0, returns=0, patience_s=0.0, slow_s=0.0, is_settled=False
    )


def _prior(state: TunerState, settings: TunerSettings) -> Prior | None:
    return settings.prior if state.prior is None else state.prior


# --- evidence ---------------------------------------------------------------------------------------------------------


class _Evidence(msgspec.Struct, frozen=True):
    """The input of a decision.

    block: the last observation. best: the best known observation, its speed corrected by the model and the other
    observations. advantage: log speed of `best` over that of the running configuration, both less the price of their
    cores. has_gained: `best` is better than the first measured configuration by more than EARLY."""

    block: Observation
    best: Observation
    advantage: float
    fitted: Fit
    costs: DecisionCosts
    options: Options
    has_gained: bool


def _seen(state: TunerState, block: Observation, samples_left: int, settings: TunerSettings) -> _Evidence:
    observations = _known(state)
    state = msgspec.structs.replace(state, observations=observations)
    costs = decision_costs(state, samples_left, settings, block)
    fitted = fit(settings.model, settings.workload, observations, _prior(state, settings))
    ground = surface(fitted, observations, block.hot_share)
    known = ground.at(ground.seen)
    worth = np.log(known.samples_per_s) - price_of(ground.seen, costs)
    own = next(index for index, one in enumerate(observations) if one.configuration == block.configuration)
    possible = contains(settings.bounds, ground.seen)  # the bounds may have become narrower
    possible[own] = True
    best = max(
        np.flatnonzero(possible).tolist(),
        key=lambda index: (worth[index], -observations[index].configuration.cores, -index),
    )
    believed = msgspec.structs.replace(
        observations[best],
        samples_per_s=float(known.samples_per_s[best]),
        log_error=float(known.log_error[best]),
    )
    space = _open_space(ground, state, costs, settings)
    options = Options(space, ground.at(space, beside=best), ground.unfamiliar(space), ground.most(space))
    return _Evidence(
        block, believed, float(worth[best] - worth[own]), fitted, costs, options, float(worth[best] - worth[0]) > EARLY
    )


def _open_space(
    ground: Surface, state: TunerState, costs: DecisionCosts, settings: TunerSettings
) -> ConfigurationArray:
    """The candidates that were not measured, nor decided for ATTEMPTS times in vain; float64 [n, 4]."""

    def worth(array: ConfigurationArray) -> npt.NDArray[np.float64]:
        return np.asarray(np.log(ground.at(array).samples_per_s) - price_of(array, costs))

    space = search_space(settings.bounds, settings.search, worth, settings.seed)
    out = [one.configuration for one in state.observations]
    out += [_named(key) for key, times in state.attempts.items() if times >= ATTEMPTS]
    return space[~np.isin(codes(space), codes(as_array(out)))]


def decision_costs(
    state: TunerState, samples_left: int, settings: TunerSettings, block: Observation | None = None
) -> DecisionCosts:
    """The costs of a decision. The state must have an observation. block: the next block is assumed to be as long and
    as noisy as this one; None: the shortest block without noise."""
    fastest = max(one.samples_per_s for one in state.observations)
    return DecisionCosts(
        remaining_s=samples_left / max(fastest, 1e-9),
        moving_s=settings.moving_s if state.moving_s is None else state.moving_s,
        block_s=(settings.block.least_s if block is None else block.seconds) + settings.block.warm_up_s,
        min_gain=settings.min_gain,
        most_cores=settings.bounds.cores or settings.bounds.most.cores,
        log_error=0.0 if block is None else block.log_error,
    )


# --- decisions --------------------------------------------------------------------------------------------------------


def _decide(
    state: TunerState,
    block: Observation,
    samples_left: int,
    settings: TunerSettings,
    now_s: float,
    *,
    has_drifted: bool,
) -> tuple[TunerState, Decision | None]:
    evidence = _seen(state, block, samples_left, settings)
    chosen = _chosen(evidence, settings, state)
    was_settled, patience_s = state.is_settled, 2 * max(RECONSIDER_S, state.patience_s)
    state = msgspec.structs.replace(state, considered_s=now_s, patience_s=0.0, is_settled=False)
    facts = _Facts(evidence, "the speed has changed" if has_drifted else "", has_drifted=has_drifted)
    if chosen is not None:
        return _go(state, chosen, facts)
    if evidence.advantage > _least_advantage(evidence.costs) and state.returns < MOST_RETURNS:
        return _return(state, facts)
    if was_settled and not has_drifted:
        return msgspec.structs.replace(state, is_settled=True, patience_s=patience_s), None
    return msgspec.structs.replace(state, is_settled=True), facts.settled()


def _is_telling(before: ProfileState, after: ProfileState, block: BlockSettings) -> bool:
    """Whether the block has just reached 1, 2, 4 or 8 times the shortest length; only then is it checked early."""
    return any(before.seconds < times * block.least_s <= after.seconds for times in (1, 2, 4, 8))


def _watched(
    state: TunerState, samples_left: int, settings: TunerSettings, now_s: float
) -> tuple[TunerState, Decision | None]:
    """Returns from a trial that is clearly below the floor, or below it after all trials have used up their time there.
    Its windows become an observation although they are no complete block: the configuration is not tried again."""
    others = [one for one in _known(state) if one.configuration != state.profile.configuration]
    is_look = bool(others) and len(others) == len(_known(state))
    if settings.explore != "safe" or not is_look:
        return state, None
    costs = decision_costs(state, samples_left, settings)
    best = best_known(tuple(others), costs)
    seen = early_observation(state.profile, best, settings.block)
    if seen is None or not is_below(seen, best, settings.floor, errors=0.0):
        return state, None
    last = state.profile.seconds / len(state.profile.rates)
    state = msgspec.structs.replace(state, slow_s=state.slow_s + last)
    if not is_below(seen, best, settings.floor) and state.slow_s <= slow_budget_s(costs.remaining_s):
        return state, None
    known = msgspec.structs.replace(state, observations=joined(state.observations, seen))
    evidence = _seen(known, seen, samples_left, settings)
    if evidence.best.configuration == seen.configuration or state.returns >= MOST_RETURNS:
        return state, None
    news = f"slower than the floor of {settings.floor:.0%} of the best known speed"
    # a block that is long enough becomes an observation when the change ends it, so it is not added here
    kept = known if so_far(state.profile, settings.workload, settings.block) is None else state
    return _return(msgspec.structs.replace(kept, considered_s=now_s), _Facts(evidence, news))


def _decide_early(
    state: TunerState, samples_left: int, settings: TunerSettings, now_s: float
) -> tuple[TunerState, Decision | None]:
    """Leaves a configuration that is clearly slower than another one, before its block is complete."""
    block = so_far(state.profile, settings.workload, settings.block)
    if block is None:
        return state, None
    known = msgspec.structs.replace(state, observations=joined(state.observations, block))
    evidence = _seen(known, block, samples_left, settings)
    chosen = _chosen(evidence, settings, state)
    facts = _Facts(evidence, "")
    if chosen is not None and chosen.kind == "move" and _gain(evidence, chosen) + evidence.advantage > EARLY:
        return _go(msgspec.structs.replace(state, considered_s=now_s), chosen, facts)
    if evidence.advantage <= EARLY + 2 * block.log_error:
        return state, None
    if chosen is not None and chosen.values.holds[chosen.index] >= SURE:
        return _go(msgspec.structs.replace(state, considered_s=now_s), chosen, facts)
    if state.returns < MOST_RETURNS:
        return _return(msgspec.structs.replace(state, considered_s=now_s), facts)
    return state, None


def _chosen(evidence: _Evidence, settings: TunerSettings, state: TunerState) -> Chosen | None:
    trials = state.trials
    if settings.explore == "safe" and state.slow_s > slow_budget_s(evidence.costs.remaining_s):
        trials = settings.most_trials  # trials have used up their time below the floor, so no more are made
    progress = Progress(trials, state.moves, evidence.has_gained, has_changed=state.prior is not None)
    return choose(evidence.options, evidence.best, evidence.costs, settings, progress)


def _gain(evidence: _Evidence, chosen: Chosen) -> float:
    """Predicted log speed of the chosen configuration over that of the best known one."""
    return float(np.log(evidence.options.predictions.samples_per_s[chosen.index] / evidence.best.samples_per_s))


def _least_advantage(costs: DecisionCosts) -> float:
    """The least advantage, in log speed, for which a return saves more time than the move costs; at least TIE."""
    share = costs.moving_s / costs.remaining_s if costs.remaining_s > 0 else 1.0
    return max(TIE, -float(np.log1p(-share))) if share < 1.0 else float("inf")


class _Facts(msgspec.Struct, frozen=True):
    """Builds decisions from the evidence. news: what caused the decision, as the start of its reason; or ""."""

    evidence: _Evidence
    news: str
    has_drifted: bool = False

    def decision(self, kind: Kind, text: str) -> Decision:
        """A decision for the best known configuration."""
        evidence = self.evidence
        return Decision(
            kind=kind,
            configuration=evidence.best.configuration,
            reason=f"{self.news}; {text}" if self.news else text,
            present=measured(evidence.block),
            expected=measured(evidence.best),
            cost_s=evidence.costs.moving_s if kind == "return" else 0.0,
            observed=evidence.fitted.configurations,
            rank=evidence.fitted.rank,
            parameters=evidence.fitted.parameters_total,
            has_drifted=self.has_drifted,
        )

    def settled(self) -> Decision:
        """A decision to keep the running configuration."""
        present, best = self.evidence.block.configuration, self.evidence.best
        second = self.evidence.options.fastest()
        if present == best.configuration:
            text = f"keep {present}: {why_stay(second, best)}"
        else:
            text = f"keep {present}: about as good as the best known; {ratio(self.evidence.block, best)}"
        settled = self.decision("settle", text)
        return msgspec.structs.replace(settled, configuration=present, second=second)


def _return(state: TunerState, facts: _Facts) -> tuple[TunerState, Decision]:
    evidence = facts.evidence
    text = f"return to {evidence.best.configuration}: {ratio(evidence.block, evidence.best)}"
    return msgspec.structs.replace(state, returns=state.returns + 1), facts.decision("return", text)


def _go(state: TunerState, chosen: Chosen, facts: _Facts) -> tuple[TunerState, Decision]:
    evidence = facts.evidence
    expected = evidence.options.forecast(chosen.index)
    target, is_trial = expected.configuration, chosen.kind == "try"
    state = msgspec.structs.replace(
        state,
        attempts=_attempted(state, target),
        trials=state.trials + is_trial,
        moves=state.moves + (not is_trial),
    )
    gain = expected.samples_per_s / evidence.best.samples_per_s - 1
    sure = float(chosen.values.sure[chosen.index])
    text = (
        f"{'try' if is_trial else 'move to'} {target}: predicted {rate(expected)}, {gain:+.0%} against the best known, "
        f"{evidence.best.configuration}; it saves time with a probability of {sure:.0%}"
    )
    if is_trial:
        text += f"; the trial costs at most {evidence.costs.block_s + 2 * evidence.costs.moving_s:.1f} s"
    decision = msgspec.structs.replace(
        facts.decision(chosen.kind, text),
        configuration=target,
        expected=expected,
        second=evidence.options.fastest(but=chosen.index) or measured(evidence.best),
        gain_s=float(chosen.values.net_s[chosen.index]),
        cost_s=evidence.costs.moving_s,
        confidence=sure,
    )
    return state, decision


def _attempted(state: TunerState, target: Configuration) -> dict[str, int]:
    return {**state.attempts, _key(target): state.attempts.get(_key(target), 0) + 1}


def _key(configuration: Configuration) -> str:
    c = configuration
    return f"{c.workers},{c.servers},{c.worker_cores},{c.server_cores}"


def _named(key: str) -> Configuration:
    return Configuration(*map(int, key.split(",")))
