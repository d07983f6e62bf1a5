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

from elastichost.tuner.facts import Configuration, Observation
from elastichost.tuner.models.base import Prior
from elastichost.tuner.models.registry import fit
from elastichost.tuner.policy.acquisition import DecisionCosts, best_known
from elastichost.tuner.policy.candidates import within_cores
from elastichost.tuner.policy.decision import Decision, Kind, SpeedForecast, TunerSettings, TunerState, measured
from elastichost.tuner.policy.drift import observe
from elastichost.tuner.policy.evidence import (
    EARLY,
    Evidence,
    attempt_key,
    decision_costs,
    evidence_of,
    known_observations,
    prior_of,
)
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
from elastichost.tuner.policy.trials import SURE, Chosen, Progress, choose

__all__ = [
    "Decision",
    "SpeedForecast",
    "TunerSettings",
    "TunerState",
    "absorb",
    "advance",
    "advance_block",
    "decision_costs",
    "measured",
]

SUSPICIOUS = 2.5  # a drift sum above this value, half of the alarm, keeps a block out of the pooled observations
FADING = 0.5  # after a change of speed, earlier knowledge gets an additional error of this share of the change
MOST_RETURNS = 12  # largest number of returns until the speed changes
TIE = 0.005  # configurations whose log speeds differ by less are equally good
RECONSIDER_S = 60.0  # seconds until a settled run is reconsidered; doubles after each time without a change


def advance(
    state: TunerState, look: ProfileSample, samples_left: int, settings: TunerSettings
) -> tuple[TunerState, Decision | None]:
    """Folds one sample. Returns the new state, and a decision if one is due (see the module docstring)."""
    before, settings = state, _within(settings, look.configuration, look.most_workers)
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
    after = _Block(before, block, has_drifted=has_drifted, has_ended=look.configuration != block.configuration)
    return _measured(state, after, samples_left, settings, look.at_s)


def advance_block(
    state: TunerState,
    block: Observation,
    samples_left: int,
    settings: TunerSettings,
    now_s: float,
    *,
    has_ended: bool = False,
) -> tuple[TunerState, Decision | None]:
    """As `advance`, for a caller that measures whole blocks. It decides what `advance` decides when the last sample of
    the same block is folded. has_ended: another configuration runs by now."""
    before, settings = state, _within(settings, block.configuration, None)
    state, has_drifted = _with_block(state, block)
    after = _Block(before, block, has_drifted=has_drifted, has_ended=has_ended)
    return _measured(state, after, samples_left, settings, now_s)


class _Block(msgspec.Struct, frozen=True):
    """A complete block. before: the state without it. has_drifted: it shows that the speed has changed. has_ended: a
    change of the configuration ended it."""

    before: TunerState
    block: Observation
    has_drifted: bool
    has_ended: bool


def _measured(
    state: TunerState, after: _Block, samples_left: int, settings: TunerSettings, now_s: float
) -> tuple[TunerState, Decision | None]:
    if after.has_drifted:
        state = _forgotten(after.before, state, after.block, settings)
    if after.has_ended:
        return state, None
    is_due = now_s - state.considered_s >= max(RECONSIDER_S, state.patience_s)
    if state.is_settled and not after.has_drifted and not is_due:
        return state, None
    return _decide(state, after.block, samples_left, settings, now_s, has_drifted=after.has_drifted)


def _within(settings: TunerSettings, running: Configuration | None, most_workers: int | None) -> TunerSettings:
    """The settings with the bounds of the moment."""
    bounds = settings.bounds
    if most_workers is not None and most_workers < bounds.most.workers:
        most = msgspec.structs.replace(bounds.most, workers=max(bounds.least.workers, most_workers))
        bounds = msgspec.structs.replace(bounds, most=most)
    if settings.keeps_cores and running is not None:
        bounds = within_cores(bounds, running)
    return settings if bounds is settings.bounds else msgspec.structs.replace(settings, bounds=bounds)


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
    state, has_drifted = _with_block(state, block)
    return state, block, has_drifted


def _with_block(state: TunerState, block: Observation) -> tuple[TunerState, bool]:
    """Adds a complete block to the observations. True: the speed has changed."""
    doubtful = msgspec.structs.replace(block, log_error=error_beside_others(block.log_error))
    drift, has_drifted = observe(state.drift, doubtful)
    observations, faded = state.observations, state.faded
    if has_drifted:
        observations, faded = (block,), rescaled(known_observations(state), block, FADING)
    elif block.configuration in state.drift.references and max(drift.up, drift.down) > SUSPICIOUS:
        # The next block shows whether the speed has changed. Until then this one is not pooled with earlier ones.
        drift = msgspec.structs.replace(drift, references=state.drift.references)
    else:
        observations = joined(observations, block)
    return msgspec.structs.replace(state, observations=observations, faded=faded, drift=drift), has_drifted


def _forgotten(before: TunerState, state: TunerState, block: Observation, settings: TunerSettings) -> TunerState:
    """The state after a detected change of speed. The model that was fitted before becomes the prior, with errors
    widened by FADING times the change. All counters restart, so every configuration may be tried again."""
    learnt = fit(settings.model, settings.workload, before.observations, prior_of(before, settings)).posterior()
    doubt = FADING * change_of(before.observations, block)
    prior = Prior(learnt.mean, {name: float(np.hypot(sd, doubt)) for name, sd in learnt.sd.items()})
    return msgspec.structs.replace(
        state, prior=prior, attempts={}, trials=0, moves=0, returns=0, patience_s=0.0, slow_s=0.0, is_settled=False
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
    evidence = evidence_of(state, block, samples_left, settings)
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
    others = [one for one in known_observations(state) if one.configuration != state.profile.configuration]
    is_look = bool(others) and len(others) == len(known_observations(state))
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
    evidence = evidence_of(known, seen, samples_left, settings)
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
    evidence = evidence_of(known, block, samples_left, settings)
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


def _chosen(evidence: Evidence, settings: TunerSettings, state: TunerState) -> Chosen | None:
    trials = state.trials
    if settings.explore == "safe" and state.slow_s > slow_budget_s(evidence.costs.remaining_s):
        trials = settings.most_trials  # trials have used up their time below the floor, so no more are made
    progress = Progress(trials, state.moves, evidence.has_gained, has_changed=state.prior is not None)
    return choose(evidence.options, evidence.best, evidence.costs, settings, progress)


def _gain(evidence: Evidence, chosen: Chosen) -> float:
    """Predicted log speed of the chosen configuration over that of the best known one."""
    return float(np.log(evidence.options.predictions.samples_per_s[chosen.index] / evidence.best.samples_per_s))


def _least_advantage(costs: DecisionCosts) -> float:
    """The least advantage, in log speed, for which a return saves more time than the move costs; at least TIE."""
    share = costs.moving_s / costs.remaining_s if costs.remaining_s > 0 else 1.0
    return max(TIE, -float(np.log1p(-share))) if share < 1.0 else float("inf")


class _Facts(msgspec.Struct, frozen=True):
    """Builds decisions from the evidence. news: what caused the decision, as the start of its reason; or ""."""

    evidence: Evidence
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
    return {**state.attempts, attempt_key(target): state.attempts.get(attempt_key(target), 0) + 1}
