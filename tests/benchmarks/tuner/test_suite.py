"""The headline of the tuner's benchmarks comes from the columns of the simulated cluster."""

from __future__ import annotations

import pytest

from benchmarks.tuner.suite import QUICK_PLAN, Headline, headline
from tests.benchmarks.tuner.simulated.stand_ins import results_of, stand_in_columns


def test_the_headline_is_of_sensible_requests_and_of_the_best_of_all_rivals() -> None:
    columns = stand_in_columns()
    found = headline(None, results_of(columns))
    sensible, drawn = columns["sensible"], columns["random"]
    ours = sensible.ratios["elastichost"]
    assert (
        found.jct_over_best_of_all_sensible
        == ours[sensible.best_rival].mean
        == max(ours[name].mean for name in ours if name not in ("elastichost", "oracle"))
    )
    assert found.p95_over_tuned == sensible.tail_ratios["elastichost"]["tuned"].mean
    assert found.changes_per_job == 0.0 and found.jct_over_oracle == pytest.approx(1.0)
    assert found.jct_over_best_baseline == drawn.ratios["elastichost"]["static"].mean
    assert found.completion_points_over_static >= 0 and found.policy_shared
    assert {"mape_heldout", "cpu_utilisation_gain", "decision_p99_ms"} <= set(Headline.__struct_fields__)


def test_the_quick_plan_has_what_the_headline_reads() -> None:
    assert {"random", "sensible"} <= set(QUICK_PLAN.requests)
    assert {"static", "optimus", "tuned", "sia", "optimal_allocator", "elastichost", "oracle"} <= set(
        QUICK_PLAN.policies
    )
