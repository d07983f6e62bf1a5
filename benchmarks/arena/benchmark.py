"""The index of a dynamic table, its growth and memory, and the speed of copying an arena's rows.

index     CPU ns for each key: elastichost's index, torchrec's managed collision module (sorted ids and
          searchsorted), a Python dict; one thread, the same keys and queries, interleaved
growth    ms of each call that creates 2,000 rows for new ids, beginning with an empty table
memory    bytes of the arena for each byte of the model's own rows and optimizer state
snapshot  seconds for a gigabyte of rows, copied as for a checkpoint: into fresh memory, and into reused memory
rows      GB/s of lookups and updates of wide rows, and their share of the bandwidth of a plain copy
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import itemgetter

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.arena.index_systems import KINDS, QUERIES, ZIPF, IndexSystem, cpu_ns, index_systems, queries_of
from benchmarks.arena.row_bandwidth import Bandwidth, bandwidth_benchmark
from benchmarks.harness.aggregates import percentile
from benchmarks.harness.aims import Aim
from benchmarks.harness.benchmark import Benchmark, Figure
from benchmarks.harness.interleave import Rounds
from benchmarks.harness.outcome import Outcome
from benchmarks.harness.output import write_json
from benchmarks.harness.runner import exit_code, print_outcomes, run, silent
from benchmarks.harness.temporary_arena import temporary_arena
from elastichost.arena import kernels
from elastichost.arena.arena import Arena
from elastichost.arena.index.table import LIVE_ROWS
from elastichost.ps.rows.store import RowStore
from elastichost.ps.snapshot import CopySpace
from elastichost.specs import DenseSpec, EmbeddingSpec, ModelSpec, RowOptimizerSpec, TableSpec

__all__ = ["DIM", "index_benchmarks", "main", "rows_benchmark"]

Int64 = npt.NDArray[np.int64]

DIM = 16
BUCKETS = [(0, bucket) for bucket in range(16)]
NEW_ROWS_PER_CALL = 2_000
CALLS_PER_GRACE = 8
GROWTH = f"creating {NEW_ROWS_PER_CALL:,} rows"


class RowFigures(msgspec.Struct, frozen=True):
    """Figures of a table's rows. growth_ms, growth_cpu_ms: wall and CPU time of each call. memory_ratio: of a fixed and
    of a dynamic table, and bytes of a dynamic row by file."""

    growth_ms: list[float]
    growth_cpu_ms: list[float]
    memory_ratio: dict[str, float]
    snapshot_s_per_gb: dict[str, float]


def model_of(rows: int) -> ModelSpec:
    """One table (0 rows: dynamic) with one embedding of 16 floats and row-wise Adagrad."""
    table = TableSpec(name="table", index=0, features=("feature",), key_kind="int", rows=rows)
    optimizer = RowOptimizerSpec(name="rowwise_adagrad")
    embedding = EmbeddingSpec("rows", 0, 0, "sparse", "bag", ("feature",), DIM, "sum", optimizer, -0.1, 0.1)
    return ModelSpec((table,), (embedding,), DenseSpec((), 0, 0), 0, 1)


@contextmanager
def table_of(rows: int, memory_bytes: int) -> Iterator[tuple[Arena, RowStore]]:
    """A temporary arena, and the store of all its buckets."""
    with temporary_arena(model_of(rows), memory_bytes) as arena:
        store = RowStore(arena, 0)
        store.adopt([(0, b) for b in range(arena.layout.bucket_count(0))], initialise=True)
        yield arena, store


# --- the index ----------------------------------------------------------------------------------------------------


def index_benchmarks(
    systems: dict[str, IndexSystem], keys: Int64, rounds: int
) -> tuple[Benchmark[float], Benchmark[dict[str, float]]]:
    """Two benchmarks: the insertion of all keys, a part in each round; and lookups, in ns per key by kind of query."""
    parts = np.array_split(keys, -(-len(keys) // QUERIES))
    random = np.random.default_rng(1)
    queries = [queries_of(keys, random) for _ in range(rounds)]

    def insert(system: IndexSystem, number: int) -> float:
        return cpu_ns(system.insert, parts[number]) / len(keys)

    def lookup(system: IndexSystem, number: int) -> dict[str, float]:
        return {kind: cpu_ns(system.lookup, query) / QUERIES for kind, query in queries[number].items()}

    inserted = Benchmark(
        title=f"{len(keys):,} keys inserted",
        arms={name: partial(insert, system) for name, system in systems.items()},
        rounds=Rounds(len(parts)),
        figures=(Figure[float]("insert", "CPU ns a key", lambda ns: ns, sum, ".0f"),),
    )
    looked_up = Benchmark(
        title=f"keys looked up among {len(keys):,}, median (least-most)",
        arms={name: partial(lookup, system) for name, system in systems.items()},
        rounds=Rounds(rounds),
        figures=tuple(Figure[dict[str, float]](kind, "CPU ns a key", itemgetter(kind)) for kind in KINDS),
    )
    return inserted, looked_up


def check_index(arena: Arena, keys: Int64) -> None:
    """Raises AssertionError if the index does not hold the keys."""
    out = np.empty(QUERIES, np.int64)
    for query in queries_of(keys, np.random.default_rng(2)).values():
        if arena.lookup(0, query, out) or not np.array_equal(arena.ids_view(0)[out], query):
            raise AssertionError("the index does not hold the keys it was given")


# --- growth, memory, snapshot -------------------------------------------------------------------------------------


def rows_benchmark(keys: Int64, budget_bytes: int) -> Benchmark[RowFigures]:
    return Benchmark(
        title="rows of a table",
        arms={"elastichost": lambda _: measure_rows(keys, budget_bytes)},
        rounds=Rounds(1),
        figures=(
            Figure(f"{GROWTH}, p50", "ms", lambda one: one.growth_ms, _percent(50), ".2f"),
            Figure(f"{GROWTH}, p99", "ms", lambda one: one.growth_ms, _percent(99), ".2f"),
            Figure(f"{GROWTH}, p99 of CPU time", "ms", lambda one: one.growth_cpu_ms, _percent(99), ".2f"),
            Figure(f"{GROWTH}, worst", "ms", lambda one: one.growth_ms, max, ".2f"),
            Figure(f"{GROWTH}, worst CPU time", "ms", lambda one: one.growth_cpu_ms, max, ".2f"),
            Figure("memory of a fixed table over its rows and state", "", _memory("fixed"), form=".3f"),
            Figure("memory of a dynamic table over its rows and state", "", _memory("dynamic"), form=".3f"),
            Figure("snapshot into fresh memory", "s/GB", lambda one: one.snapshot_s_per_gb["fresh"], form=".2f"),
            Figure("snapshot into reused memory", "s/GB", lambda one: one.snapshot_s_per_gb["kept"], form=".2f"),
        ),
        aims=(
            Aim(f"{GROWTH}, worst", 5.0, "at most", form=".2f"),
            Aim("memory of a fixed table over its rows and state", 1.05, "at most", form=".3f"),
        ),
    )


def _percent(percent: float) -> Callable[[Sequence[float]], float]:
    return lambda values: percentile(values, percent)


def _memory(name: str) -> Callable[[RowFigures], float]:
    return lambda one: one.memory_ratio[name]


def measure_rows(keys: Int64, budget_bytes: int) -> RowFigures:
    with table_of(0, budget_bytes) as (arena, store):
        wall_ms, cpu_ms = measure_growth(store, keys)
        memory = {"fixed": memory_of_fixed(len(keys)), **memory_of_dynamic(arena, store)}
        return RowFigures(wall_ms, cpu_ms, memory, measure_snapshot(store))


def measure_growth(store: RowStore, keys: Int64) -> tuple[list[float], list[float]]:
    """Wall and CPU time in ms of each call that creates 2,000 rows."""
    wall_ms: list[float] = []
    cpu_ms: list[float] = []
    for number, start in enumerate(range(0, len(keys), NEW_ROWS_PER_CALL)):
        part = keys[start : start + NEW_ROWS_PER_CALL]
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        store.rows_for(0, part, True, 0)
        cpu_ms.append((time.thread_time_ns() - cpu) / 1e6)
        wall_ms.append((time.perf_counter_ns() - wall) / 1e6)
        if number % CALLS_PER_GRACE == 0:
            store.confirm_grace()
    return wall_ms, cpu_ms


def memory_of_dynamic(arena: Arena, store: RowStore) -> dict[str, float]:
    """The bytes per row by file, and the ratio to the model's own rows and state."""
    while store.needs_grace:
        store.confirm_grace()
    rows = sum(int(arena.header(0, bucket)[LIVE_ROWS]) for bucket in range(arena.layout.tables[0].buckets))
    own_bytes = sum(4 * (e.dim + e.state_floats_per_row) for e in arena.model.embeddings)
    found = {f"dynamic_{file.path.name}_bytes": file.touched_bytes() / rows for file in arena.files.all()}
    return {"dynamic": arena.touched_bytes() / rows / own_bytes, **found}


