"""The tuner's knowledge, rebuilt from the records of its looks and decisions."""

from __future__ import annotations

import itertools
import math

import msgspec
import pytest

from elastichost.reporting.run.facts import PlanChange, TunerDecision
from elastichost.reporting.run.knowledge import Knowledge, decisions_of_journal, with_outcomes
from elastichost.tuner.facts import Configuration
from elastichost.tuner.policy.policy import Decision, SpeedForecast
from elastichost.tuner.records import Record, TunerLooked, TunerOpened
from tests.reporting.remains import BEGAN_S, SETTINGS, tuned


def known(records: list[Record]) -> Knowledge:
    """The knowledge after these records."""
    knowledge = Knowledge()
    for record in records:
        if isinstance(record, TunerOpened):
            knowledge.opened(record.settings)
        elif isinstance(record, TunerLooked):
            knowledge.looked(record, record.look.at_s - BEGAN_S)
    return knowledge


def decisions_in(records: list[Record]) -> list[tuple[float, Decision]]:
    """The decisions in the records, with their times in seconds after BEGAN_S."""
    return [
        (one.look.at_s - BEGAN_S, one.decision)
        for one in records
        if isinstance(one, TunerLooked) and one.decision is not None
    ]


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return tuned(90)


def test_every_decision_has_the_measurement_that_followed(records: list[Record]) -> None:
    told = known(records).decisions()
    made = decisions_in(records)
    assert [(one.at_s, one.reason) for one in told] == [(at_s, one.reason) for at_s, one in made]
    changes = [one for one in told if one.kind in ("try", "move")]
    assert changes
    for one, later in itertools.pairwise(told):
        if one.kind in ("try", "move", "return"):
            # the next decision is made from the measurement at the end of a trial
            assert later_present(later, made) == one.configuration
            assert one.measured is not None
            assert one.present is not None
            assert one.gain == pytest.approx(one.measured.samples_per_s / one.present.samples_per_s - 1)
        else:
            assert one.gain is None


def later_present(told: object, made: list[tuple[float, Decision]]) -> Configuration:
    """The configuration that ran when this decision was made."""
    (present,) = [one.present for at_s, one in made if at_s == told.at_s]  # type: ignore[attr-defined]
    assert present is not None
    return present.configuration


def test_the_model_is_shown_with_what_was_measured(records: list[Record]) -> None:
    model = known(records).model()
    assert model is not None
    assert not model.problem
    assert len(model.measured) >= 2
    speeds = [one.measured.samples_per_s for one in model.measured]
    assert speeds == sorted(speeds, reverse=True)
    foretold = {one.configuration: one.expected for _, one in decisions_in(records) if one.kind in ("try", "move")}
    for one in model.measured:
        assert one.before == foretold.get(one.configuration)
        assert one.fitted is not None
        assert one.fitted.low < one.fitted.samples_per_s < one.fitted.high
        assert abs(math.log(one.fitted.samples_per_s / one.measured.samples_per_s)) < 0.35
    assert sum(one.before is None for one in model.measured) == 1  # there is no forecast of the first plan
    assert model.configurations == len(model.measured)
    assert 0 < model.rank <= model.parameters_total
    assert set(model.spread) <= set(model.parameters)


def test_candidates_are_ranked_by_predicted_speed(records: list[Record]) -> None:
    model = known(records).model()
    assert model is not None
    assert model.candidate_ranks == tuple(range(1, model.candidates_total + 1))
    speeds = [one.samples_per_s for one in model.candidates]
    assert speeds == sorted(speeds, reverse=True)
    configurations = {one.configuration for one in model.candidates}
    assert len(configurations) == model.candidates_total
    assert {one.configuration for one in model.measured} <= configurations


