"""Rebuilds the knowledge of the tuner: folds its recorded looks again, and fits its model to their measurements. Pure.

The caller feeds the records in order, then reads the results. The tuner starts empty each time it is opened, because a
run may be resumed or rolled back. The model is the one of the last opening that measured anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from elastichost.reporting.run.facts import MeasuredConfiguration, PlanChange, TunerDecision, TunerModelFacts
from elastichost.tuner.facts import Configuration, ConfigurationArray, Observation, Predictions, as_array
from elastichost.tuner.models.base import Fit
from elastichost.tuner.models.registry import fit
from elastichost.tuner.policy.candidates import as_configurations
from elastichost.tuner.policy.policy import Decision, SpeedForecast, TunerSettings, TunerState, absorb, measured
from elastichost.tuner.policy.search_space import search_space
from elastichost.tuner.records import TunerLooked

__all__ = ["Knowledge", "decisions_of_journal", "with_outcomes"]

# Errors of a fit to a record of another version, or to too few measurements.
FIT_ERRORS = (ValueError, ArithmeticError, RuntimeError)
AT_ONCE_S = 0.05  # the recorded time of a plan may be up to this much before the time of its decision
FORETELLING = ("try", "move")  # kinds of decisions with a forecast; the other kinds name what was measured
MOST_CANDIDATES, BEST_CANDIDATES = 240, 40  # candidates that the report has; of these, the best ones without gaps


@dataclass(slots=True)
class _Opening:
    """One incarnation of the tuner. blocks: (at_s, observation) of each block of measurements. state: the tuner's
    state. decided: the recorded decisions; they are not computed again, because each would need a fit. forgot_s: when
    the tuner last discarded its measurements."""

    settings: TunerSettings
    state: TunerState = field(default_factory=TunerState)
    blocks: list[tuple[float, Observation]] = field(default_factory=list)
    decided: list[tuple[float, Decision]] = field(default_factory=list)
    forgot_s: float = float("-inf")

    def look(self, record: TunerLooked, at_s: float) -> None:
        self.state, block, has_drifted = absorb(self.state, record.look, self.settings)
        if block is not None:
            self.blocks.append((at_s, block))
        if has_drifted:
            self.forgot_s = at_s
        if record.decision is not None:
            self.decided.append((at_s, record.decision))

    def times_of(self, configuration: Configuration) -> list[float]:
        """The times at which the blocks of a configuration were complete."""
        return [at_s for at_s, block in self.blocks if block.configuration == configuration]


class Knowledge:
    """Folds the records of the tuner. The caller gives times on the report's axis, in order."""

    def __init__(self) -> None:
        self._openings: list[_Opening] = []
        self._threads: list[tuple[float, int]] = []

    def opened(self, settings: TunerSettings) -> None:
        self._openings.append(_Opening(settings))

    def looked(self, record: TunerLooked, at_s: float) -> None:
        """Folds one look. A look before the first opening comes from a cut record and adds no measurement."""
        if self._openings:
            self._openings[-1].look(record, at_s)
        configuration = record.look.configuration
        if configuration is not None and (not self._threads or self._threads[-1][1] != configuration.worker_cores):
            self._threads.append((at_s, configuration.worker_cores))

    @property
    def threads(self) -> tuple[tuple[float, int], ...]:
        """(at_s, threads of a worker from then on) for each change."""
        return tuple(self._threads)

    def decisions(self) -> tuple[TunerDecision, ...]:
        found: list[TunerDecision] = []
        for opening in self._openings:
            ends = [*(at_s for at_s, _ in opening.decided), float("inf")][1:]
            for (at_s, decision), until_s in zip(opening.decided, ends, strict=True):
                found.append(_told(at_s, decision, _first(opening.blocks, decision.configuration, at_s, until_s)))
        return tuple(found)

    def model(self) -> TunerModelFacts | None:
        """The model of the last opening with measurements; None if no opening has any."""
        measuring = [opening for opening in self._openings if opening.state.observations]
        return _model(measuring[-1]) if measuring else None


def _first(
    blocks: Iterable[tuple[float, Observation]], configuration: Configuration, after_s: float, until_s: float
) -> Observation | None:
    for at_s, block in blocks:
        if after_s < at_s <= until_s and block.configuration == configuration:
            return block
    return None


def _told(at_s: float, decision: Decision, block: Observation | None) -> TunerDecision:
    afterwards = measured(block) if block is not None else None
    gain, before = None, decision.present.samples_per_s if decision.present is not None else 0.0
    if afterwards is not None and before > 0 and decision.kind != "settle":
        gain = afterwards.samples_per_s / before - 1
    return TunerDecision(
        at_s=at_s,
        kind=decision.kind,
        configuration=decision.configuration,
        reason=decision.reason,
        present=decision.present,
        expected=decision.expected,
        measured=afterwards,
        gain=gain,
        gain_s=decision.gain_s,
        cost_s=decision.cost_s,
        confidence=decision.confidence,
    )


def decisions_of_journal(found: Iterable[tuple[float, Decision]]) -> tuple[TunerDecision, ...]:
    """The decisions (at_s, decision) of the journal, for a run without records. They have no measurements."""
    return tuple(_told(at_s, decision, None) for at_s, decision in found)


def _ran(one: TunerDecision) -> bool:
    """Whether the decided configuration was measured afterwards and differs from the one that ran before."""
    was_another = one.present is None or one.present.configuration != one.configuration
    return one.measured is not None and was_another


