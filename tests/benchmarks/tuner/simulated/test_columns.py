"""The best rival is the best of all rivals that were simulated, and never our policy or the oracle."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.simulator.policy_registry import POLICIES
from benchmarks.tuner.simulated.columns import best_of
from benchmarks.tuner.simulated.figures import Figures
from benchmarks.tuner.simulated.plan import PAPER_RIVALS, RIVALS

NEUTRAL = dict.fromkeys(Figures.__struct_fields__, 0.0)


def rows(*means_s: float) -> Sequence[Figures]:
    return [Figures(**{**NEUTRAL, "completion_mean_s": mean_s}) for mean_s in means_s]  # type: ignore[arg-type]


def test_every_policy_but_ours_and_the_oracle_is_a_rival() -> None:
    assert set(RIVALS) == set(POLICIES) - {"elastichost", "oracle"}
    assert {"tuned", "dlrover_rm", "sia", "optimal_allocator", "pollux", *PAPER_RIVALS} <= set(RIVALS)


def test_the_best_of_all_rivals() -> None:
    found = {"static": rows(9.0, 9.0), "optimus": rows(3.0, 8.0), "sia": rows(5.0, 5.0)}
    ours = {"elastichost": rows(1.0, 1.0), "oracle": rows(0.5, 0.5)}
    assert best_of({**ours, **found}) == "sia"
    assert best_of({**ours, **found}, PAPER_RIVALS) == "optimus"
    assert best_of(ours) == "oracle", "without rivals it is the best of what there is"


def test_what_tuned_plans_reach_is_called_tuned() -> None:
    assert best_of({"static": rows(5.0), "tuned": rows(5.0), "sia": rows(6.0)}) == "tuned"
