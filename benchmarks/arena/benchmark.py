"""The index of a dynamic table, its growth, its memory, and how fast an arena's rows are copied.

index     CPU ns for each key: elastichost's index, torchrec's managed collision module (sorted ids and
          searchsorted), a Python dict. One thread, the same keys and queries, interleaved.
growth    ms of each call that creates 2,000 rows for ids never seen, from an empty table on
memory    bytes of the arena for each byte of the model's own rows and optimizer state
snapshot  seconds for a gigabyte of rows, as a checkpoint copies them: into fresh memory, and into kept memory
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from torchrec.modules.mc_modules import LFU_EvictionPolicy, MCHManagedCollisionModule
from torchrec.sparse.jagged_tensor import JaggedTensor

from benchmarks.harness.measuring import Spread, interleaved, percentile, print_table, write_json
from elastichost.arena import kernels
from elastichost.arena.arena import Arena
from elastichost.arena.host import arena_root
from elastichost.arena.layout import plan_layout
from elastichost.ps.rows.store import RowStore
from elastichost.ps.snapshot import CopySpace
from elastichost.specs import DenseSpec, EmbeddingSpec, ModelSpec, RowOptimizerSpec, TableSpec

__all__ = ["main"]

Int64 = npt.NDArray[np.int64]
Work = Callable[[Int64], object]

DIM = 16
BUCKETS = [(0, bucket) for bucket in range(16)]
NEW_ROWS_PER_CALL = 2_000
QUERIES = 200_000
ZIPF = 1.05
CALLS_PER_GRACE = 8
AIM_WORST_MS = 5.0
AIM_MEMORY = 1.05


class Figures(msgspec.Struct, frozen=True):
    """See the module. `insert_ns` and `lookup_ns` by system; lookups also by kind of query."""

    keys: int
    insert_ns: dict[str, float]
    lookup_ns: dict[str, dict[str, Spread]]
    growth_ms: dict[str, float]  # wall: p50, p99, worst; cpu_p99, cpu_worst: what the calls themselves used
    memory_ratio: dict[str, float]  # fixed, dynamic, and bytes of a dynamic row by file
    snapshot_s_per_gb: dict[str, float]


def model_of(rows: int) -> ModelSpec:
    """One table (0 rows: dynamic) with one embedding of 16 floats and row-wise Adagrad."""
    table = TableSpec(name="table", index=0, features=("feature",), key_kind="int", rows=rows)
    optimizer = RowOptimizerSpec(name="rowwise_adagrad")
    embedding = EmbeddingSpec("rows", 0, 0, "sparse", "bag", ("feature",), DIM, "sum", optimizer, -0.1, 0.1)
    return ModelSpec((table,), (embedding,), DenseSpec((), 0, 0), 0, 1)


@contextmanager
def made_arena(rows: int, memory_bytes: int) -> Iterator[tuple[Arena, RowStore]]:
    """An arena where runs have theirs, gone afterwards, and the store of all its buckets."""
    root = Path(tempfile.mkdtemp(prefix=f"elastichost-{os.geteuid()}-benchmark-", dir=arena_root()))
    try:
        with Arena.create(root, plan_layout(model_of(rows), 0, memory_bytes)) as arena:
            store = RowStore(arena, 0)
            store.adopt([(0, b) for b in range(arena.layout.bucket_count(0))], initialise=True)
            yield arena, store
    finally:
        shutil.rmtree(root)


def cpu_ns(work: Work, keys: Int64) -> float:
    """CPU time of this thread."""
    began = time.thread_time_ns()
    work(keys)
    return time.thread_time_ns() - began


def lookup_ns(lookup: Work, queries: list[Int64], number: int) -> float:
    """CPU time for each key of one round's queries."""
    return cpu_ns(lookup, queries[number]) / QUERIES


# --- the index ----------------------------------------------------------------------------------------------------