def with_outcomes(decisions: Sequence[TunerDecision], plans: Sequence[PlanChange]) -> tuple[TunerDecision, ...]:
    """Sets `was_followed` of each decision. A decision was followed if a plan of its size came before the next
    decision; otherwise its measurements are removed, because it did not cause them."""
    if not plans:
        return tuple(decisions)  # without plans in the journal, it is not known which decisions were followed
    told: list[TunerDecision] = []
    ends = [*(one.at_s for one in decisions), float("inf")][1:]
    for one, until_s in zip(decisions, ends, strict=True):
        size = (one.configuration.workers, one.configuration.servers)
        made = [plan for plan in plans if one.at_s - AT_ONCE_S <= plan.at_s < until_s]
        if one.kind == "settle":
            told.append(one)
        elif _ran(one) or any((plan.workers, plan.servers) == size for plan in made):
            told.append(msgspec.structs.replace(one, was_followed=True))
        else:
            told.append(msgspec.structs.replace(one, was_followed=False, measured=None, gain=None))
    return tuple(told)


# --- the model --------------------------------------------------------------------------------------------------------


def _model(opening: _Opening) -> TunerModelFacts:
    settings, observations = opening.settings, opening.state.observations
    bare = TunerModelFacts(
        name=settings.model,
        workload=settings.workload,
        measured=tuple(_measured(opening, observations, {})),
        has_prior=settings.prior is not None,
    )
    try:
        fitted = fit(settings.model, settings.workload, observations, settings.prior)
        hot_share = max(observations, key=lambda one: one.at_s).hot_share
        again = _predicted(fitted, [one.configuration for one in observations], hot_share)
        ranks, candidates, total = _candidates(fitted, settings, hot_share, again)
    except FIT_ERRORS as error:
        return msgspec.structs.replace(bare, problem=str(error))
    return msgspec.structs.replace(
        bare,
        measured=tuple(_measured(opening, observations, again)),
        observations=fitted.observations,
        configurations=fitted.configurations,
        rank=fitted.rank,
        parameters_total=fitted.parameters_total,
        parameters=dict(fitted.parameters),
        spread=dict(fitted.posterior().sd),
        confidence=fitted.confidence,
        candidates=candidates,
        candidate_ranks=ranks,
        candidates_total=total,
    )


def _measured(
    opening: _Opening, observations: Sequence[Observation], fitted: Mapping[Configuration, SpeedForecast]
) -> Iterable[MeasuredConfiguration]:
    """Measured configurations, fastest first, then the forgotten ones."""
    known = {one.configuration for one in observations}
    forgotten = {block.configuration: block for _, block in opening.blocks if block.configuration not in known}
    for one in (*sorted(observations, key=_slowness), *sorted(forgotten.values(), key=_slowness)):
        is_forgotten = one.configuration in forgotten
        times = opening.times_of(one.configuration)
        first_s = times[-1] if is_forgotten else min(at_s for at_s in times if at_s >= opening.forgot_s)
        yield MeasuredConfiguration(
            measured(one),
            one.seconds,
            _before(opening, one.configuration, first_s),
            fitted.get(one.configuration),
            is_forgotten=is_forgotten,
        )


def _slowness(one: Observation) -> float:
    return -one.samples_per_s


def _before(opening: _Opening, configuration: Configuration, first_s: float) -> SpeedForecast | None:
    """The last forecast for a configuration between its previous measurement and `first_s`; None without one."""
    last_s = max((at_s for at_s in opening.times_of(configuration) if at_s < first_s), default=float("-inf"))
    expected = [
        decision.expected
        for at_s, decision in opening.decided
        if last_s <= at_s < first_s and decision.kind in FORETELLING and decision.configuration == configuration
    ]
    return expected[-1] if expected else None


def _predicted(
    fitted: Fit, configurations: Sequence[Configuration], hot_share: float | None
) -> dict[Configuration, SpeedForecast]:
    array = as_array(configurations)
    return dict(zip(configurations, _forecasts(array, fitted.predict(array, hot_share)), strict=True))


def _candidates(
    fitted: Fit, settings: TunerSettings, hot_share: float | None, seen: Collection[Configuration]
) -> tuple[tuple[int, ...], tuple[SpeedForecast, ...], int]:
    """(ranks, forecasts, total number) of the candidates, fastest first. If there are more than MOST_CANDIDATES: the
    best ones, a sample of the others, and those that were measured."""
    space = search_space(
        settings.bounds, "auto", lambda array: fitted.predict(array, hot_share).samples_per_s, settings.seed
    )
    if not len(space):
        return (), (), 0
    predictions = fitted.predict(space, hot_share)
    order = np.argsort(-predictions.samples_per_s, kind="stable")
    places = np.arange(len(order))
    if len(order) > MOST_CANDIDATES:
        rest = np.geomspace(BEST_CANDIDATES, len(order) - 1, MOST_CANDIDATES - BEST_CANDIDATES)
        own = np.flatnonzero([configuration in seen for configuration in as_configurations(space[order])])
        places = np.unique(np.concatenate([places[:BEST_CANDIDATES], np.rint(rest).astype(np.int64), own]))
    chosen = order[places]
    kept = Predictions(*(getattr(predictions, name)[chosen] for name in Predictions.__struct_fields__))
    return tuple(int(place) + 1 for place in places), _forecasts(space[chosen], kept), len(order)


def _forecasts(space: ConfigurationArray, predictions: Predictions) -> tuple[SpeedForecast, ...]:
    columns = (predictions.samples_per_s, predictions.low, predictions.high, predictions.is_extrapolated)
    return tuple(
        SpeedForecast(configuration, float(rate), float(low), float(high), bool(is_extrapolated))
        for configuration, rate, low, high, is_extrapolated in zip(as_configurations(space), *columns, strict=True)
    )
