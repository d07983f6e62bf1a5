"""Simulation of a batch of small jobs on a host with 1 or 4 GPUs, under every policy of co-location.

`elastichost bench colocate-simulated [--quick] [--json] [--seeds N] [--keep DIR] [--parallel N]`. All figures are
simulated; nothing is measured. The setting is RMixer's: many small jobs of four kinds, each with one reader thread,
which limits most of them. The policies are the functions that a live host uses. The speeds of the simulated jobs follow
another model (`colocation.interference`), which the policies know only with errors. All arms get the same batches
(paired seeds); intervals are 95 % bootstraps over seeds. Constants were chosen on seeds 1 to 8 (the seeds of --quick);
figures use seeds from 101 on.

Every arm has feedback, as the dispatcher has it, except `sequential` and the arms named "without feedback" or "no
feedback". The largest figures that RMixer (TPDS 2024) reports are shown for comparison; its jobs and its machine
differ.

`--json | tail -1 > benchmarks/colocate_simulated/data/simulated.json` keeps the figures.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.colocate_simulated.figures import ArmFigures, Results, Setting, figures_of
from benchmarks.colocate_simulated.plan import (
    ALONE,
    ARMS,
    FIRST_SEED,
    OURS,
    PARTS,
    SEQUENTIAL,
    Plan,
    Played,
    Task,
    code_digest,
    play,
    tasks_of,
)
from benchmarks.harness.aggregates import Interval
from benchmarks.harness.output import write_json

__all__ = ["main", "run", "show"]

WIDTH = 160  # of output into files
QUICK = Plan(
    parts=("input_bound",),
    seeds=2,
    first_seed=1,
    scale=0.4,
    arms=(SEQUENTIAL, ALONE, "fifo", "rmixer_type", OURS, "without feedback"),
)
PROCESSES = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the simulations and prints the figures. Returns 2 for an unknown part, else 0."""
    chosen = _parsed(arguments)
    plan = QUICK if chosen.quick else Plan()
    asked = {"seeds": chosen.seeds, "first_seed": chosen.first_seed, "parts": _names(chosen.parts)}
    plan = msgspec.structs.replace(plan, **{name: value for name, value in asked.items() if value})
    if unknown := [part for part in plan.parts if part not in PARTS]:
        print(f"unknown part {unknown[0]!r}: choose from {', '.join(PARTS)}", file=sys.stderr)
        return 2
    told = Console(stderr=True, width=None if sys.stderr.isatty() else WIDTH)
    processes = chosen.parallel or (1 if chosen.quick else PROCESSES)
    results = run(plan, processes, Path(chosen.keep) if chosen.keep else None, told)
    show(results, Console(width=None if sys.stdout.isatty() else WIDTH))
    if chosen.json:
        write_json("colocate-simulated", results)
    return 0


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="elastichost bench colocate-simulated",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; for tests only")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--seeds", type=int, default=None, help=f"batches of each part; default: {Plan().seeds}")
    parser.add_argument("--first-seed", type=int, default=None, help=f"first seed; default: {FIRST_SEED}")
    parser.add_argument("--parts", default="", help=f"comma-separated: {', '.join(PARTS)}")
    parser.add_argument("--keep", default="", metavar="DIR", help="keep every run in DIR, and reuse the runs in DIR")
    parser.add_argument("--parallel", type=int, default=0, help="number of processes; it does not change the figures")
    return parser.parse_args(arguments)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def run(plan: Plan, processes: int = 1, keep: Path | None = None, told: Console | None = None) -> Results:
    """Makes all runs of a plan. keep: a folder with one file for each run, named by the run and the code's digest."""
    begin_s = time.monotonic()
    tasks = list(tasks_of(plan))
    kept = {task: found for task in tasks if (found := _kept(keep, task)) is not None}
    missing = [task for task in tasks if task not in kept]
    for number, found in enumerate(_played(missing, processes), 1):
        kept[found.task] = found
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            _path(keep, found.task).write_bytes(msgspec.json.encode(found))
        if told is not None and (number % 20 == 0 or number == len(missing)):
            told.print(f"[dim]{number} of {len(missing)} runs, {time.monotonic() - begin_s:.0f} s[/]", soft_wrap=True)
    return Results(
        simulated=True,
        plan=plan,
        seeds=tuple(range(plan.first_seed, plan.first_seed + plan.seeds)),
        settings=figures_of([kept[task] for task in tasks]),
        seconds=time.monotonic() - begin_s,
        code=code_digest(),
    )


