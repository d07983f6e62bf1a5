"""Runs a batch with the command line in a separate process, and reads the files that it wrote."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from benchmarks.colocate.arms import Arm, policy_options
from benchmarks.colocate.jobs import MEMORY, SOURCE_BYTES_PER_S, Job, MixName, write_job
from benchmarks.colocate.recorded import ArmRun, Cold, JobEnd, Sweep, arm_run
from benchmarks.colocate.shared_source import SOURCE_VARIABLE, SharedSource
from benchmarks.harness.processes import busy_s, end_processes, tree_of
from benchmarks.harness.workshop import ROOT, Workshop
from elastichost.dispatcher.facts import HostStatus
from elastichost.dispatcher.timeline import read_timeline
from elastichost.run_files import JOURNAL_FILE, RESULT_FILE
from elastichost.runs.journal import read_journal

__all__ = ["CORES", "MOST_WORKERS", "Batch", "cold", "run_batch", "sweep"]

CORES = len(os.sched_getaffinity(0))
SAID_CHARACTERS = 600  # characters of a failed command's output that are shown
MOST_WORKERS = 4  # of a static plan
SLOW = 6.0  # a command that takes longer than this multiple of its estimate, and than LEAST_S, counts as hanging
LEAST_S = 300.0


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs that run together once. workers: number of workers by shape in static plans; empty for plans as shipped."""

    mix: MixName
    arm: Arm
    round: int
    jobs: tuple[Job, ...]
    estimate_s: float
    on_gpu: bool = False
    workers: Mapping[str, int] = field(default_factory=dict)


class _Result(msgspec.Struct):
    """The part of a run's `result.json` that is kept."""

    class Samples(msgspec.Struct):
        trained: int

    class Test(msgspec.Struct):
        auc: float | None = None
        truth_auc: float | None = None

    samples: Samples
    test: Test | None = None


@dataclass(frozen=True, slots=True)
class _Done:
    """A command that has ended. code: its exit code; None if it was killed."""

    code: int | None
    output: str
    said: str
    wall_s: float
    cpu_s: float
    foreign_share: float

    def failure(self, what: str) -> str:
        how = "took too long and was killed" if self.code is None else f"ended with exit code {self.code}"
        return f"{what} {how}: {self.said[-SAID_CHARACTERS:].strip()}"


