"""The simulator of co-located jobs against recorded runs of several real jobs on this host.

`python -m benchmarks.colocate.fidelity [--keep DIR] [--quick] [--json] [--rounds 3]`. First every shape of job runs
alone, once with few samples and once with many. Then the jobs run together under every arm, in each round in another
order of arms. The simulator is calibrated with the single jobs only, and predicts the completion times of all arms.

Every job has one worker, and its tuner is off. So the arms differ only in the jobs that the dispatcher runs together:
one after another, as many as there are cores, or those that complement each other. All jobs are submitted at once;
completion times are from the moment at which the host is ready. All runs are `elastichost run JOB...` in a process of
its own, and the times are those of its `host.json` and its journal.

With --keep DIR recorded runs are kept and not repeated; --report-from DIR records nothing. Aims, over three rounds: the
mean within 5 %, the 95th percentile within 10 %, the same order of arms. The machine must be quiet.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.colocate.arms import ARMS, OURS, SHIPPED, Arm, estimated_s
from benchmarks.colocate.fidelity.calibration import solo_costs
from benchmarks.colocate.fidelity.prediction import Fidelity, fidelity_of
from benchmarks.colocate.host_run import CORES, Batch, run_batch
from benchmarks.colocate.jobs import KINDS, SHAPES, Job, MixName, Size, job_of, jobs_of
from benchmarks.colocate.recorded import Campaign
from benchmarks.colocate.result_store import Keep
from benchmarks.harness.machine import read_machine
from benchmarks.harness.output import print_table, write_json
from benchmarks.harness.workshop import Workshop

__all__ = ["main"]

MIX: MixName = "balanced"
FULL = Size("fidelity", 8, dict.fromkeys(KINDS, 8.0))
QUICK = Size("quick", 4, dict.fromkeys(KINDS, 4.0))
SHORT_SHARE = 0.4  # of the length of a job, for the shorter run of it alone
ARM_NAMES = (SHIPPED, "fifo", OURS)
SINGLE = ("single-short", "single-long")


def main(arguments: Sequence[str] | None = None) -> int:
    """Records what is missing, and prints the comparison. Returns 1 if a run failed, 2 if the records do not fit, else
    0."""
    chosen = _parser().parse_args(arguments)
    size = QUICK if chosen.quick else FULL
    arms = tuple(ARMS[name] for name in chosen.arm or ((SHIPPED, OURS) if chosen.quick else ARM_NAMES))
    rounds = 1 if chosen.quick and chosen.rounds is None else chosen.rounds or 3
    jobs = jobs_of(MIX, chosen.jobs or size.jobs, size)
    try:
        with tempfile.TemporaryDirectory() as folder:
            keep = Keep(chosen.report_from or chosen.keep or Path(folder))
            if chosen.report_from is None:
                keep.begin(Campaign(size.name, len(jobs), read_machine()))
                _record(keep, jobs, arms, rounds, size)
            return _report(keep, jobs, arms, as_json=chosen.json)
    except ValueError as error:
        print(f"fidelity: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.colocate.fidelity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="4 short jobs, two arms, one round: a minute")
    add("--rounds", type=int, help="number of recorded runs of each arm; default: 3")
    add("--jobs", type=int, help="number of jobs; default: 8")
    add("--arm", action="append", choices=tuple(ARMS), help=f"repeatable; default: {', '.join(ARM_NAMES)}")
    add("--keep", type=Path, metavar="DIR", help="keep records in DIR; kept runs are not repeated")
    add("--report-from", type=Path, metavar="DIR", help="record nothing; compare the records in DIR")
    add("--json", action="store_true", help="print one JSON object as the last line")
    return parser


# --- records ----------------------------------------------------------------------------------------------------------


def _record(keep: Keep, jobs: Sequence[Job], arms: Sequence[Arm], rounds: int, size: Size) -> None:
    with Workshop() as workshop:
        for name, share in zip(SINGLE, (SHORT_SHARE, 1.0), strict=True):
            _take(keep, name, ARMS[SHIPPED], 0, _singles(jobs, size, share), size, workshop)
        for number in range(rounds):
            first = number % len(arms)
            for arm in (*arms[first:], *arms[:first]):
                _take(keep, arm.name, arm, number, jobs, size, workshop)


def _singles(jobs: Sequence[Job], size: Size, share: float) -> tuple[Job, ...]:
    """One job of each shape, with this share of its samples."""
    shapes = {job.shape.name for job in jobs}
    whole = [job_of(shape, 1, size) for shape in SHAPES if shape.name in shapes]
    return tuple(Job(job.name, job.shape, job.seed, round(share * job.samples)) for job in whole)


def _take(keep: Keep, name: str, arm: Arm, number: int, jobs: Sequence[Job], size: Size, workshop: Workshop) -> None:
    if keep.run(MIX, name, number) is not None:
        return
    began_s = time.perf_counter()
    workers = {job.shape.name: 1 for job in jobs}
    batch = Batch(MIX, arm, number, tuple(jobs), estimated_s(arm, jobs, size.alone_s, CORES), workers=workers)
    found = run_batch(batch, workshop)
    keep.add(msgspec.structs.replace(found, arm=name))
    told = f"FAILED: {found.failure}" if found.failure else f"{found.makespan_s:.1f} s"
    took_s = time.perf_counter() - began_s
    print(f"{name}, round {number + 1}: {told} ({took_s:.0f} s with its start)", file=sys.stderr, flush=True)


# --- the report -------------------------------------------------------------------------------------------------------


def _report(keep: Keep, jobs: Sequence[Job], arms: Sequence[Arm], *, as_json: bool) -> int:
    """Raises ValueError if a run of single jobs is missing or failed, or an arm has no run."""
    runs = keep.runs()
    short, long = (next((run for run in runs if run.arm == name), None) for name in SINGLE)
    if short is None or long is None:
        raise ValueError(f"{keep.folder} holds no runs of single jobs")
    found = fidelity_of(arms, jobs, solo_costs(short, long), runs)
    _show(found)
    foreign = max(run.foreign_share for run in runs)
    print(f"\nother processes used up to {foreign:.0%} of the cores during a run")
    if as_json:
        errors = {one.arm: {"mean": one.mean_error, "p95": one.p95_error} for one in found.arms}
        figures = {"fidelity": found, "errors": errors, "is_near": found.is_near, "foreign_share": foreign}
        write_json("fidelity", figures)
    return int(any(run.failure for run in runs))


def _show(found: Fidelity) -> None:
    rows = [
        (one.shape, f"{1e6 * one.sample_s:.1f}", f"{1e6 * one.sample_cpu_s:.1f}", f"{one.fixed_s:.2f}")
        for one in found.costs
    ]
    print_table(("alone", "µs a sample", "CPU µs a sample", "start and end, s"), rows)
    print()
    header = ("arm", "rounds", "mean, s", "predicted", "error", "P95, s", "predicted", "error")
    rows_of_arms = []
    for one in found.arms:
        count = len(one.recorded)
        mean_s = sum(times.mean_s for times in one.recorded) / count
        p95_s = sum(times.p95_s for times in one.recorded) / count
        cells = (f"{mean_s:.1f}", f"{one.predicted.mean_s:.1f}", f"{one.mean_error:+.1%}")
        more = (f"{p95_s:.1f}", f"{one.predicted.p95_s:.1f}", f"{one.p95_error:+.1%}")
        rows_of_arms.append((one.arm, f"{count}", *cells, *more))
    print_table(header, rows_of_arms)
    is_same = "the same" if found.recorded_order == found.predicted_order else "ANOTHER"
    print(f"\norder recorded: {', '.join(found.recorded_order)}; predicted: {is_same}")
    print(f"within the aims (mean 5 %, P95 10 %, order): {'yes' if found.is_near else 'NO'}")


if __name__ == "__main__":
    raise SystemExit(main())
