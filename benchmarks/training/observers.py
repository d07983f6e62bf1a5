"""What it costs a run to be watched: by loggers, by one that is blocked, and by the page in the browser.

    python -m elastichost bench observers --rounds 10

Every arm is a whole run of the synthetic job, and is compared with a run of the same round that nothing watches. The
speed is that of the training phase. `blocked`: the CSV logger writes into a pipe that nothing reads for BLOCKED_S
seconds of training.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness.aims import Aim
from benchmarks.harness.benchmark import Benchmark, Figure, PairedFigure
from benchmarks.harness.interleave import Rounds
from benchmarks.harness.runner import exit_code, print_outcomes, run
from benchmarks.harness.training_run import EXAMPLES, TrainingResult, train
from elastichost.run_files import STATUS_FILE

__all__ = ["ARMS", "benchmark_of", "main"]

ALONE = "alone"
ARMS = ("csv", "tensorboard", "blocked", "page")
BLOCKED_S = 10.0
LEAST = 0.99
LOOK_S = 0.05


def settings_of(arm: str, folder: Path) -> dict[str, object]:
    """The settings of the run of an arm."""
    match arm:
        case "csv" | "tensorboard":
            return {"logging.to": json.dumps([arm])}
        case "blocked":
            return {"logging.to": '["csv"]', "logging.csv.file": f"{folder}/pipe", "logging.finish_s": 60}
    return {}


@contextmanager
def watched(arm: str, run_dir: Path) -> Iterator[None]:
    """Reads what the run of an arm offers, from a thread, until the run has ended."""
    ended = threading.Event()
    task = {"blocked": read_pipe_late, "page": look_at_page}.get(arm)
    thread = threading.Thread(target=task, args=(run_dir, ended)) if task is not None else None
    if arm == "blocked":
        os.mkfifo(run_dir.parent / "pipe")
    if thread is not None:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread is not None:
            thread.join()


def read_pipe_late(run_dir: Path, ended: threading.Event) -> None:
    """Opens the pipe of the logger BLOCKED_S after the training has begun, and reads it to its end."""
    while not (run_dir / "applied.bin").exists() and not ended.wait(LOOK_S):
        pass
    ended.wait(BLOCKED_S)
    with (run_dir.parent / "pipe").open("rb") as pipe:
        pipe.read()


def look_at_page(run_dir: Path, ended: threading.Event) -> None:
    """Opens the page of the run as a browser does, and receives its events until the run has ended."""
    while not (run_dir / STATUS_FILE).exists() and not ended.wait(LOOK_S):
        pass
    command = [sys.executable, "-m", "elastichost", "top", str(run_dir), "--web", "--port", "0", "--once-ready"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as top:
        assert top.stdout is not None
        address = json.loads(top.stdout.readline())["url"]
        urllib.request.urlopen(address).read()
        with urllib.request.urlopen(address.replace("/?", "/events?")) as events:
            for line in events:
                if ended.is_set() or line.startswith(b"event: ended"):
                    break
        top.terminate()


def measure(arm: str, rows: int, runs: Path, round_number: int) -> TrainingResult:
    """Trains the synthetic job once. Raises CalledProcessError if it fails; its messages are on stderr."""
    folder = runs / f"{arm}-{round_number}"
    folder.mkdir()
    settings = {"data.synthetic.rows": rows, "data.synthetic.test_rows": 10_000, **settings_of(arm, folder)}
    with watched(arm, folder / "run"):
        return train(EXAMPLES / "synthetic.toml", settings, folder / "run")


def benchmark_of(arms: Sequence[str], rows: int, rounds: int, runs: Path) -> Benchmark[TrainingResult]:
    def measured(arm: str) -> Callable[[int], TrainingResult]:
        return lambda number: measure(arm, rows, runs, number)

    def speed(watched_run: TrainingResult, alone: TrainingResult) -> float:
        return watched_run.samples_per_s / alone.samples_per_s

    names = {arm: f"{arm} over alone" for arm in arms}
    return Benchmark(
        title=f"the synthetic job, {rows:,} samples",
        arms={arm: measured(arm) for arm in (ALONE, *arms)},
        rounds=Rounds(rounds),
        figures=(Figure[TrainingResult]("samples/s", "", lambda one: one.samples_per_s, form=",.0f"),),
        pairs=tuple(PairedFigure(names[arm], "", arm, ALONE, speed, form=".3f") for arm in arms),
        aims=tuple(Aim(names[arm], LEAST, "at least", form=".3f") for arm in arms if arm != "page"),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks observers", description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000, help="number of training samples of each run")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as runs:
        outcome = run(benchmark_of(chosen.arms, chosen.rows, chosen.rounds, Path(runs)))
    print_outcomes([outcome])
    return exit_code([outcome])