def _played(tasks: Sequence[Task], processes: int) -> Iterator[Played]:
    if processes < 2 or len(tasks) < 2:
        yield from map(play, tasks)
        return
    # "spawn", because a fork would copy a process with threads of numerical libraries
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(play, tasks)


def _path(folder: Path, task: Task) -> Path:
    return folder / f"{task.name}.{code_digest()}.json"


def _kept(folder: Path | None, task: Task) -> Played | None:
    """A kept run; None if it must be made."""
    if folder is None or not (path := _path(folder, task)).exists():
        return None
    return msgspec.json.decode(path.read_bytes(), type=Played)


# --- for people -------------------------------------------------------------------------------------------------------


def show(results: Results, console: Console) -> None:
    """Prints a table and the bounds of every setting."""
    seeds = f"seeds {results.seeds[0]} to {results.seeds[-1]}"
    console.print(
        f"SIMULATED, nothing is measured: {seeds}, paired; means (95 % intervals); simulated in {results.seconds:.0f} s"
    )
    for setting in results.settings:
        console.print(_table(setting))
        console.print(_bounds(setting), soft_wrap=True, highlight=False)
    used = {name for setting in results.settings for name in setting.arms}
    console.print("; ".join(f"{name}: {arm.about}" for name, arm in ARMS.items() if name in used), soft_wrap=True)


def _table(setting: Setting) -> Table:
    part = PARTS[setting.part]
    host = f"{setting.gpus} GPU{'s' if setting.gpus > 1 else ''}" + (" with MPS" if part.has_mps else "")
    table = Table(title=f"simulated: {part.mix} mix, {setting.jobs} jobs, {host}", title_justify="left")
    headings = ("policy", "speed-up", "most", "time over ours", "of bound", "of LP bound", "mean turnaround, s")
    for place, heading in enumerate((*headings, "worst slowdown", "OOM", "evicted", "paused", "done")):
        table.add_column(heading, justify="right" if place else "left")
    for name, arm in setting.arms.items():
        table.add_row(name, *_cells(arm))
    return table


def _cells(arm: ArmFigures) -> tuple[str, ...]:
    def shown(spread: Interval | None, form: str) -> str:
        return "-" if spread is None else spread.shown(form)

    return (
        shown(arm.speedup, ".2f"),
        "-" if arm.most_speedup is None else f"{arm.most_speedup:.1f}",
        shown(arm.over_ours, ".2f"),
        f"{arm.of_bound.mean:.2f}",
        f"{arm.of_tight_bound.mean:.2f}",
        f"{arm.turnaround_s.mean:,.0f}",
        shown(arm.worst_slowdown, ".1f"),
        f"{arm.oom_kills.mean:.2f}",
        f"{arm.evictions.mean:.1f}",
        f"{arm.pauses.mean:.1f}",
        f"{arm.completed:.1%}",
    )


def _bounds(setting: Setting) -> str:
    terms = ", ".join(f"{name} ({times})" for name, times in setting.binding.items())
    return (
        f"no schedule exceeds {setting.bound or 0:.1f} (limited by {terms}), by the linear program "
        f"{setting.tight_bound or 0:.1f}; "
        f"RMixer reports up to {setting.published} for its own jobs on its own machine\n"
    )


if __name__ == "__main__":
    raise SystemExit(main())