class ManagedCollision:
    """torchrec's module with room for every key; ids it does not know get its last slot."""

    def __init__(self, keys: int) -> None:
        torch.set_num_threads(1)
        self._module = MCHManagedCollisionModule(
            zch_size=keys + 1,
            device=torch.device("cpu"),
            eviction_policy=LFU_EvictionPolicy(),
            eviction_interval=1,
            input_hash_size=2**62,
        ).train()

    @staticmethod
    def _features(keys: Int64) -> dict[str, JaggedTensor]:
        return {"f": JaggedTensor(values=torch.from_numpy(keys), lengths=torch.ones(len(keys), dtype=torch.int32))}

    def insert(self, keys: Int64) -> None:
        self._module.profile(self._features(keys))

    def lookup(self, keys: Int64) -> Int64:
        rows: Int64 = self._module.remap(self._features(keys))["f"].values().numpy()
        return rows


def queries_of(keys: Int64, random: np.random.Generator) -> dict[str, Int64]:
    """Queries of each kind, int64 [200,000]."""
    popularity = np.cumsum(np.arange(1, len(keys) + 1, dtype=np.float64) ** -ZIPF)
    drawn = np.searchsorted(popularity, random.random(QUERIES) * popularity[-1])
    return {"uniform": keys[random.integers(0, len(keys), QUERIES)], "zipf": keys[drawn]}


