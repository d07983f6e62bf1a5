"""Quality of multi-task, sequence and two-tower models, beside a plain torchrec loop of the same mathematics.

`elastichost bench models` trains each job on samples of its own for every seed: with `elastichost run` as it is, with
`train.mode = "sync"`, and in the loop of `benchmarks.models.plain_loop`. It prints AUC (the mean over labels),
recall@10 of the vectors of two towers, and the differences of a seed with their 95 % interval (Student's t). With
`--data DIR`, a folder with train.parquet and test.parquet that have the columns of examples/retail.toml, DIN is also
trained on these.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy import stats

from benchmarks.harness.aggregates import Interval
from benchmarks.harness.aims import Aim
from benchmarks.harness.benchmark import Benchmark, Figure, PairedFigure
from benchmarks.harness.interleave import Rounds
from benchmarks.harness.outcome import Outcome
from benchmarks.harness.output import write_json
from benchmarks.harness.runner import exit_code, print_outcomes, run, say
from benchmarks.harness.training_run import EXAMPLES, train
from benchmarks.models.plain_loop import train_plainly
from benchmarks.models.recall import Floats, recall_at
from elastichost.config.job import load_job
from elastichost.results.export import export

__all__ = ["Case", "Quality", "benchmark_of", "figures_of", "main", "student_interval"]

PLAIN, RUN, SYNC = "plain loop", "elastichost", "elastichost, sync"
LEAST_DIFFERENCE = -0.003  # of the means over seeds: a model that is worse by more than this has lost something
K = 10
RETAIL: Mapping[str, object] = {
    "model.build": "elastichost.models:din",
    "model.args": '{ attention = { recent_items = "item" }, attention_hidden = [16], hidden = [64, 16] }',
}


@dataclass(frozen=True, slots=True)
class Quality:
    """The result of one training. recall: None for a model without vectors."""

    auc: float
    recall: float | None


@dataclass(frozen=True, slots=True)
class Case:
    """A job of `examples`. folder: its samples; {} stands for the seed. has_vectors: of the columns user and item."""

    name: str
    job: Path
    folder: str
    settings: Mapping[str, object] = field(default_factory=dict)
    has_vectors: bool = False

    def settings_of(self, folder: Path, seed: int) -> dict[str, object]:
        return {
            "data.train": f'["{folder}/train.parquet"]',
            "data.test": f'["{folder}/test.parquet"]',
            "job.seed": seed,
            **self.settings,
        }


def student_interval(values: Sequence[float]) -> Interval:
    """The mean with its 95 % interval by Student's t; without a width for one value."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return Interval(mean, mean, mean)
    half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return Interval(mean, mean - half, mean + half)


def benchmark_of(case: Case, seeds: int, workers: int, runs: Path) -> Benchmark[Quality]:
    """The benchmark of one job. runs: a folder for runs and exports."""

    def plainly(number: int) -> Quality:
        folder, settings = _facts(case, number)
        job = load_job(case.job, [f"{key}={value}" for key, value in settings.items()], environ={})
        trained = train_plainly(job)
        recall = None
        if case.has_vectors:
            recall = _recall(folder, *(trained.vectors(name, folder / f"{name}s.parquet") for name in ("user", "item")))
        return Quality(float(np.mean(trained.aucs)), recall)

    def with_elastichost(more: Mapping[str, object], name: str, number: int) -> Quality:
        folder, settings = _facts(case, number)
        run_dir = runs / f"{case.name}-{name}-{number}"
        found = train(case.job, {"resources.workers": workers, **settings, **more}, run_dir)
        recall = None
        if case.has_vectors:
            files = {name: folder / f"{name}s.parquet" for name in ("user", "item")}
            written = export(run_dir, run_dir / "exported", vectors=files).vectors
            recall = _recall(folder, *(np.array(pq.read_table(file)["vector"].to_pylist(), "f4") for file in written))
        return Quality(found.test.auc, recall)

    arms: dict[str, Callable[[int], Quality]] = {
        PLAIN: plainly,
        RUN: partial(with_elastichost, {}, "run"),
        SYNC: partial(with_elastichost, {"train.mode": '"sync"'}, "sync"),
    }
    figures = [Figure[Quality]("AUC", "", lambda one: one.auc, student_interval, ".4f")]
    pairs = [_pair("AUC", arm, lambda one, other: one.auc - other.auc) for arm in (RUN, SYNC)]
    if case.has_vectors:
        figures.append(Figure[Quality](f"recall@{K}", "", lambda one: one.recall, student_interval, ".4f"))
        pairs += [
            PairedFigure[Quality](
                f"recall@{K}, {arm} - {PLAIN}", "", arm, PLAIN, _more_recall, student_interval, "+.4f"
            )
            for arm in (RUN, SYNC)
        ]
    return Benchmark(
        title=f"{case.name}: mean of {seeds} seeds and its 95 % interval",
        arms=arms,
        rounds=Rounds(seeds),
        figures=tuple(figures),
        pairs=tuple(pairs),
        aims=tuple(Aim(pair.name, LEAST_DIFFERENCE, "at least", form="+.4f") for pair in pairs),
        case=case.name,
    )


