"""Tables use seeds on which no constant was chosen; other tables are marked and not reported."""

from __future__ import annotations

import pytest

from benchmarks.tuner.simulated.conditions.seeds import (
    QUICK_SEED,
    TABLE_SEED,
    TUNING_SEEDS,
    is_for_tuning,
    require_unseen,
)
from benchmarks.tuner.simulated.plan import Plan
from benchmarks.tuner.suite import QUICK_PLAN
from elastichost.errors import ConfigError


def test_the_default_tables_use_unseen_seeds() -> None:
    for plan in (Plan(), QUICK_PLAN):
        assert not is_for_tuning(plan.first_seed, plan.seeds)
    assert Plan().first_seed == TABLE_SEED and QUICK_PLAN.first_seed == QUICK_SEED


def test_one_seed_of_the_constants_is_enough_to_refuse() -> None:
    last = max(TUNING_SEEDS)
    assert is_for_tuning(last, 1) and is_for_tuning(0, 1) and not is_for_tuning(last + 1, 50)
    require_unseen(last + 1, 50)
    with pytest.raises(ConfigError, match="would flatter") as caught:
        require_unseen(last - 1, 4)
    assert "--first-seed" in str(caught.value.hint)
