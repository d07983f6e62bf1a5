"""The rows of the simulated clusters: each claim stands beside its counter-cases, and tuning seeds are refused."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from benchmarks.tuner.results.row import Row
from benchmarks.tuner.results.simulated_rows import simulated_rows
from benchmarks.tuner.simulated.columns import Column
from benchmarks.tuner.simulated.results import MISFIT
from elastichost.errors import ConfigError
from tests.benchmarks.tuner.simulated.stand_ins import results_of, stand_in_columns


@pytest.fixture(scope="module")
def columns() -> dict[str, Column]:
    found = stand_in_columns()
    return {**found, MISFIT: msgspec.structs.replace(found["sensible"], misfit=0.2)}


def rows(columns: Mapping[str, Column], first_seed: int = 101) -> list[Row]:
    return list(simulated_rows(msgspec.Raw(msgspec.json.encode(results_of(columns, first_seed)))))


def test_each_claim_stands_beside_its_counter_cases(columns: dict[str, Column]) -> None:
    found = rows(columns)
    for words in ("requests drawn at random", "sensible requests:", "well-tuned requests", "20 % off every model"):
        own = [row for row in found if words in row.what]
        assert any("over the best of all rivals" in row.what for row in own)
        for counter in ("well-tuned manual plans", "over DLRover-RM", "over an oracle", "changes per job"):
            assert any("counter-case" in row.what and counter in row.what for row in own), (words, counter)
    used = [row for row in found if "used over allocated" in row.what]
    assert {row.what.split(":")[0] for row in used} == {"sensible requests", "well-tuned requests"}


def test_the_verdict_of_a_claim_follows_its_figure(columns: dict[str, Column]) -> None:
    for name, column in columns.items():
        ratio = column.ratios["elastichost"][column.best_rival]
        row = next(row for row in rows({name: column}) if "best of all rivals" in row.what)
        assert column.best_rival in row.what and row.ours == ratio.shown(".2f")
        assert (row.reached == "**no**") is (ratio.mean > 0.65)


def test_seeds_of_the_constants_are_refused(columns: dict[str, Column]) -> None:
    with pytest.raises(ConfigError, match="would flatter"):
        rows(columns, first_seed=20)