def test_very_many_candidates_are_thinned() -> None:
    bounds = msgspec.structs.replace(SETTINGS.bounds, most=Configuration(24, 24, 1, 1), cores=24, oversubscription=1.0)
    settings = msgspec.structs.replace(SETTINGS, bounds=bounds, explore="off")
    model = known(tuned(12, settings=settings)).model()
    assert model is not None
    assert model.candidates_total == 24 * 24
    assert len(model.candidates) == len(model.candidate_ranks) < 300
    assert (model.candidate_ranks[0], model.candidate_ranks[-1]) == (1, 24 * 24)
    assert {one.configuration for one in model.measured} <= {one.configuration for one in model.candidates}


def test_measurements_before_a_change_of_speed_are_forgotten() -> None:
    records = tuned(120, slower=lambda at_s: 1.0 if at_s < 60 else 0.3)
    assert any(one.has_drifted for _, one in decisions_in(records))
    model = known(records).model()
    assert model is not None
    forgotten = [one for one in model.measured if one.is_forgotten]
    assert forgotten
    assert all(one.fitted is None for one in forgotten)
    by_now = [one for one in model.measured if not one.is_forgotten]
    assert max(one.measured.samples_per_s for one in by_now) < min(one.measured.samples_per_s for one in forgotten)


def test_the_model_is_that_of_the_last_opening_with_measurements() -> None:
    first, second = tuned(20), tuned(1, began_s=BEGAN_S + 30)
    knowledge = known([*first, *second])
    model = knowledge.model()
    assert model is not None
    assert model.measured
    assert knowledge.threads[0] == (0.0, 1)


def test_without_measurements_there_is_no_model() -> None:
    assert known([]).model() is None
    assert known(tuned(1)).model() is None
    assert known(tuned(20)[1:]).decisions() == ()  # looks before an opening are ignored


def test_a_failed_fit_is_reported() -> None:
    opened, *looks = tuned(20)
    assert isinstance(opened, TunerOpened)
    unknown = TunerOpened(msgspec.structs.replace(opened.settings, model="of a later version"))
    model = known([unknown, *looks]).model()
    assert model is not None
    assert "of a later version" in model.problem
    assert [one.fitted for one in model.measured] == [None] * len(model.measured)
    assert model.candidates == ()


def test_decisions_of_the_journal_have_no_measurements(records: list[Record]) -> None:
    made = decisions_in(records)
    told = decisions_of_journal(made)
    assert [(one.at_s, one.kind, one.configuration, one.reason) for one in told] == [
        (at_s, one.kind, one.configuration, one.reason) for at_s, one in made
    ]
    assert all(one.measured is None for one in told)


def test_decisions_that_changed_no_plan_are_marked() -> None:
    def decided(at_s: float, kind: str, workers: int, measured_workers: int = 0) -> TunerDecision:
        size, present = Configuration(workers, 1), SpeedForecast(Configuration(1, 1), 100.0, 90.0, 110.0)
        measured = SpeedForecast(size, 120.0, 110.0, 130.0) if measured_workers else None
        return TunerDecision(
            at_s, kind, size, "why", present=present, measured=measured, gain=0.2 if measured else None
        )

    def plan(at_s: float, workers: int) -> PlanChange:
        return PlanChange(1, at_s, workers, 1, "direct", "the tuner wants it")

    decisions = (
        decided(1.0, "try", 2),  # a plan followed
        decided(10.0, "return", 1, 1),  # no plan followed: the size ran already
        decided(20.0, "return", 1, 1),
        decided(30.0, "move", 3),  # a plan of another size followed
        decided(40.0, "settle", 1),
        decided(50.0, "try", 4, 4),  # measured afterwards, but the journal is cut
    )
    plans = (plan(0.0, 1), plan(0.99, 2), plan(31.0, 2))
    told = with_outcomes(decisions, plans)
    assert [one.was_followed for one in told] == [True, False, False, False, None, True]
    assert told[1].measured is None and told[1].gain is None, "a decision that was not followed has no measurement"
    assert told[5].gain == 0.2
    assert with_outcomes(decisions, ()) == decisions, "without plans in the journal, nothing changes"
    assert [one.was_followed for one in told].count(False) == 3
