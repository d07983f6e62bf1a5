"""Batches of small real jobs on this host, trained one after another, and together by different policies.

    python -m elastichost bench colocate                  five mixes of 24 jobs, all arms: more than an hour
    python -m elastichost bench colocate --quick --json   five mixes of 8 jobs, two or three arms: minutes
    python -m elastichost bench colocate --long --rounds 5    12 jobs of more than a minute in each mix
    python -m elastichost bench colocate --keep DIR --mix balanced --arm ours
    python -m elastichost bench colocate --long --rounds 5 --plan            how long each mix will take; runs nothing
    python -m elastichost bench colocate --long --rounds 5 --keep DIR --minutes 180    repeat it until nothing is left
    python -m elastichost bench colocate --report-from DIR

Each arm is `elastichost run JOB... --policy NAME` in a separate process with an empty history. In each round every arm
runs once; the order differs between rounds. The makespan is from the moment the host is ready (its libraries are
imported) to the end of the last job. The import of torch, which a batch does once, is therefore no gain of any arm. The
time of a single `elastichost run JOB`, including the import, is printed for comparison.

With --gpu all jobs compute their dense part on a GPU, with one worker each, and there is no search for static plans.

Each input job has one reader of a fixed rate, which its job file states (`resources.workers = 1`). No arm, including
"sequential tuned", may give an input job more readers.

With --keep, the record of each run is written to DIR, and recorded runs are not repeated, so that a long benchmark can
be interrupted at any time and continued with the same command: it goes on with the next arm of the same round. Each
record names the commit that ran. With --minutes no run is begun that would not end in time, so that rounds can be
collected over several evenings. An arm that failed is reported with its message, and runs again the next time.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.colocate import host_run as running
from benchmarks.colocate.arms import ARMS, READY_S, SHIPPED, TUNED, Turn, turns
from benchmarks.colocate.durations import duration_of, mixes_told
from benchmarks.colocate.figures import figures_of, headline
from benchmarks.colocate.host_run import CORES, MOST_WORKERS, Batch
from benchmarks.colocate.jobs import FULL, KINDS, LONG, MIXES, QUICK, SHAPES, Job, MixName, Size, job_of, jobs_of
from benchmarks.colocate.pictures import save_pictures
from benchmarks.colocate.recorded import ArmRun, Campaign
from benchmarks.colocate.result_store import Keep
from benchmarks.colocate.tables import show
from benchmarks.data_plane.plot import is_available
from benchmarks.harness.commit import read_commit
from benchmarks.harness.machine import read_machine
from benchmarks.harness.workshop import ROOT, Workshop
from elastichost.host.inventory import inventory

__all__ = ["main"]

IMPORT_S = 10.0  # of a cold start; only used to estimate durations


@dataclass(frozen=True, slots=True)
class _Options:
    mixes: tuple[MixName, ...]
    arms: tuple[str, ...]
    rounds: int
    size: Size
    jobs: int
    gpu: str
    most_s: float  # no run is begun that would end later


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 if an arm failed, 2 if the options are invalid, else 0."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        if given.report_from is not None:
            return _report(Keep(given.report_from), given.report_from, as_json=given.json)
        options = _options(given)
        if given.plan:
            _say_plan(options, Keep(given.keep) if given.keep is not None else None)
            _say("without cold starts and the search for static plans")
            return 0
        with tempfile.TemporaryDirectory() as folder:
            keep = Keep(given.keep or Path(folder))
            keep.begin(Campaign(options.size.name, options.jobs, read_machine(), options.gpu))
            with Workshop() as workshop:
                _Course(options, keep, workshop).run(time.monotonic() + options.most_s)
            return _report(keep, given.keep, as_json=given.json)
    except ValueError as error:
        print(f"bench colocate: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="elastichost bench colocate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="8 short jobs in each mix; only the arms sequential, rmixer_type and ours")
    add("--long", action="store_true", help="12 jobs of more than a minute in each mix")
    add("--json", action="store_true", help="print one JSON object as the last line of stdout")
    add("--mix", action="append", choices=tuple(MIXES), help="repeatable; default: all")
    add("--arm", action="append", choices=tuple(ARMS), help="repeatable; default: the default arms of the mix")
    add("--rounds", type=int, default=1, help="number of runs of each arm")
    add("--jobs", type=int, help="number of jobs in each mix, at least 2 (24; quick: 8)")
    add("--gpu", action="store_true", help="compute dense parts on a GPU; leaves out the arm of static plans")
    add("--keep", type=Path, metavar="DIR", help="keep results and charts in DIR; kept runs are not repeated")
    add("--minutes", type=float, metavar="N", help="begin no run that would not end within N minutes")
    add("--plan", action="store_true", help="run nothing; print how long the runs that are left will take")
    add("--report-from", type=Path, metavar="DIR", help="run nothing; report the results kept in DIR")
    return parser


def _options(given: argparse.Namespace) -> _Options:
    """The options. Raises ValueError for invalid ones."""
    size = QUICK if given.quick else LONG if given.long else FULL
    jobs = size.jobs if given.jobs is None else given.jobs
    if jobs < 2 or given.rounds < 1:
        raise ValueError("--jobs must be at least 2, and --rounds at least 1")
    if given.minutes is not None and given.keep is None:
        raise ValueError("--minutes needs --keep, or what was run is lost")
    mixes, arms = tuple(given.mix or MIXES), tuple(given.arm or ())
    most_s = math.inf if given.minutes is None else 60 * given.minutes
    return _Options(mixes, arms, given.rounds, size, jobs, _gpu() if given.gpu else "", most_s)


def _gpu() -> str:
    """The name of the GPU, or of several. Raises ValueError if there is none."""
    names = [gpu.name for gpu in inventory().gpus]
    if not names:
        raise ValueError("--gpu: no GPU was found; run `elastichost doctor` for details")
    return ", ".join(names)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _report(keep: Keep, pictures: Path | None, *, as_json: bool) -> int:
    """Prints the report of kept results. Raises ValueError if they cannot be read."""
    campaign = keep.campaign()
    if campaign is None:
        raise ValueError(f"{keep.folder} holds no results of --keep")
    runs = keep.runs()
    figures = figures_of(runs, keep.sweeps(), keep.colds())
    show(figures, campaign)
    if pictures is not None and is_available():
        for path in save_pictures(figures, runs, pictures):
            _say(f"written: {path}")
    sys.stdout.flush()
    if as_json:
        print(json.dumps(msgspec.to_builtins(headline(figures))), flush=True)
    return int(any(run.failure for run in runs))


def _turns(options: _Options, keep: Keep | None) -> list[Turn]:
    """The runs that are left."""
    without = (TUNED,) if options.gpu else ()
    quick = options.size is QUICK
    found = turns(options.mixes, options.arms, options.rounds, quick=quick, without=without)
    return [turn for turn in found if keep is None or keep.run(turn.mix, turn.arm.name, turn.round) is None]


def _say_plan(options: _Options, keep: Keep | None, before_s: float = 0.0) -> None:
    """Prints the expected duration of each mix. before_s: of the cold starts and the search for static plans."""
    left = _turns(options, keep)
    expected_s = duration_of(keep.runs() if keep is not None else (), options.size, options.jobs, CORES)
    for line in mixes_told(left, expected_s):
        _say(line)
    if before_s:
        _say(f"cold starts and static plans: about {before_s / 60:.0f} min")
    _say(f"total: about {(before_s + sum(map(expected_s, left))) / 60:.0f} min")


# --- the runs ---------------------------------------------------------------------------------------------------------


class _Course:
    """Runs everything in order: cold starts, static plans, then all arms."""

    def __init__(self, options: _Options, keep: Keep, workshop: Workshop) -> None:
        self._options, self._keep, self._workshop = options, keep, workshop
        self._commit, quick = read_commit(ROOT), options.size is QUICK
        self._turns = _turns(options, keep)
        shapes = {job.shape.name for turn in self._turns for job in self._jobs(turn.mix)}
        ones = [job_of(shape, 1, options.size) for shape in SHAPES if shape.name in shapes]
        # one job of each kind; these runs also warm the page cache and the kernel cache before the comparison
        colds = list({job.shape.kind: job for job in reversed(ones)}.values())[: 1 if quick else len(KINDS)]
        self._colds = [job for job in colds if job.shape.kind not in keep.colds()]
        static = {job.shape.name for turn in self._turns if turn.arm.name == TUNED for job in self._jobs(turn.mix)}
        self._swept = [
            job
            for job in ones
            if job.shape.name in static
            and job.shape.kind not in ("input", "disk")
            and job.shape.name not in keep.sweeps()
        ]

    def _jobs(self, mix: MixName) -> tuple[Job, ...]:
        return jobs_of(mix, self._options.jobs, self._options.size)

    def _alone_s(self, jobs: Sequence[Job]) -> float:
        return sum(self._options.size.alone_s[job.shape.kind] for job in jobs)

    def run(self, until_s: float) -> None:
        """Runs what is left. until_s: of the monotonic clock; no run is begun that is expected to end later."""
        sweep_s = READY_S + MOST_WORKERS * self._alone_s(self._swept) if self._swept else 0.0
        before_s = sweep_s + self._alone_s(self._colds) + IMPORT_S * len(self._colds)
        _say_plan(self._options, self._keep, before_s)
        if time.monotonic() + before_s > until_s:
            _say(f"stops: the cold starts and static plans take about {before_s / 60:.0f} min")
            return
        self._take_colds()
        if self._swept:
            self._sweep(sweep_s)
        for number, turn in enumerate(self._turns):
            estimate_s = self._expected_s(turn)
            if time.monotonic() + estimate_s > until_s:
                left = f"{len(self._turns) - number} of {len(self._turns)} runs are left"
                _say(f"stops: the next run takes about {estimate_s / 60:.0f} min; {left}: repeat the command")
                return
            self._take(turn, f"{number + 1} of {len(self._turns)}", estimate_s)

    def _expected_s(self, turn: Turn) -> float:
        return duration_of(self._keep.runs(), self._options.size, self._options.jobs, CORES)(turn)

    def _take_colds(self) -> None:
        for job in self._colds:
            found = running.cold(job, self._workshop, IMPORT_S + self._alone_s([job]), on_gpu=bool(self._options.gpu))
            if isinstance(found, str):
                _say(f"FAILED: {found}")
            else:
                self._keep.add_cold(msgspec.structs.replace(found, commit=self._commit))
                _say(f"`run {job.name}.toml`: {found.seconds:.1f} s")

    def _sweep(self, estimate_s: float) -> None:
        found, failure = running.sweep(self._swept, ARMS[SHIPPED], self._workshop, estimate_s)
        self._keep.add_sweeps(msgspec.structs.replace(one, commit=self._commit) for one in found)
        for one in found:
            seconds = ", ".join(f"{workers}: {took_s:.1f} s" for workers, took_s in one.seconds.items())
            _say(f"static plans of {one.shape}, by workers: {seconds}")
        if failure:
            _say(f"FAILED: {failure}")

    def _take(self, turn: Turn, place: str, estimate_s: float) -> None:
        jobs = self._jobs(turn.mix)
        began_s = time.perf_counter()
        plans = self._plans(jobs) if turn.arm.is_static else {}
        if isinstance(plans, str):
            run = ArmRun(mix=turn.mix, arm=turn.arm.name, round=turn.round, failure=plans)
        else:
            batch = Batch(turn.mix, turn.arm, turn.round, jobs, estimate_s, bool(self._options.gpu), plans)
            run = running.run_batch(batch, self._workshop)
        self._keep.add(msgspec.structs.replace(run, commit=self._commit))
        told = (
            f"FAILED: {run.failure}" if run.failure else f"{run.makespan_s:.1f} s, {run.samples_per_s:,.0f} samples/s"
        )
        took_s = time.perf_counter() - began_s
        _say(f"{place}, {turn.mix}, round {turn.round + 1}, {turn.arm.name}: {told} ({took_s:.0f} s with its start)")

    def _plans(self, jobs: Sequence[Job]) -> dict[str, int] | str:
        """The number of workers in the best static plan of each shape; or a text with the reason if there is none."""
        sweeps, plans = self._keep.sweeps(), dict[str, int]()
        for shape in {job.shape.name: job.shape for job in jobs}.values():
            if shape.kind in ("input", "disk"):
                plans[shape.name] = 1
            elif shape.name in sweeps and sweeps[shape.name].seconds:
                plans[shape.name] = sweeps[shape.name].best
            else:
                return f"no static plan of {shape.name} was measured completely"
        return plans
