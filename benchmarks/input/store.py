"""Store: one worker's pipeline on an object store against the same files on the disk, as a ratio.

    python -m elastichost bench store s3://BUCKET/FOLDER            five rounds: four minutes
    python -m elastichost bench store s3://BUCKET/FOLDER --quick    two rounds

The benchmark writes a Parquet file of Criteo's shape to the folder of the store (S3 only; any endpoint: set
AWS_ENDPOINT_URL, or ?endpoint_override= in the address) and removes it at the end. Both arms begin without knobs, tune
them for the same time, and are then measured in a window; a consumer takes at most the given number of samples a
second. `over local` is paired by round. It says something about the reading only where the link to the store carries
what the consumer takes: that rate is printed, in bytes.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.aggregates import typical
from benchmarks.harness.aims import Aim
from benchmarks.harness.benchmark import Benchmark, Figure, PairedFigure
from benchmarks.harness.interleave import Rounds
from benchmarks.harness.output import write_json
from benchmarks.harness.runner import exit_code, print_outcomes, run, say
from benchmarks.harness.workshop import Workshop
from benchmarks.input.arms import ArmSettings, Measured, measure_auto
from benchmarks.input.cases import CASES, case_settings, write_parquet
from elastichost.datasets.sources.transports.addresses import parsed
from elastichost.datasets.sources.transports.s3_options import open_s3
from elastichost.datasets.warm import warm_kernels
from elastichost.human_readable import mib

__all__ = ["Extent", "main", "ratio_of"]

LOCAL, REMOTE = "local", "store"
MEMORY_BYTES = 256 << 20
LEAST_SHARE = 0.9
STALL_S = 10.0
SPEED = Figure[Measured]("speed", "samples/s", lambda one: one.samples_per_s, form=",.0f")
OVER_LOCAL = PairedFigure[Measured](
    "over local", "", REMOTE, LOCAL, lambda ours, other: ours.samples_per_s / other.samples_per_s, form=".3f"
)


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured. samples_per_s: of the consumer."""

    rounds: int
    rows: int
    tune_s: float
    window_s: float
    samples_per_s: float = 2e5


WHOLE = Extent(5, 400_000, 15.0, 5.0)
QUICK = Extent(2, 130_000, 10.0, 3.0)


@contextmanager
def uploaded(file: Path, folder: str) -> Iterator[str]:
    """The address of a copy of the file in this folder of a store; removed at the end."""
    address = parsed(folder)
    key = f"{address.key.rstrip('/')}/{file.name}".lstrip("/")
    files = open_s3(address, os.environ, STALL_S)
    with files.open_output_stream(f"{address.authority}/{key}", compression=None) as stream:
        stream.write(file.read_bytes())
    try:
        yield address.url(key)
    finally:
        files.delete_file(f"{address.authority}/{key}")


def ratio_of(folder: str, disk: Path, extent: Extent) -> Benchmark[Measured]:
    """The benchmark for a file on the disk and the one at this address, which have the same content."""
    case = CASES[0]
    cores = len(os.sched_getaffinity(0))

    def arm(path: str, *, is_remote: bool) -> Callable[[int], Measured]:
        facts = (extent.samples_per_s, MEMORY_BYTES, extent.tune_s, extent.window_s, cores)
        return lambda number: measure_auto(ArmSettings(case_settings(case, path), is_remote, *facts))

    return Benchmark(
        title="one worker's pipeline: median (least-most)",
        case="Parquet of Criteo's shape",
        arms={LOCAL: arm(str(disk / case.file), is_remote=False), REMOTE: arm(folder, is_remote=True)},
        rounds=Rounds(extent.rounds),
        figures=(SPEED,),
        pairs=(OVER_LOCAL,),
        aims=(Aim(OVER_LOCAL.name, LEAST_SHARE, "at least"),),
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="elastichost bench store", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", metavar="s3://BUCKET/FOLDER", help="a folder that may be written to")
    parser.add_argument("--samples-per-s", type=float, default=0.0, help="of the consumer; default: 200,000")
    parser.add_argument("--quick", action="store_true", help="two rounds of a smaller file")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    chosen = parser.parse_args(argv)
    extent = QUICK if chosen.quick else WHOLE
    if chosen.samples_per_s:
        extent = Extent(extent.rounds, extent.rows, extent.tune_s, extent.window_s, chosen.samples_per_s)
    with Workshop() as workshop:
        warm_kernels()
        write_parquet(workshop.disk, extent.rows)
        file = workshop.disk / CASES[0].file
        needed = file.stat().st_size / extent.rows * extent.samples_per_s
        say(f"the consumer takes {mib(round(needed))} of the file a second")
        with uploaded(file, chosen.folder) as url:
            outcome = run(ratio_of(url, workshop.disk, extent))
    print_outcomes([outcome])
    if chosen.json:
        found = outcome.pair(OVER_LOCAL)
        write_json("store", {"over_local": None if found is None else typical(found)}, outcome.verdicts())
    return exit_code([outcome])
