"""The choice of the next configuration: moves, trials with an expected gain, and trials because the model may err."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from elastichost.tuner.facts import Configuration, Observation, Workload, as_array
from elastichost.tuner.models.base import interval
from elastichost.tuner.policy.acquisition import DecisionCosts
from elastichost.tuner.policy.candidates import Bounds
from elastichost.tuner.policy.decision import TunerSettings
from elastichost.tuner.policy.trials import DARING_TRIALS, MOST_MOVES, Chosen, Options, Progress, choose

BEST = Observation(Configuration(8, 1), 100_000.0, 0.01, 20.0, 1000)
OTHERS = (Configuration(7, 1), Configuration(4, 1), Configuration(12, 1))
SETTINGS = TunerSettings(
    Workload(batch_size=1000, host_cores=8),
    Bounds(Configuration(1, 1), Configuration(16, 4, 8), cores=8, oversubscription=2.0),
)
STAKES = DecisionCosts(remaining_s=3600.0, moving_s=0.5, block_s=5.0, min_gain=0.03, most_cores=8, log_error=0.01)

PROGRESS = {"trials": 0, "moves": 0, "has_gained": False, "has_changed": False}
ELSEWHERE = msgspec.structs.replace(BEST, configuration=Configuration(9, 1))


def chosen(
    ratios: tuple[float, float, float],
    errors: tuple[float, float, float],
    unfamiliar: tuple[float, float, float] = (0.0, 0.0, 0.0),
    **more: Any,
) -> Chosen | None:
    """ratios: predicted speeds of OTHERS / best known speed. most: the speed limits of OTHERS / best known speed."""
    best, others = more.pop("best", BEST), more.pop("others", OTHERS)
    speeds = np.log(best.samples_per_s * np.array(ratios))
    options = Options(
        as_array(others),
        interval(speeds, np.array(errors), np.zeros(3, dtype=bool)),
        np.array(unfamiliar),
        best.samples_per_s * np.array(more.pop("most", (np.inf,) * 3)),
    )
    costs = msgspec.structs.replace(
        STAKES,
        remaining_s=more.pop("remaining_s", STAKES.remaining_s),
        log_error=more.pop("log_error", STAKES.log_error),
    )
    progress = Progress(*(more.pop(name, default) for name, default in PROGRESS.items()))
    explore = more.pop("explore", "safe")
    settings = msgspec.structs.replace(
        SETTINGS, explore=explore, workload=msgspec.structs.replace(SETTINGS.workload, **more)
    )
    return choose(options, best, costs, settings, progress)


def test_a_very_probable_saving_is_a_move_up_to_most_moves() -> None:
    found = chosen((1.0, 0.9, 1.5), (0.02, 0.02, 0.02))
    assert found is not None and (found.index, found.kind) == (2, "move")
    assert chosen((1.0, 0.9, 1.5), (0.02, 0.02, 0.02), moves=MOST_MOVES, explore="off") is None


def test_a_possible_saving_is_tried_if_it_holds_the_floor() -> None:
    found = chosen((1.0, 0.5, 1.06), (0.01, 0.4, 0.07))
    assert found is not None and (found.index, found.kind) == (2, "try")
    unsafe = (1.05, 1.05, 1.05), (0.3, 0.3, 0.3)
    assert chosen(*unsafe) is None
    found = chosen(*unsafe, explore="free")
    assert found is not None and found.kind == "try"


@pytest.mark.parametrize(("trials", "dares"), [(0, True), (DARING_TRIALS, False)])
def test_if_no_trial_is_safe_a_large_gain_is_tried_a_few_times(trials: int, dares: bool) -> None:
    found = chosen((0.5, 0.5, 1.6), (0.4, 0.4, 0.9), trials=trials)
    assert (found is not None and (found.index, found.kind) == (2, "try")) is dares


PLAIN = (0.97, 0.96, 0.96), (0.01, 0.01, 0.01)  # no configuration saves time, with small errors
STRANGE = (0.01, 0.3, 0.05)


def test_a_configuration_without_expected_gain_is_not_tried() -> None:
    """This holds for wide intervals, too: the configuration may be faster by a half, and much time remains."""
    assert chosen((0.98, 0.97, 0.5), (0.15, 0.3, 0.01), explore="free") is None
    assert chosen((1.05, 0.97, 0.5), (0.15, 0.3, 0.01), explore="free") is not None


def test_the_search_ends_when_gains_are_below_the_noise_of_a_block() -> None:
    """The noise is the error of one block, or on a shared host that of two blocks of different times."""
    small, larger = ((1.02, 0.9, 0.9), (0.03, 0.01, 0.01)), ((1.055, 0.9, 0.9), (0.07, 0.01, 0.01))
    assert chosen(*small, log_error=0.01, host_cores=0) is not None
    assert chosen(*small, log_error=0.03, host_cores=0) is None
    assert chosen(*small, log_error=0.01) is None and chosen(*larger, log_error=0.01) is not None
    assert chosen(*larger, log_error=0.04) is None


def test_after_a_change_of_speed_the_usual_plan_is_not_preferred() -> None:
    """Other processes may have taken some of its cores."""
    small = (1.02, 0.9, 0.9), (0.03, 0.01, 0.01)
    assert chosen(*small, has_changed=True) is not None
    assert chosen(*PLAIN, unfamiliar=STRANGE, has_gained=True, has_changed=True) is not None


def test_a_configuration_above_the_limit_of_measured_work_is_not_chosen() -> None:
    sure = (1.5, 0.5, 0.5), (0.02, 0.01, 0.01)
    found = chosen(*sure, most=(1.6, 9.0, 9.0))
    assert found is not None and (found.index, found.kind) == (0, "move")
    for explore in ("safe", "free"):
        assert chosen(*sure, most=(0.85, 9.0, 9.0), explore=explore) is None


def test_a_trial_whose_speed_limit_is_below_the_floor_is_not_made() -> None:
    """The limit from the measured work is below the floor, whatever the model predicts."""
    unsure = (1.3, 0.5, 0.5), (0.5, 0.01, 0.01)
    assert chosen(*unsure) is not None, "the expected gain is large"
    assert chosen(*unsure, most=(0.89, 9.0, 9.0)) is None


def test_unfamiliar_configurations_are_tried_only_after_trials_have_gained_much() -> None:
    assert chosen(*PLAIN, unfamiliar=STRANGE, best=ELSEWHERE) is None
    assert chosen(*PLAIN, has_gained=True, best=ELSEWHERE) is None
    found = chosen(*PLAIN, unfamiliar=STRANGE, has_gained=True, best=ELSEWHERE)
    assert found is not None and (found.index, found.kind) == (1, "try")
    used = chosen(*PLAIN, unfamiliar=STRANGE, has_gained=True, best=ELSEWHERE, most=(1.02, 1.02, 1.02))
    assert used is None, "all cores are used"
    assert chosen(*PLAIN, unfamiliar=STRANGE, has_gained=True) is None, "the usual plan is the best known"


def test_model_error_does_not_make_a_trial_safe() -> None:
    assert (
        chosen((0.97, 0.8, 0.96), (0.01, 0.01, 0.01), unfamiliar=(0.0, 0.9, 0.0), has_gained=True, best=ELSEWHERE)
        is None
    )


@pytest.mark.parametrize("more", [{"explore": "off"}, {"trials": SETTINGS.most_trials}, {"remaining_s": 30.0}])
def test_no_unfamiliar_trial_without_permission_or_time(more: dict[str, Any]) -> None:
    """Either no trials are allowed, or the longest block leaves no time to gain from it."""
    assert chosen(*PLAIN, unfamiliar=(0.0, 0.3, 0.0), has_gained=True, best=ELSEWHERE, **more) is None


def test_trials_with_expected_gain_precede_unfamiliar_ones() -> None:
    found = chosen((1.06, 0.96, 0.96), (0.03, 0.01, 0.01), unfamiliar=(0.0, 0.5, 0.0), has_gained=True, best=ELSEWHERE)
    assert found is not None and found.index == 0


USUAL = Configuration(8, 1)


@pytest.mark.parametrize(("workload", "looks"), [({}, True), ({"host_cores": 0}, False), ({"has_gpus": True}, False)])
def test_a_run_with_another_first_plan_tries_the_usual_plan(workload: dict[str, Any], looks: bool) -> None:
    """The usual plan has a worker for each core and one PS; it exists where processes share the cores of a host."""
    elsewhere = msgspec.structs.replace(BEST, configuration=Configuration(12, 4))
    found = chosen(
        (0.95, 0.96, 0.96), (0.08, 0.01, 0.01), (0.4, 0.3, 0.0), best=elsewhere, others=(USUAL, *OTHERS[1:]), **workload
    )
    assert (found is not None and found.index == 0) is looks
    sure = chosen((0.8, 0.96, 0.96), (0.02, 0.01, 0.01), (0.4, 0.3, 0.0), best=elsewhere, others=(USUAL, *OTHERS[1:]))
    assert sure is None, "the model predicts with small errors that the usual plan is bad"


@pytest.mark.parametrize(
    ("first", "exchange_s", "looks"),
    [
        (Configuration(12, 1), 0.02, False),  # while one worker waits for the PS, another uses its core
        (Configuration(12, 1), 0.005, True),  # its workers mostly compute, and only crowd each other
        (Configuration(12, 1), None, True),
        (Configuration(12, 4), 0.02, True),  # fewer PS may be the reason for waiting less
        (Configuration(4, 1), 0.02, True),  # more workers may hide the waiting
    ],
)
def test_workers_that_wait_longer_than_they_compute_are_not_made_fewer(
    first: Configuration, exchange_s: float | None, looks: bool
) -> None:
    elsewhere = msgspec.structs.replace(BEST, configuration=first, compute_s=0.01, exchange_s=exchange_s)
    found = chosen((0.95, 0.96, 0.96), (0.08, 0.01, 0.01), (0.4, 0.3, 0.0), best=elsewhere, others=(USUAL, *OTHERS[1:]))
    assert (found is not None and found.index == 0) is looks


@pytest.mark.parametrize(
    ("first", "most", "looks"),
    [
        (Configuration(4, 4), 1.6, True),
        (Configuration(4, 4), 1.1, False),  # its workers already compute all the time
        (Configuration(8, 4), 1.6, False),  # the usual plan has the same workers, and fewer PS promise no gain
    ],
)
def test_the_usual_plan_is_tried_only_where_measured_work_allows_a_gain(
    first: Configuration, most: float, looks: bool
) -> None:
    found = chosen(
        (1.0, 0.9, 0.9),
        (0.2, 0.01, 0.01),
        (0.4, 0.0, 0.0),
        best=msgspec.structs.replace(BEST, configuration=first),
        others=(USUAL, Configuration(7, 1), Configuration(12, 1)),
        most=(most, 9.0, 9.0),
    )
    assert (found is not None) is looks


def test_without_candidates_there_is_no_choice() -> None:
    none = np.zeros(0)
    nothing = Options(np.zeros((0, 4)), interval(none, none, np.zeros(0, dtype=bool)), none, none)
    assert choose(nothing, BEST, STAKES, SETTINGS, Progress()) is None