def measure_index(
    arena: Arena, store: RowStore, keys: Int64, rounds: int
) -> tuple[dict[str, float], dict[str, dict[str, Spread]]]:
    """(ns for each key inserted, ns for each key looked up) by system; the arena holds no key before."""
    collision, dictionary = ManagedCollision(len(keys)), dict[int, int]()
    out = np.empty(QUERIES, np.int64)

    def insert_dictionary(part: Int64) -> None:
        for key in part.tolist():
            dictionary.setdefault(key, len(dictionary))

    systems: dict[str, tuple[Work, Work]] = {
        "elastichost": (lambda part: store.rows_for(0, part, True, 0), lambda query: arena.lookup(0, query, out)),
        "torchrec_mch": (collision.insert, collision.lookup),
        "dict": (insert_dictionary, lambda query: [dictionary.get(key, -1) for key in query.tolist()]),
    }
    inserted_ns = dict.fromkeys(systems, 0.0)
    for part in np.array_split(keys, -(-len(keys) // QUERIES)):
        for name, (insert, _) in systems.items():
            inserted_ns[name] += cpu_ns(insert, part) / len(keys)
    random = np.random.default_rng(1)
    queries = [queries_of(keys, random) for _ in range(rounds)]
    for query in queries[0].values():
        if arena.lookup(0, query, out) or not np.array_equal(arena.ids_view(0)[out], query):
            raise AssertionError("the index does not hold the keys it was given")
    found: dict[str, dict[str, Spread]] = {name: {} for name in systems}
    for kind in queries[0]:
        of_rounds = [query[kind] for query in queries]
        arms = {name: partial(lookup_ns, lookup, of_rounds) for name, (_, lookup) in systems.items()}
        for name, spread in interleaved(arms, rounds).items():
            found[name][kind] = spread
    return inserted_ns, found


# --- growth, memory, snapshot -------------------------------------------------------------------------------------


def measure_growth(store: RowStore, keys: Int64) -> dict[str, float]:
    """Percentiles over the calls that create 2,000 rows each."""
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
    return {
        "p50": percentile(wall_ms, 50),
        "p99": percentile(wall_ms, 99),
        "worst": max(wall_ms),
        "cpu_p99": percentile(cpu_ms, 99),
        "cpu_worst": max(cpu_ms),
    }


def memory_of_dynamic(arena: Arena, store: RowStore) -> dict[str, float]:
    """Bytes for each row by file, and the ratio to the model's own rows and state."""
    while store.needs_grace:
        store.confirm_grace()
    rows = store.statistics().live_rows
    own_bytes = sum(4 * (e.dim + e.state_floats_per_row) for e in arena.model.embeddings)
    found = {f"dynamic_{file.path.name}_bytes": file.touched_bytes() / rows for file in arena.files.all()}
    return {"dynamic": arena.touched_bytes() / rows / own_bytes, **found}


def memory_of_fixed(rows: int) -> float:
    with made_arena(rows, 1 << 30) as (arena, _):
        own_bytes = rows * sum(4 * (e.dim + e.state_floats_per_row) for e in arena.model.embeddings)
        return arena.touched_bytes() / own_bytes


def measure_snapshot(store: RowStore) -> dict[str, float]:
    """s/GB of copying every bucket, as a checkpoint does it the first time, and then into the memory it kept."""
    space, found = CopySpace(), dict[str, float]()
    for name in ("fresh", "kept", "kept"):
        space.begin()
        began = time.perf_counter()
        copied = [block.array.nbytes for _, b in BUCKETS for block in store.snapshot_bucket(0, b, space.copy)]
        found[name] = (time.perf_counter() - began) / (sum(copied) / 1e9)
    return found


# --- the whole ----------------------------------------------------------------------------------------------------


def measure(keys: int, rounds: int) -> Figures:
    """All of it for so many keys."""
    kernels.warm()
    ids = np.random.default_rng(0).permutation(np.arange(2 * keys, dtype=np.int64) * 7919)[:keys]
    budget_bytes = max(1 << 26, 256 * keys)
    with made_arena(0, budget_bytes) as (arena, store):
        insert_ns, lookup_ns = measure_index(arena, store, ids, rounds)
    with made_arena(0, budget_bytes) as (arena, store):
        growth_ms = measure_growth(store, ids)
        memory = {"fixed": memory_of_fixed(keys), **memory_of_dynamic(arena, store)}
        snapshot = measure_snapshot(store)
    return Figures(keys, insert_ns, lookup_ns, growth_ms, memory, snapshot)


def show(figures: Figures) -> None:
    """On stdout."""
    print(f"index of {figures.keys:,} keys, CPU ns for each key: median (least-most)")
    print_table(
        ("", "insert", "lookup, uniform", f"lookup, Zipf {ZIPF}"),
        (
            (name, f"{insert:.0f}", str(figures.lookup_ns[name]["uniform"]), str(figures.lookup_ns[name]["zipf"]))
            for name, insert in figures.insert_ns.items()
        ),
    )
    print("elastichost's insert also makes the row: initial weights, state, id, and its memory\n")
    ms, memory, snapshot = figures.growth_ms, figures.memory_ratio, figures.snapshot_s_per_gb
    print_table(
        ("measure", "figure", "aim"),
        (
            (f"creating {NEW_ROWS_PER_CALL:,} rows, ms: p50", f"{ms['p50']:.2f}", ""),
            ("p99 (CPU time)", f"{ms['p99']:.2f} ({ms['cpu_p99']:.2f})", ""),
            ("worst (CPU time)", f"{ms['worst']:.2f} ({ms['cpu_worst']:.2f})", f"<= {AIM_WORST_MS:g}"),
            ("memory of a fixed table over its rows and state", f"{memory['fixed']:.3f}", f"<= {AIM_MEMORY}"),
            ("memory of a dynamic table over its rows and state", f"{memory['dynamic']:.3f}", ""),
            ("snapshot into fresh memory, s/GB", f"{snapshot['fresh']:.2f}", ""),
            ("snapshot into kept memory, s/GB", f"{snapshot['kept']:.2f}", ""),
        ),
    )
    print(
        f"\nA dynamic row of {DIM} floats and one of state is {4 * (DIM + 1)} bytes; knowing whose it is takes "
        f"{memory['dynamic_ids_bytes']:.1f} (id),\n{memory['dynamic_seen_bytes']:.1f} (when it was last seen) and "
        f"{memory['dynamic_index_bytes']:.1f} (id -> row, slots of 16 bytes about half full) more."
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="arena", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keys", type=int, default=5_000_000, help="ids, and rows created (5,000,000)")
    parser.add_argument("--repeat", type=int, default=9, help="rounds of lookups (9)")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    chosen = parser.parse_args(argv)
    figures = measure(chosen.keys, chosen.repeat)
    show(figures)
    if chosen.json:
        write_json("arena", figures)


if __name__ == "__main__":
    main()
