"""The last screen of a run: quality of the model, samples, speed, processes, and the next commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from elastichost.cli.output import fact_lines
from elastichost.cli.runs import NOTHING_SAVED, program, short_path
from elastichost.human_readable import bytes_words, count_words, duration_words

if TYPE_CHECKING:
    from elastichost.runs.result import RunResult, TestFigures

__all__ = ["summary"]

STYLES = {"done": "bold green", "stopped": "bold yellow", "incomplete": "bold yellow"}


def summary(result: RunResult, *, is_emulated: bool = False) -> Text:
    """The figures of a run, then the next commands. An emulated run has no model to export or to predict with."""
    run = short_path(Path(result.run_dir))
    text = _headline(result).append("\n").append(fact_lines([*_rows(result), ("run", run)]))
    has_model = result.status in ("done", "quarantined", "incomplete") and not is_emulated
    for number, command in enumerate(_next_commands(result, run, has_model=has_model)):
        text.append("\nnext: " if number == 0 else "\n      ", style="dim").append(command, style="cyan")
    if result.status == "killed" and not result.is_resumable:
        text.append(f"\n{NOTHING_SAVED}", style="dim")
    return text


def _headline(result: RunResult) -> Text:
    line = Text(result.status, style=STYLES.get(result.status, "bold red"))
    line.append(f"  in {duration_words(result.wall_s)}", style="default")
    return line.append(f"  {result.message}", style="default") if result.message else line


def _rows(result: RunResult) -> Iterator[tuple[str, str]]:
    if result.test is not None:
        yield from _quality(result.test)
    if result.best is not None:
        best = result.best
        yield "best", f"{best.figure} {best.value:.4f} after {count_words(best.samples)} samples: export --best"
    counts = result.samples
    lost = [
        f"{count} {name}" for name, count in (("skipped", counts.skipped), ("quarantined", counts.quarantined)) if count
    ]
    yield "samples", ", ".join([f"{count_words(counts.trained)} of {count_words(counts.planned)} trained", *lost])
    if result.lookups.without_row:
        yield (
            "lookups",
            (
                f"{count_words(result.lookups.without_row)} of {count_words(result.lookups.total)} ids "
                f"({result.lookups.share_without_row:.1%}) had no row because memory was full"
            ),
        )
    yield "speed", f"{count_words(round(result.samples_per_s))} samples/s"
    some = result.processes
    restarts = f", {some.restarts} restart{'s' * (some.restarts != 1)}" if some.restarts else ""
    yield "processes", f"{some.workers} worker{'s' * (some.workers != 1)}, {some.servers} PS{restarts}"
    yield "rows", f"{bytes_words(result.arena_bytes)} of shared memory"
    if result.started_from:
        yield "started from", result.started_from
    if result.torn_batches:
        yield "torn batches", str(result.torn_batches)
    if result.rolled_back:
        given_up = count_words(sum(back.samples for back in result.rolled_back))
        yield "rolled back", f"{len(result.rolled_back)} times, {given_up} samples trained again"


def _quality(test: TestFigures) -> Iterator[tuple[str, str]]:
    best = f"  (the true probabilities reach {test.truth_auc:.4f})" if test.truth_auc is not None else ""
    missing = "not defined: the test set has labels of one class only"
    yield "AUC", f"{test.auc:.4f}{best}" if test.auc is not None else missing
    for name, figure in (
        ("log loss", test.logloss),
        ("norm. entropy", test.normalised_entropy),
        ("calibration", test.calibration),
    ):
        yield name, f"{figure:.4f}" if figure is not None else "not defined"
    for name, figure in test.metrics.items():
        yield name, f"{figure:.4f}" if figure is not None else "not defined"


def _next_commands(result: RunResult, run: str, *, has_model: bool) -> Iterator[str]:
    if has_model:
        yield f"{program()} export {run} DIR"
        yield f"{program()} predict {run} FILE"
    elif result.is_resumable:
        yield f"{program()} resume {run}"
    if result.status == "failed":
        yield f"{program()} logs {run}"