def run_batch(batch: Batch, workshop: Workshop) -> ArmRun:
    """Runs a batch and removes its files. If the batch fails, `failure` has the reason."""
    folder = workshop.disk / f"{batch.mix}.{batch.arm.name}.{batch.round}"
    folder.mkdir()
    try:
        files = [write_job(folder, job, batch.workers.get(job.shape.name), on_gpu=batch.on_gpu) for job in batch.jobs]
        memory = ["--memory", MEMORY[batch.mix]] if batch.mix in MEMORY else []
        options = ["--run-dir", "host", *memory, *policy_options(batch.arm, CORES)]
        done = _command([*map(str, files), *options], folder, workshop, batch.estimate_s)
        return _gathered(batch, done, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _gathered(batch: Batch, done: _Done, folder: Path) -> ArmRun:
    of = ArmRun(
        mix=batch.mix,
        arm=batch.arm.name,
        round=batch.round,
        wall_s=done.wall_s,
        cpu_s=done.cpu_s,
        foreign_share=done.foreign_share,
    )
    try:
        status = msgspec.json.decode(done.output.rstrip().rpartition("\n")[2], type=HostStatus)
        lines = list(read_journal(folder / "host" / JOURNAL_FILE))
        moments = read_timeline(folder / "host" / "timeline.db")
        return arm_run(of, batch.jobs, status, lines, moments, _ends(status))
    except (OSError, ValueError, msgspec.DecodeError) as error:
        return msgspec.structs.replace(of, failure=f"{done.failure('the batch')} ({error})")


def _ends(status: HostStatus) -> dict[str, JobEnd]:
    """The results of the jobs that are done, by name."""
    found = {}
    for job in status.jobs:
        path = Path(job.run_dir) / RESULT_FILE
        if path.exists():
            result = msgspec.json.decode(path.read_bytes(), type=_Result)
            test = result.test or _Result.Test()
            found[job.job] = JobEnd(result.samples.trained, test.auc, test.truth_auc)
    return found


def cold(job: Job, workshop: Workshop, estimate_s: float, *, on_gpu: bool = False) -> Cold | str:
    """Runs one job alone, including its import of torch. Returns a text if it fails."""
    folder = workshop.disk / f"cold.{job.name}"
    folder.mkdir()
    try:
        done = _command([str(write_job(folder, job, on_gpu=on_gpu)), "--run-dir", "run"], folder, workshop, estimate_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Cold(job.shape.kind, job.name, done.wall_s) if done.code == 0 else done.failure(f"`run {job.name}.toml`")


def sweep(jobs: Sequence[Job], arm: Arm, workshop: Workshop, estimate_s: float) -> tuple[list[Sweep], str]:
    """Runs each job (one for each shape) in every static plan, one after another on one host. Returns the times, and a
    text with the failures."""
    folder = workshop.disk / "sweep"
    folder.mkdir()
    plans = [
        (workers, Job(f"{job.shape.name}-w{workers}", job.shape, job.seed, job.samples))
        for job in jobs
        for workers in range(1, MOST_WORKERS + 1)
    ]
    try:
        files = [str(write_job(folder, job, workers)) for workers, job in plans]
        done = _command([*files, "--run-dir", "host", *policy_options(arm, CORES)], folder, workshop, estimate_s)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        status = msgspec.json.decode(done.output.rstrip().rpartition("\n")[2], type=HostStatus)
    except msgspec.DecodeError:
        return [], done.failure("the sweep")
    return _swept(plans, status)


def _swept(plans: Sequence[tuple[int, Job]], status: HostStatus) -> tuple[list[Sweep], str]:
    seconds: dict[str, dict[int, float]] = {}
    failures = []
    ended = {one.job: one for one in status.jobs}
    for workers, job in plans:
        found = ended[job.name]
        if found.state == "done" and found.started_s is not None and found.ended_s is not None:
            seconds.setdefault(job.shape.name, {})[workers] = found.ended_s - found.started_s
        else:
            failures.append(f"{job.shape.name} with {workers} workers: {found.why}")
    return [Sweep(shape, took) for shape, took in seconds.items()], "; ".join(failures)


def _command(arguments: Sequence[str], folder: Path, workshop: Workshop, estimate_s: float) -> _Done:
    """Runs `elastichost run` in `folder`, with the source that disk jobs share."""
    command = [sys.executable, "-m", "elastichost", "run", *arguments, "--dashboard", "no", "--json"]
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**workshop.environment(), "ELASTICHOST_HISTORY": "off", "PYTHONPATH": paths}
    environment[SOURCE_VARIABLE] = str(folder / "source")
    output, said = folder / "stdout.txt", folder / "stderr.txt"  # files, because no process reads a pipe during the run
    used_s, began_busy_s, began_s = _children_s(), busy_s(), time.perf_counter()
    own_s = time.process_time()
    source = SharedSource(folder / "source", SOURCE_BYTES_PER_S)
    with source, output.open("w") as out, said.open("w") as err:
        run = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=err)
        code: int | None
        try:
            code = run.wait(timeout=max(LEAST_S, SLOW * estimate_s))
        except subprocess.TimeoutExpired:
            end_processes([one.pid for one in tree_of(run.pid)])
            run.wait()
            code = None
    wall_s = time.perf_counter() - began_s
    cpu_s = _children_s() - used_s
    foreign_s = busy_s() - began_busy_s - cpu_s - (time.process_time() - own_s)
    share = max(0.0, foreign_s) / (wall_s * (os.cpu_count() or 1))
    return _Done(code, output.read_text(), said.read_text(), wall_s, cpu_s, share)


def _children_s() -> float:
    """CPU seconds of all ended descendants of this process."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
