"""What is chosen to run next: what surely pays, what is worth a look, and what only doubt makes worth one."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from elastichost.tuner.candidates import Bounds
from elastichost.tuner.choice import Stakes
from elastichost.tuner.decision import TunerSettings
from elastichost.tuner.facts import Configuration, Observation, Workload, as_array
from elastichost.tuner.performance import interval
from elastichost.tuner.trials import DARING_TRIALS, MOST_MOVES, Chosen, Options, choose

BEST = Observation(Configuration(8, 1), 100_000.0, 0.01, 20.0, 1000)
OTHERS = (Configuration(7, 1), Configuration(4, 1), Configuration(12, 1))
SETTINGS = TunerSettings(
    Workload(batch_size=1000, host_cores=8),
    Bounds(Configuration(1, 1), Configuration(16, 4, 8), cores=8, oversubscription=2.0),
)
STAKES = Stakes(remaining_s=3600.0, moving_s=0.5, block_s=5.0, min_gain=0.03, most_cores=8, log_error=0.01)


def chosen(
    ratios: tuple[float, float, float],
    errors: tuple[float, float, float],
    unfamiliar: tuple[float, float, float] = (0.0, 0.0, 0.0),
    **more: Any,
) -> Chosen | None:
    """ratios: of the speeds expected of OTHERS over the best known."""
    speeds = np.log(BEST.samples_per_s * np.array(ratios))
    options = Options(
        as_array(OTHERS), interval(speeds, np.array(errors), np.zeros(3, dtype=bool)), np.array(unfamiliar)
    )
    settings = msgspec.structs.replace(SETTINGS, explore=more.pop("explore", "safe"))
    stakes = msgspec.structs.replace(STAKES, remaining_s=more.pop("remaining_s", STAKES.remaining_s))
    return choose(options, BEST, stakes, settings, more.pop("trials", 0), more.pop("moves", 0))


def test_what_surely_pays_is_a_move_and_only_so_often() -> None:
    found = chosen((1.0, 0.9, 1.5), (0.02, 0.02, 0.02))
    assert found is not None and (found.index, found.kind) == (2, "move")
    assert chosen((1.0, 0.9, 1.5), (0.02, 0.02, 0.02), moves=MOST_MOVES, explore="off") is None


def test_what_may_pay_is_tried_if_it_holds_the_floor() -> None:
    found = chosen((1.0, 0.5, 1.02), (0.01, 0.4, 0.05))
    assert found is not None and (found.index, found.kind) == (2, "try")
    unsafe = (0.5, 0.5, 0.5), (0.4, 0.4, 0.4)
    assert chosen(*unsafe) is None
    found = chosen(*unsafe, explore="free")
    assert found is not None and found.kind == "try"


@pytest.mark.parametrize(("trials", "dares"), [(0, True), (DARING_TRIALS, False)])
def test_where_nothing_is_safe_what_promises_much_is_dared_seldom(trials: int, dares: bool) -> None:
    found = chosen((0.5, 0.5, 1.6), (0.4, 0.4, 0.9), trials=trials)
    assert (found is not None and (found.index, found.kind) == (2, "try")) is dares


PLAIN = (0.97, 0.96, 0.96), (0.01, 0.01, 0.01)  # nothing pays, and the model is sure of it


def test_where_the_model_is_sure_that_nothing_pays_what_is_unlike_all_that_was_seen_is_looked_at() -> None:
    assert chosen(*PLAIN) is None
    found = chosen(*PLAIN, unfamiliar=(0.01, 0.3, 0.05))
    assert found is not None and (found.index, found.kind) == (1, "try")


def test_doubt_makes_nothing_safe() -> None:
    assert chosen((0.97, 0.8, 0.96), (0.01, 0.01, 0.01), unfamiliar=(0.0, 0.9, 0.0)) is None


@pytest.mark.parametrize("more", [{"explore": "off"}, {"trials": SETTINGS.most_trials}, {"remaining_s": 30.0}])
def test_nothing_is_looked_at_in_doubt(more: dict[str, Any]) -> None:
    """Where nothing may be tried, or a block that lasts as long as any leaves no time to gain from it."""
    assert chosen(*PLAIN, unfamiliar=(0.0, 0.3, 0.0), **more) is None


def test_what_is_expected_to_pay_goes_before_what_is_doubted() -> None:
    found = chosen((1.03, 0.96, 0.96), (0.03, 0.01, 0.01), unfamiliar=(0.0, 0.5, 0.0))
    assert found is not None and found.index == 0


def test_nothing_to_choose_from() -> None:
    nothing = Options(np.zeros((0, 4)), interval(np.zeros(0), np.zeros(0), np.zeros(0, dtype=bool)), np.zeros(0))
    assert choose(nothing, BEST, STAKES, SETTINGS, 0, 0) is None
