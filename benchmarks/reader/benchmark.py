"""Reading: CPU microseconds per sample, from a file to a KeyedJaggedTensor, in one thread.

    reading    decoding, cutting batches, building the KeyedJaggedTensor of ids; with `--shuffle` also shuffling
    and rows   reading, and the lookup of row numbers by id that a worker with direct access needs

The files are in the page cache. Footers and line indexes, which a run reads once, are not counted. The files are
generated: `parquet-integers` has Criteo's 13 + 26 columns as numbers (fixed tables), `parquet-strings` the columns of
a shop's click log (ints, strings, a list of 6.5 strings; dynamic tables), `criteo-tsv` Criteo's text format with
empty fields, `csv` the same columns with a header line. `--data DIR` adds the real click log in DIR/train.parquet.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from benchmarks.harness.aims import Aim
from benchmarks.harness.benchmark import Benchmark, Figure
from benchmarks.harness.interleave import Rounds
from benchmarks.harness.outcome import Outcome
from benchmarks.harness.output import write_json
from benchmarks.harness.runner import exit_code, print_outcomes, run
from benchmarks.harness.temporary_arena import temporary_arena
from benchmarks.reader.sources import OwnRows, Source, make_sources, model_of
from elastichost.arena import kernels
from elastichost.datasets.reader import UnitReader
from elastichost.datasets.warm import warm_kernels
from elastichost.worker.access.direct_rows import DirectRowPreparer
from elastichost.worker.access.row_channels import PullChannel
from elastichost.worker.access.rows import PreparedBatch, RowPreparer

__all__ = ["main", "reading_of"]

BATCH_SIZE = 2048
AIMS_US = {"parquet-integers": 0.8, "parquet-strings": 1.2, "retail": 1.2, "criteo-tsv": 2.0}
ARENA_BYTES = 2 << 30
READING, AND_ROWS = "reading", "and rows"
COST = Figure[float]("CPU time", "us a sample", lambda us: us)


def tensor_of_ids(batch_lengths: npt.NDArray[np.int32], keys: npt.NDArray[np.int64], columns: list[str]) -> None:
    KeyedJaggedTensor(keys=columns, values=torch.from_numpy(keys), lengths=torch.from_numpy(batch_lengths)).offsets()


def tensor_of_rows(batch: PreparedBatch, columns: list[str]) -> None:
    KeyedJaggedTensor(
        keys=columns,
        values=torch.from_numpy(batch.values),
        lengths=torch.from_numpy(batch.lengths),
        offsets=torch.from_numpy(batch.offsets),
        stride=batch.samples.size,
        length_per_key=batch.length_per_key,
    )


def read_once(source: Source, preparer: RowPreparer | None, shuffle: bool, number: int) -> float:
    """CPU microseconds of this process per sample, over one pass over the file."""
    reader, columns = UnitReader(source.decoder), list(source.settings.categorical)
    description = reader.describe()
    # CPU time of the whole process, so that the threads of pyarrow are counted
    began_ns = time.process_time_ns()
    for unit in description.units:
        for batch in reader.batches(unit, 0, unit.samples, BATCH_SIZE, number if shuffle else None):
            if preparer is None:
                tensor_of_ids(batch.lengths, batch.keys, columns)
            else:
                tensor_of_rows(preparer.prepare(batch, lease_id=0, epoch=0, create=True, clock=0), columns)
    return (time.process_time_ns() - began_ns) / 1e3 / description.samples


def reading_of(source: Source, preparer: RowPreparer, repeat: int, shuffle: bool) -> Benchmark[float]:
    """The benchmark of one file: passes to ids and passes to rows."""
    aim_us = AIMS_US.get(source.name)
    return Benchmark(
        title=f"one thread, batches of {BATCH_SIZE}: median (least-most)",
        case=source.name,
        arms={
            READING: partial(read_once, source, None, shuffle),
            AND_ROWS: partial(read_once, source, preparer, shuffle),
        },
        rounds=Rounds(repeat),
        figures=(COST,),
        aims=() if aim_us is None else (Aim(COST.name, aim_us, "at most", READING),),
    )


def measure_source(source: Source, repeat: int, shuffle: bool) -> tuple[Outcome[float], int]:
    """The outcome for one file, and its number of samples."""
    description = UnitReader(source.decoder).describe()
    with temporary_arena(model_of(source, description.key_kinds), ARENA_BYTES) as arena:
        channel = cast(PullChannel, OwnRows(arena))
        preparer = DirectRowPreparer(arena, source.settings.categorical, description.files, channel)
        read_once(source, preparer, shuffle, 0)  # creates the rows and loads the file into the page cache
        return run(reading_of(source, preparer, repeat, shuffle)), description.samples


def measure(rows: int, repeat: int, data: Path | None, shuffle: bool) -> Iterator[tuple[Outcome[float], int]]:
    pa.set_cpu_count(1)
    torch.set_num_threads(1)
    kernels.warm()
    warm_kernels()
    with tempfile.TemporaryDirectory(prefix="elastichost-benchmark-") as folder:
        for source in make_sources(Path(folder), rows, data):
            yield measure_source(source, repeat, shuffle)


def cost_of(outcome: Outcome[float], samples: int) -> dict[str, object]:
    """The figures for the JSON output."""
    return {
        "reading_us": outcome.figure(COST.name, READING),
        "and_rows_us": outcome.figure(COST.name, AND_ROWS),
        "samples": samples,
        "aim_us": AIMS_US.get(outcome.benchmark.case),
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="elastichost bench reader", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=400_000, help="number of samples in each generated file (400,000)")
    parser.add_argument("--repeat", type=int, default=5, help="number of passes over each file (5)")
    parser.add_argument("--data", type=Path, help="folder with the real click log train.parquet")
    parser.add_argument("--shuffle", action="store_true", help="read the samples of each row group in random order")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    chosen = parser.parse_args(argv)
    measured = list(measure(chosen.rows, chosen.repeat, chosen.data, chosen.shuffle))
    outcomes = [outcome for outcome, _ in measured]
    print_outcomes(outcomes)
    if chosen.json:
        costs = {outcome.benchmark.case: cost_of(outcome, samples) for outcome, samples in measured}
        verdicts = [verdict for outcome in outcomes for verdict in outcome.verdicts()]
        write_json("reader", {"batch_size": BATCH_SIZE, "costs": costs}, verdicts)
    return exit_code(outcomes)
