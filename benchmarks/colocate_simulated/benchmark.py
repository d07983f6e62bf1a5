"""Simulated: a batch of small jobs on a host with 1 or 4 GPUs, under every policy of co-location. Nothing is measured.

`elastichost bench colocate-simulated [--quick] [--json] [--seeds N] [--keep DIR] [--parallel N]`. RMixer's setting:
many small jobs of four kinds, each with one reader thread, most of them bound by it. Policies are the very functions of
a live host; what is true of the simulated jobs is another model than theirs (`colocation.interference`), and they know
it with errors only. All arms get the same batches (paired seeds); intervals are 95 % bootstraps over seeds.
Constants were chosen on seeds 1 to 8 (which --quick has), figures are of seeds from 101 on.

Feedback is part of every arm but `sequential` and those without it, as the dispatcher has it. Beside the figures stand
the largest that RMixer (TPDS 2024) reports, for the class they are of: its jobs and its machine are others.

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

WIDTH = 160  # of what is printed into files
QUICK = Plan(
    parts=("input_bound",),
    seeds=2,
    first_seed=1,
    scale=0.4,
    arms=(SEQUENTIAL, ALONE, "fifo", "rmixer_type", OURS, "without feedback"),
)
PROCESSES = 2


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _parsed(arguments)
    plan = QUICK if chosen.quick else Plan()
    asked = {"seeds": chosen.seeds, "first_seed": chosen.first_seed, "parts": _names(chosen.parts)}
    plan = msgspec.structs.replace(plan, **{name: value for name, value in asked.items() if value})
    if unknown := [part for part in plan.parts if part not in PARTS]:
        print(f"no part {unknown[0]!r}: choose from {', '.join(PARTS)}", file=sys.stderr)
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
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; its figures say little")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    parser.add_argument("--seeds", type=int, default=None, help=f"batches of each part; usually {Plan().seeds}")
    parser.add_argument("--first-seed", type=int, default=None, help=f"usually {FIRST_SEED}")
    parser.add_argument("--parts", default="", help=f"comma-separated: {', '.join(PARTS)}")
    parser.add_argument("--keep", default="", metavar="DIR", help="keeps every run there, and takes what is there")
    parser.add_argument("--parallel", type=int, default=0, help="processes; the figures are the same")
    return parser.parse_args(arguments)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def run(plan: Plan, processes: int = 1, keep: Path | None = None, told: Console | None = None) -> Results:
    """All runs of a plan. keep: a folder with one file for each run, by name and code."""
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
    # spawned: a fork would inherit the threads of numerical libraries
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(play, tasks)


def _path(folder: Path, task: Task) -> Path:
    return folder / f"{task.name}.{code_digest()}.json"


def _kept(folder: Path | None, task: Task) -> Played | None:
    """None: it is to be done."""
    if folder is None or not (path := _path(folder, task)).exists():
        return None
    return msgspec.json.decode(path.read_bytes(), type=Played)


# --- for people -------------------------------------------------------------------------------------------------------


def show(results: Results, console: Console) -> None:
    seeds = f"seeds {results.seeds[0]} to {results.seeds[-1]}"
    console.print(
        f"SIMULATED, nothing is measured: {seeds}, paired; means (95 %); {results.seconds:.0f} s of simulating"
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
        f"no schedule exceeds {setting.bound or 0:.1f} (by {terms}), by the linear program "
        f"{setting.tight_bound or 0:.1f}; "
        f"RMixer reports up to {setting.published}, of its own jobs on its own machine\n"
    )


if __name__ == "__main__":
    raise SystemExit(main())
