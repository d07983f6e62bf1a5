"""The rows of the simulated clusters: each claim stands beside its counter-cases, and tuning seeds are refused."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.tuner.results.row import Row
from benchmarks.tuner.results.simulated_rows import simulated_rows
from benchmarks.tuner.simulated.columns import Column, column_of
from benchmarks.tuner.simulated.plan import Plan
from benchmarks.tuner.simulated.requests import KINDS
from benchmarks.tuner.simulated.results import MISFIT, Results
from benchmarks.tuner.simulated.runs import Played, play
from elastichost.errors import ConfigError

# what stands for each policy: plans that never change are simulated in no time
STANDS_FOR = {"elastichost": "tuned", "dlrover_rm": "static", "tuned": "static", "static": "static", "oracle": "tuned"}


@pytest.fixture(scope="module")
def columns() -> dict[str, Column]:
    plan = Plan(policies=("static", "tuned"), jobs=6, hosts=2, requests=KINDS)
    played = [play(plan, seed) for seed in (101, 102)]

    def of(kind: str) -> Column:
        seeds: list[dict[str, Played]] = [
            {name: kinds[kind][other] for name, other in STANDS_FOR.items()}  # type: ignore[index]
            for kinds in played
        ]
        return column_of(kind, 0.0, seeds)  # type: ignore[arg-type]

    return {**{kind: of(kind) for kind in KINDS}, MISFIT: msgspec.structs.replace(of("sensible"), misfit=0.2)}


def rows(columns: dict[str, Column], first_seed: int = 101) -> list[Row]:
    plan = Plan(seeds=2, first_seed=first_seed)
    found = Results(plan=plan, is_for_tuning=first_seed < 21, columns=columns, decisions_by_size={}, seconds=1.0)
    return list(simulated_rows(msgspec.Raw(msgspec.json.encode(found))))


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