def memory_of_fixed(rows: int) -> float:
    with table_of(rows, 1 << 30) as (arena, _):
        own_bytes = rows * sum(4 * (e.dim + e.state_floats_per_row) for e in arena.model.embeddings)
        return arena.touched_bytes() / own_bytes


def measure_snapshot(store: RowStore) -> dict[str, float]:
    """Seconds per GB of copying every bucket: as the first checkpoint does, and again into the memory it has kept."""
    space, found = CopySpace(), dict[str, float]()
    for name in ("fresh", "kept", "kept"):
        space.begin()
        began = time.perf_counter()
        copied = [block.array.nbytes for _, b in BUCKETS for block in store.snapshot_bucket(0, b, space.copy)]
        found[name] = (time.perf_counter() - began) / (sum(copied) / 1e9)
    return found


# --- the whole ----------------------------------------------------------------------------------------------------


def measure(
    keys: int, rounds: int
) -> tuple[Outcome[float], Outcome[dict[str, float]], Outcome[RowFigures], Outcome[Bandwidth]]:
    """Measures insertion, lookups and rows with `keys` keys, and the row kernels."""
    kernels.warm()
    ids = np.random.default_rng(0).permutation(np.arange(2 * keys, dtype=np.int64) * 7919)[:keys]
    budget_bytes = max(1 << 26, 256 * keys)
    with table_of(0, budget_bytes) as (arena, store):
        inserting, looking_up = index_benchmarks(index_systems(arena, store, keys), ids, rounds)
        inserted = run(inserting, silent)
        check_index(arena, ids)
        looked_up = run(looking_up, silent)
    rows = run(rows_benchmark(ids, budget_bytes), silent)
    return inserted, looked_up, rows, run(bandwidth_benchmark(rounds), silent)


