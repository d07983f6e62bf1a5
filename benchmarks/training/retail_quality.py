"""Quality on real data: the retail job with every access, mode, kind of table and model, and while it is scaled.

`elastichost bench retail-quality --data DIR` trains one epoch of each case. DIR holds train.parquet and test.parquet
with the columns of examples/retail.toml. One fbgemm process reaches AUC 0.766 with the same model and learning rates.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from benchmarks.harness.benchmark import Benchmark, Figure
from benchmarks.harness.interleave import Rounds
from benchmarks.harness.runner import exit_code, print_outcomes, run
from benchmarks.harness.training_run import EXAMPLES, TrainingResult, train

__all__ = ["Case", "benchmark_of", "cases", "main"]

FIXED = {"tables.default.rows": 65536, "tables.default.out_of_range": "modulo"}
# Wide & deep has no explicit interactions: it needs wider vectors and larger initial values than the other models.
WIDE_DEEP = {
    "tables.default.dim": 64,
    "tables.default.init": "uniform(-0.1, 0.1)",
    "tables.item.pooling": "sum",
    "train.optimizer_rows.lr": 0.2,
}
FIGURES = (
    Figure[TrainingResult]("AUC", "", lambda one: one.test.auc, form=".5f"),
    Figure[TrainingResult]("log loss", "", lambda one: one.test.logloss, form=".5f"),
    Figure[TrainingResult]("samples/s", "", lambda one: one.samples_per_s, form=",.0f"),
)
MODELS: dict[str, Mapping[str, object]] = {"wide_deep": WIDE_DEEP, "deepfm": {}, "dcn": {}, "xdeepfm": {}}


@dataclass(frozen=True, slots=True)
class Case:
    """One run: its name in the table, its settings, and its changes of size as (samples, argument of `scale`)."""

    name: str
    settings: Mapping[str, object] = field(default_factory=dict)
    sizes: tuple[tuple[int, str], ...] = ()


def cases() -> Iterator[Case]:
    """All cases: dlrm with 2 workers in eight combinations and in variants, dlrm with other sizes, then the other
    models with direct access."""
    for access, mode, tables in product(("direct", "served"), ("async", "bounded"), ("dynamic", "fixed")):
        settings: dict[str, object] = {
            "train.access": access,
            "train.mode": mode,
            **(FIXED if tables == "fixed" else {}),
        }
        yield Case(f"dlrm {access} {mode} {tables}", settings)
    for access in ("direct", "served"):
        yield Case(f"dlrm {access} bfloat16 rows", {"train.access": access, "tables.default.precision": "bfloat16"})
    yield Case("dlrm direct, not fused", {"model.fused": "false"})
    for access in ("direct", "served"):
        one = {"train.access": access, "resources.workers": 1}
        yield Case(f"dlrm {access}, one worker", one)
        yield Case(f"dlrm {access}, 1 -> 3 -> 1 workers", one, ((300_000, "workers=3"), (1_100_000, "workers=1")))
        yield Case(f"dlrm {access}, 1 -> 2 -> 1 PS", one, ((300_000, "servers=2"), (1_100_000, "servers=1")))
    for model, more in MODELS.items():
        yield Case(model, {"model.build": f"elastichost.models:{model}", "model.args": "{}", **more})


def benchmark_of(data: Path, chosen: str, repeat: int, runs: Path) -> Benchmark[TrainingResult]:
    """The benchmark of all cases with `chosen` in their name."""
    common = {
        "data.train": f'["{data}/train.parquet"]',
        "data.test": f'["{data}/test.parquet"]',
        "resources.workers": 2,
    }

    def arm(case: Case, place: int) -> Callable[[int], TrainingResult]:
        settings = {**common, **case.settings}
        return lambda number: train(EXAMPLES / "retail.toml", settings, runs / f"{place}-{number}", case.sizes)

    return Benchmark(
        title="the retail job",
        arms={case.name: arm(case, place) for place, case in enumerate(cases()) if chosen in case.name},
        rounds=Rounds(repeat),
        figures=FIGURES,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="elastichost bench retail-quality", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.parquet and test.parquet")
    parser.add_argument("--repeat", type=int, default=1, help="runs of every case")
    parser.add_argument("--only", default="", help="run only cases with this text in their name")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as runs:
        outcome = run(benchmark_of(chosen.data.resolve(), chosen.only, chosen.repeat, Path(runs)))
    print_outcomes([outcome])
    return exit_code([outcome])
