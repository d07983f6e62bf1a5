"""Quality on real data: one epoch of the retail job in every access, mode and kind of table, scaled meanwhile, and with
every model.

`python -m benchmarks.training.retail_quality --data DIR`: DIR holds train.parquet and test.parquet with the columns of
examples/retail.toml. One fbgemm process reaches AUC 0.766 with the same model and learning rates.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from benchmarks.harness.training_run import EXAMPLES, train

FIXED = {"tables.default.rows": 65536, "tables.default.out_of_range": "modulo"}
# Wide & deep has no explicit interactions: it needs wider vectors and more of a start than the others.
WIDE_DEEP = {
    "tables.default.dim": 64,
    "tables.default.init": "uniform(-0.1, 0.1)",
    "tables.item.pooling": "sum",
    "train.optimizer_rows.lr": 0.2,
}
MODELS: dict[str, Mapping[str, object]] = {"wide_deep": WIDE_DEEP, "deepfm": {}, "dcn": {}, "xdeepfm": {}}


@dataclass(frozen=True, slots=True)
class Case:
    """One run: its name in the table, what it sets, and how its size changes: after so many samples, to this."""

    name: str
    settings: Mapping[str, object] = field(default_factory=dict)
    sizes: tuple[tuple[int, str], ...] = ()


def cases() -> Iterator[Case]:
    """dlrm with 2 workers in all eight ways and in two variants, then the other models with direct access."""
    for access, mode, tables in product(("direct", "served"), ("async", "bounded"), ("dynamic", "fixed")):
        settings = {"train.access": access, "train.mode": mode, **(FIXED if tables == "fixed" else {})}
        yield Case(f"dlrm {access} {mode} {tables}", settings)
    for access in ("direct", "served"):
        yield Case(f"dlrm {access} bfloat16 rows", {"train.access": access, "tables.default.precision": "bfloat16"})
    yield Case("dlrm direct, not fused", {"model.fused": "false"})
    for access in ("direct", "served"):
        one = {"train.access": access, "resources.workers": 1}
        yield Case(f"dlrm {access}, one worker", one)
        yield Case(f"dlrm {access}, 1 -> 3 -> 1 workers", one, ((300_000, "workers=3"), (1_100_000, "workers=1")))
        yield Case(f"dlrm {access}, 1 -> 2 -> 1 PS", one, ((300_000, "servers=2"), (1_100_000, "servers=1")))
    for model, settings in MODELS.items():
        yield Case(model, {"model.build": f"elastichost.models:{model}", "model.args": "{}", **settings})


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training.retail_quality", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with train.parquet and test.parquet")
    parser.add_argument("--repeat", type=int, default=1, help="runs of every case")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    chosen = parser.parse_args(arguments)
    data = chosen.data.resolve()
    common = {
        "data.train": f'["{data}/train.parquet"]',
        "data.test": f'["{data}/test.parquet"]',
        "resources.workers": 2,
    }
    print(f"| {'case':<33} | {'AUC':>7} | {'log loss':>8} | {'samples/s':>9} |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as runs:
        for number, case in enumerate(case for case in cases() if chosen.only in case.name):
            for repeat in range(chosen.repeat):
                run_dir = Path(runs) / f"{number}-{repeat}"
                found = train(EXAMPLES / "retail.toml", {**common, **case.settings}, run_dir, case.sizes)
                test = found.test
                print(
                    f"| {case.name:<33} | {test.auc:.5f} | {test.logloss:8.5f} | {found.samples_per_s:9,.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