def show_row_bytes(rows: RowFigures) -> None:
    memory = rows.memory_ratio
    print("\nelastichost's insert also creates the row: memory, initial weights, state and id")
    print(
        f"A dynamic row of {DIM} floats and one float of state has {4 * (DIM + 1)} bytes. In addition it needs "
        f"{memory['dynamic_ids_bytes']:.1f} bytes (id),\n{memory['dynamic_seen_bytes']:.1f} (time of its last use) and "
        f"{memory['dynamic_index_bytes']:.1f} (index from id to row; slots of 16 bytes, about half full).\n"
        f"Zipf queries have exponent {ZIPF}."
    )


def figures_of(
    keys: int,
    inserted: Outcome[float],
    looked_up: Outcome[dict[str, float]],
    rows: RowFigures,
    bandwidth: Outcome[Bandwidth],
) -> dict[str, object]:
    """The figures for the JSON output."""
    ms, cpu_ms = rows.growth_ms, rows.growth_cpu_ms
    return {
        "keys": keys,
        "insert_ns": {name: inserted.figure("insert", name) for name in inserted.benchmark.arms},
        "lookup_ns": {name: {k: looked_up.figure(k, name) for k in KINDS} for name in looked_up.benchmark.arms},
        "growth_ms": {
            "p50": percentile(ms, 50),
            "p99": percentile(ms, 99),
            "worst": max(ms),
            "cpu_p99": percentile(cpu_ms, 99),
            "cpu_worst": max(cpu_ms),
        },
        "memory_ratio": rows.memory_ratio,
        "snapshot_s_per_gb": rows.snapshot_s_per_gb,
        "row_gb_per_s": {
            name: {kind: bandwidth.figure(kind, name) for kind in ("lookup", "update")}
            for name in bandwidth.benchmark.arms
        },
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="elastichost bench arena", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=5_000_000, help="number of ids and rows (5,000,000)")
    parser.add_argument("--repeat", type=int, default=9, help="rounds of lookups (9)")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    chosen = parser.parse_args(argv)
    inserted, looked_up, rows, bandwidth = outcomes = measure(chosen.keys, chosen.repeat)
    print_outcomes(outcomes)
    show_row_bytes(rows.of("elastichost")[0])
    if chosen.json:
        figures = figures_of(chosen.keys, inserted, looked_up, rows.of("elastichost")[0], bandwidth)
        write_json("arena", figures, rows.verdicts())
    return exit_code(outcomes)
