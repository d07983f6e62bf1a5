"""The tuner of one job: looks at what is counted, fits the model, and decides what should run. Pure.

`advance` is called with every look. When a block of measurement is complete it decides: try another configuration, move
to it for good, go back to the best one known, or settle. Every decision has its reason in words.
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

SUSPICIOUS = 2.5  # of the sums that tell of a change: half-way to it
FADING = 0.5  # of a change of speed: so doubtful is afterwards what was known before
ATTEMPTS = 2  # a configuration that was asked for so often and never measured is left alone
MOST_RETURNS = 12  # until the speed changes
TIE = 0.005  # configurations that differ by less are equally good
EARLY = 0.1  # what is so much better, in log speed, is not kept waiting until a block is complete; so much is a gain
RECONSIDER_S = 60.0  # a settled run looks at its candidates again, and each time in vain after twice as long


def advance(
    state: TunerState, look: ProfileSample, samples_left: int, settings: TunerSettings
) -> tuple[TunerState, Decision | None]:
    """Takes one look; a decision when a block is complete and there is something to say, or before that when what the
    block says so far is clear."""
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
        return state, None  # a change cut it short
    is_due = look.at_s - state.considered_s >= max(RECONSIDER_S, state.patience_s)
    if state.is_settled and not has_drifted and not is_due:
        return state, None
    return _decide(state, block, samples_left, settings, look.at_s, "the speed has changed" if has_drifted else "")


def _within(settings: TunerSettings, most_workers: int | None) -> TunerSettings:
    bounds = settings.bounds
    if most_workers is None or most_workers >= bounds.most.workers:
        return settings
    most = msgspec.structs.replace(bounds.most, workers=max(bounds.least.workers, most_workers))
    return msgspec.structs.replace(settings, bounds=msgspec.structs.replace(bounds, most=most))


def absorb(
    state: TunerState, look: ProfileSample, settings: TunerSettings
) -> tuple[TunerState, Observation | None, bool]:
    """Takes one look and decides nothing: what is known then, the block that it completes, and whether that tells that
    the speed has changed."""
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
        # the next one tells whether the speed has changed: until then this is not mixed with what was before
        drift = msgspec.structs.replace(drift, references=state.drift.references)
    else:
        observations = joined(observations, block)
    return msgspec.structs.replace(state, observations=observations, faded=faded, drift=drift), block, has_drifted


def _known(state: TunerState) -> tuple[Observation, ...]:
    """What was measured, and of what was not since the speed changed what is left of it."""
    measured_now = {one.configuration for one in state.observations}
    return (*state.observations, *(one for one in state.faded if one.configuration not in measured_now))


def _forgotten(before: TunerState, state: TunerState, block: Observation, settings: TunerSettings) -> TunerState:
    """What was learnt until the speed changed becomes the model's prior, as doubtful as the change is large; and all
    may be tried again."""
    learnt = fit(settings.model, settings.workload, before.observations, _prior(before, settings)).posterior()
    doubt = FADING * change_of(before.observations, block)
    prior = Prior(learnt.mean, {name: float(np.hypot(sd, doubt)) for name, sd in learnt.sd.items()})
    return msgspec.structs.replace(
        state, prior=prior, attempts={}, trials=0, moves=0, returns=0, patience_s=0.0, slow_s=0.0, is_settled=False
    )


def _prior(state: TunerState, settings: TunerSettings) -> Prior | None:
    return settings.prior if state.prior is None else state.prior


# --- what is seen -----------------------------------------------------------------------------------------------------


class _Evidence(msgspec.Struct, frozen=True):
    """What a decision is made from. block: what was measured last; best: known, as corrected by the others;
    advantage: of it over what runs, in log speed, prices off; has_gained: it is much better than the first that was
    measured."""

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
    possible = contains(settings.bounds, ground.seen)  # bounds may be narrower than they were
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
    """float64 [n, 4]: what was neither measured nor asked for in vain."""

    def worth(array: ConfigurationArray) -> npt.NDArray[np.float64]:
        return np.asarray(np.log(ground.at(array).samples_per_s) - price_of(array, costs))

    space = search_space(settings.bounds, settings.search, worth, settings.seed)
    out = [one.configuration for one in state.observations]
    out += [_named(key) for key, times in state.attempts.items() if times >= ATTEMPTS]
    return space[~np.isin(codes(space), codes(as_array(out)))]


def decision_costs(
    state: TunerState, samples_left: int, settings: TunerSettings, block: Observation | None = None
) -> DecisionCosts:
    """Something was observed. block: the next one is taken to be as long and as noisy as that."""
    fastest = max(one.samples_per_s for one in state.observations)
    return DecisionCosts(
        remaining_s=samples_left / max(fastest, 1e-9),
        moving_s=settings.moving_s if state.moving_s is None else state.moving_s,
        block_s=(settings.block.least_s if block is None else block.seconds) + settings.block.warm_up_s,
        min_gain=settings.min_gain,
        most_cores=settings.bounds.cores or settings.bounds.most.cores,
        log_error=0.0 if block is None else block.log_error,
    )


# --- what is decided --------------------------------------------------------------------------------------------------


def _decide(
    state: TunerState, block: Observation, samples_left: int, settings: TunerSettings, now_s: float, news: str
) -> tuple[TunerState, Decision | None]:
    evidence = _seen(state, block, samples_left, settings)
    chosen = _chosen(evidence, settings, state)
    was_settled, patience_s = state.is_settled, 2 * max(RECONSIDER_S, state.patience_s)
    state = msgspec.structs.replace(state, considered_s=now_s, patience_s=0.0, is_settled=False)
    facts = _Facts(evidence, news)
    if chosen is not None:
        return _go(state, chosen, facts)
    if evidence.advantage > _least_advantage(evidence.costs) and state.returns < MOST_RETURNS:
        return _return(state, facts)
    if was_settled and not news:
        return msgspec.structs.replace(state, is_settled=True, patience_s=patience_s), None
    return msgspec.structs.replace(state, is_settled=True), facts.settled()


def _is_telling(before: ProfileState, after: ProfileState, block: BlockSettings) -> bool:
    """The block under way has become as long as the shortest one, or twice, or four times that."""
    return any(before.seconds < times * block.least_s <= after.seconds for times in (1, 2, 4, 8))


def _watched(
    state: TunerState, samples_left: int, settings: TunerSettings, now_s: float
) -> tuple[TunerState, Decision | None]:
    """Leaves a look at once that is clearly below the floor, or that is below it when looks have used up their time
    there. What it has shown counts, though it is no block, so that nobody looks again."""
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
    news = f"below the floor, {settings.floor:.0%} of the best known"
    # what is long enough for a block is counted when the change cuts it short
    kept = known if so_far(state.profile, settings.workload, settings.block) is None else state
    return _return(msgspec.structs.replace(kept, considered_s=now_s), _Facts(evidence, news))


def _decide_early(
    state: TunerState, samples_left: int, settings: TunerSettings, now_s: float
) -> tuple[TunerState, Decision | None]:
    """Leaves what is clearly worse than something else, without waiting until it is known exactly how much."""
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
        trials = settings.most_trials  # looks have used up their time below the floor
    progress = Progress(trials, state.moves, evidence.has_gained, has_changed=state.prior is not None)
    return choose(evidence.options, evidence.best, evidence.costs, settings, progress)


def _gain(evidence: _Evidence, chosen: Chosen) -> float:
    """In log speed, over the best known."""
    return float(np.log(evidence.options.predictions.samples_per_s[chosen.index] / evidence.best.samples_per_s))


def _least_advantage(costs: DecisionCosts) -> float:
    """That going back pays, and is worth the trouble."""
    share = costs.moving_s / costs.remaining_s if costs.remaining_s > 0 else 1.0
    return max(TIE, -float(np.log1p(-share))) if share < 1.0 else float("inf")


class _Facts(msgspec.Struct, frozen=True):
    """What every decision tells."""

    evidence: _Evidence
    news: str

    def decision(self, kind: Kind, text: str) -> Decision:
        """About the best known."""
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
        )

    def settled(self) -> Decision:
        present, best = self.evidence.block.configuration, self.evidence.best
        second = self.evidence.options.fastest()
        if present == best.configuration:
            text = f"{present} stays: {why_stay(second, best)}"
        else:
            text = f"{present} stays: it is as good as the best known, {ratio(self.evidence.block, best)}"
        settled = self.decision("settle", text)
        return msgspec.structs.replace(settled, configuration=present, second=second)


def _return(state: TunerState, facts: _Facts) -> tuple[TunerState, Decision]:
    evidence = facts.evidence
    text = f"back to {evidence.best.configuration}: {ratio(evidence.block, evidence.best)}"
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
        f"{target} is expected to train {rate(expected)} samples/s ({gain:+.0%} of the best known, "
        f"{evidence.best.configuration}); it pays with {sure:.0%}"
    )
    if is_trial:
        text += f", and looking costs {evidence.costs.block_s + 2 * evidence.costs.moving_s:.1f} s at most"
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
