"""How well the peak memory of a job is foreseen: small real jobs, estimated as `plan` does, then run and watched.

    elastichost bench memory-estimate [--quick] [--json] [--only WORD] [--parts] [--drawn N --seed S]

The jobs differ in model, tables (10 thousand to 2 million rows, dimensions 4 to 64, fixed and dynamic), batch, access,
workers, format of the data, test data and checkpoints. Each is forked from a process that has imported torch, as a host
with many jobs does it, so that what all share counts for none; "alone" are started as `elastichost run` starts them.
Observed is the largest sum of the arena's pages, the copies for checkpoints and the anonymous memory of all processes
(`job_memory`). --parts: of both sums, what they consist of.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.harness.measuring import print_table, write_json
from benchmarks.harness.workshop import ROOT, Workshop
from benchmarks.memory_estimate.footprint import Footprint, JobMemory, anonymous_bytes
from benchmarks.memory_estimate.job_shapes import JobShape, cases, drawn
from benchmarks.memory_estimate.run_entries import RunArguments
from elastichost.config.job import load_job
from elastichost.plan import ProcessId
from elastichost.supervisor.launch.entries import Entries
from elastichost.supervisor.launch.events import Exited
from elastichost.supervisor.launch.fork_server_client import LocalLauncher
from elastichost.supervisor.startup.memory_estimate import estimate_memory
from elastichost.supervisor.startup.preflight import preflight
from elastichost.tuner.memory.peak_memory import MemoryEstimate
from elastichost.tuner.memory.peak_memory_facts import ALONE, BESIDE

__all__ = ["Figures", "Seen", "main", "summary"]

LOOK_EVERY_S = 0.003
IMPORTS = ("elastichost.supervisor.job", "scipy.optimize", "scipy.special", "benchmarks.memory_estimate.run_entries")
ENTRY = "benchmarks.memory_estimate.run_entries:forked"


@dataclass(frozen=True, slots=True)
class Seen:
    """One job, estimated and run."""

    shape: JobShape
    estimate: MemoryEstimate
    peak: Footprint

    @property
    def error(self) -> float:
        """Predicted over observed, less one."""
        return self.estimate.host_bytes / self.peak.total - 1


class Figures(msgspec.Struct, frozen=True):
    """Of |predicted / observed - 1|: median, 90 % quantile; max_under: by how much an estimate was too low at most; by
    job: predicted and observed megabytes."""

    jobs: int
    p50: float
    p90: float
    max_under: float
    max_over: float
    by_job: dict[str, tuple[float, float]]


class Bench:
    """Runs one job after another. Use as a context manager."""

    def __init__(self, workshop: Workshop, *, with_roles: bool = False) -> None:
        self._workshop, self._with_roles = workshop, with_roles
        entries = Entries()
        self._launcher = LocalLauncher((*entries.imports, *IMPORTS), entries.calls)
        prepared = self._launcher.wait_prepared(180.0)
        if prepared.error:
            raise RuntimeError(prepared.error)
        self._shared = anonymous_bytes(self._launcher.server_pid)
        self._number = 0

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._launcher.close()

    def see(self, shape: JobShape) -> Seen:
        """Raises RuntimeError when the job fails."""
        self._number += 1
        folder = self._workshop.disk / str(self._number)
        folder.mkdir()
        path = folder / "job.toml"
        path.write_text(shape.text(folder))
        job = load_job(path, environ={})
        estimate = estimate_memory(job, preflight(job), self._launcher, ALONE if shape.is_alone else BESIDE)
        memory = self._alone(folder) if shape.is_alone else self._forked(folder)
        assert memory.peak is not None
        return Seen(shape, estimate, memory.peak)

    def _forked(self, folder: Path) -> JobMemory:
        process = ProcessId("job", self._number, 1)
        arguments = RunArguments(str(folder / "job.toml"), str(folder / "run"))
        self._launcher.spawn(process, ENTRY, msgspec.json.encode(arguments), folder / "log")
        memory: JobMemory | None = None
        while True:
            for event in self._launcher.events():
                if isinstance(event, Exited) and event.process == process:
                    if event.code or memory is None:
                        raise RuntimeError(f"{folder}: {event.cause}\n{(folder / 'log').read_text()[-2000:]}")
                    return memory
            if memory is not None:
                memory.look()
            elif (root := self._launcher.processes().get(process)) is not None:
                shared = (self._launcher.server_pid, self._shared)
                memory = JobMemory(root, self._workshop.memory, shared, with_roles=self._with_roles)
            time.sleep(LOOK_EVERY_S)

    def _alone(self, folder: Path) -> JobMemory:
        command = [
            sys.executable,
            "-m",
            "benchmarks.memory_estimate.run_entries",
            str(folder / "job.toml"),
            str(folder / "run"),
        ]
        with (folder / "log").open("wb") as log, subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log) as run:
            memory = JobMemory(run.pid, self._workshop.memory, with_roles=self._with_roles)
            while run.poll() is None:
                memory.look()
                time.sleep(LOOK_EVERY_S)
        if run.returncode:
            raise RuntimeError(f"{folder}: code {run.returncode}\n{(folder / 'log').read_text()[-2000:]}")
        return memory


# --- figures ----------------------------------------------------------------------------------------------------------


def summary(seen: Sequence[Seen]) -> Figures:
    """Raises ValueError when nothing was seen."""
    errors = np.array([one.error for one in seen])
    if not len(errors):
        raise ValueError("no jobs, hence no figures")
    return Figures(
        jobs=len(errors),
        p50=float(np.median(np.abs(errors))),
        p90=float(np.quantile(np.abs(errors), 0.9)),
        max_under=float(max(0.0, -errors.min())),
        max_over=float(max(0.0, errors.max())),
        by_job={
            one.shape.name: (round(one.estimate.host_bytes / 1e6, 1), round(one.peak.total / 1e6, 1)) for one in seen
        },
    )


def _show_parts(one: Seen) -> None:
    parts = sorted(one.estimate.parts, key=lambda part: -part.bytes)
    print("    predicted " + ", ".join(f"{part.name} {part.bytes / 1e6:.1f}" for part in parts if part.bytes > 1e5))
    roles = ", ".join(f"{role} {size / 1e6:.1f}" for role, size in sorted(one.peak.by_role.items()))
    peak = one.peak
    print(
        f"    observed  arena {peak.arena / 1e6:.1f}, copies {peak.copies / 1e6:.1f}, anonymous "
        f"{peak.anonymous / 1e6:.1f} (private: {roles})",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="memory-estimate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--only", default="", help="jobs whose name has this word")
    parser.add_argument("--drawn", type=int, default=0, help="so many of random shapes, not the listed ones")
    parser.add_argument("--seed", type=int, default=0, help="of these shapes")
    options = parser.parse_args(arguments)
    shapes = drawn(options.drawn, options.seed) if options.drawn else cases()
    chosen = [s for s in shapes if options.only in s.name and (options.drawn or s.is_quick or not options.quick)]
    with Workshop() as workshop:
        os.environ.update(
            workshop.environment(),
            ELASTICHOST_ARENA_DIR=str(workshop.memory),
            ELASTICHOST_HISTORY="off",
            PYTHONPATH=str(ROOT),
        )
        seen = []
        with Bench(workshop, with_roles=options.parts) as bench:
            for shape in chosen:
                one = bench.see(shape)
                seen.append(one)
                sizes = f"{one.estimate.host_bytes / 1e6:8.1f} MB predicted {one.peak.total / 1e6:8.1f} observed"
                print(f"{shape.name:<44}{sizes} {one.error:+7.1%}  {one.estimate.moment}", flush=True)
                if options.parts:
                    _show_parts(one)
    figures = summary(seen)
    print()
    print_table(
        ("jobs", "p50 of |error|", "p90", "most too low", "most too high"),
        [
            (
                str(figures.jobs),
                f"{figures.p50:.1%}",
                f"{figures.p90:.1%}",
                f"{figures.max_under:.1%}",
                f"{figures.max_over:.1%}",
            )
        ],
    )
    if options.json:
        write_json("memory_estimate", figures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