def _facts(case: Case, number: int) -> tuple[Path, dict[str, object]]:
    """(the folder with the samples, the settings) of a round."""
    folder = Path(case.folder.format(number + 1))
    return folder, case.settings_of(folder, number + 1)


def _pair(name: str, arm: str, of: Callable[[Quality, Quality], float]) -> PairedFigure[Quality]:
    return PairedFigure(f"{name}, {arm} - {PLAIN}", "", arm, PLAIN, of, student_interval, "+.4f")


def _more_recall(one: Quality, other: Quality) -> float:
    assert one.recall is not None and other.recall is not None
    return one.recall - other.recall


def _recall(folder: Path, users: Floats, items: Floats) -> float:
    """Recall of the items that users took in the test data. The vectors are of users.parquet and items.parquet."""
    ids = {name: pq.read_table(folder / f"{name}s.parquet").column(name).to_numpy() for name in ("user", "item")}
    test = pq.read_table(folder / "test.parquet", filters=[("label", "=", 1), ("item", "in", ids["item"].tolist())])
    places = [np.searchsorted(ids[name], test.column(name).to_numpy()) for name in ("user", "item")]
    return recall_at(K, users, items, places[0], places[1])


def _write_samples(folder: Path, seeds: int, rows: int) -> None:
    for seed in range(1, seeds + 1):
        command = [sys.executable, str(EXAMPLES / "samples.py"), str(folder / str(seed))]
        subprocess.run([*command, "--rows", str(rows), "--seed", str(seed)], check=True, stdout=subprocess.DEVNULL)


def figures_of(outcomes: Sequence[Outcome[Quality]]) -> dict[str, object]:
    """For each model: its figures by name and arm, the differences of a seed by name, and the verdicts on the aims."""
    found: dict[str, object] = {}
    for outcome in outcomes:
        benchmark = outcome.benchmark
        found[benchmark.case] = {
            "figures": {
                figure.name: {arm: outcome.figure(figure.name, arm) for arm in benchmark.arms}
                for figure in benchmark.figures
            },
            "differences": {pair.name: outcome.pair(pair) for pair in benchmark.pairs},
            "verdicts": [verdict.to_json() for verdict in outcome.verdicts()],
        }
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="elastichost bench models", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="trainings of every arm, each on samples of its own")
    parser.add_argument("--rows", type=int, default=150_000, help="training rows of a seed")
    parser.add_argument("--workers", type=int, default=2, help="workers of elastichost")
    parser.add_argument("--only", default="", help="run only models with this text in their name")
    parser.add_argument("--data", type=Path, help="also train DIN on this folder of retail data")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        samples, runs = Path(place) / "samples", Path(place) / "runs"
        _write_samples(samples, chosen.seeds, chosen.rows)
        cases = [Case(name, EXAMPLES / f"{name}.toml", f"{samples}/{{}}/{name}") for name in ("mmoe", "din")]
        towers = "two_towers"
        cases.append(Case(towers, EXAMPLES / f"{towers}.toml", f"{samples}/{{}}/{towers}", has_vectors=True))
        if chosen.data is None:
            say("DIN on retail data: skipped, because no --data is given")
        else:
            cases.append(Case("din-retail", EXAMPLES / "retail.toml", str(chosen.data.resolve()), RETAIL))
        outcomes = [
            run(benchmark_of(case, chosen.seeds, chosen.workers, runs)) for case in cases if chosen.only in case.name
        ]
    print_outcomes(outcomes)
    if chosen.json:
        write_json("models", figures_of(outcomes))
    return exit_code(outcomes)
