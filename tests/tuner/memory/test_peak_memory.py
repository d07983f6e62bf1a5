"""The estimate of a job's peak memory: compared with a real arena and real copies, and properties for any job."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.arena.host import used_bytes
from elastichost.arena.index import table as index
from elastichost.arena.layout import plan_layout
from elastichost.human_readable import mib
from elastichost.ps import snapshot
from elastichost.ps.rows.store import RowStore
from elastichost.sharding import bucket_count
from elastichost.specs import (
    DenseSpec,
    DenseTensor,
    EmbeddingSpec,
    ModelSpec,
    RowOptimizer,
    RowOptimizerSpec,
    TableSpec,
)
from elastichost.supervisor.launch.servers import MALLOC_ENVIRONMENT
from elastichost.supervisor.memory.gauge import row_costs
from elastichost.tuner.memory import peak_memory
from elastichost.tuner.memory.living_bytes import living_bytes
from elastichost.tuner.memory.peak_memory import (
    FRAGMENTATION,
    MOST_FRAGMENTATION,
    UNFIT,
    MemoryEstimate,
    allocated_rows,
    estimate_peak,
)
from elastichost.tuner.memory.peak_memory_facts import ALONE, BESIDE, EMULATED, JobMemoryFacts, UnitMemory
from elastichost.wire.facts import TensorEvent, WorkingSet
from elastichost.worker.pipeline import PREFETCH_BATCHES

MB = 1 << 20
BLOCK = 32 * MB
BUDGET = 1 << 30


def model(rows: int = 5000, dim: int = 16, optimizer: RowOptimizer = "rowwise_adagrad", dense: int = 1000) -> ModelSpec:
    """A model with a fixed table and a dynamic table."""
    tables = (TableSpec("fixed", 0, ("f",), "int", rows), TableSpec("grows", 1, ("g",), "int", 0))
    embeddings = tuple(
        EmbeddingSpec(f"e{t}", t, t, "m", "bag", ("f",), dim, "sum", RowOptimizerSpec(optimizer), -1.0, 1.0)
        for t in (0, 1)
    )
    tensors = (DenseTensor("w", (dense // 10, 10), 0),)
    return ModelSpec(tables, embeddings, DenseSpec(tensors, dense, dense), 13, 1)


def fixed_only(rows: int = 5000) -> ModelSpec:
    whole = model(rows)
    return msgspec.structs.replace(whole, tables=whole.tables[:1], embeddings=whole.embeddings[:1])


NOTHING = WorkingSet((), ())


def facts(spec: ModelSpec | None = None, grown: float = 40_000, **settings: object) -> JobMemoryFacts:
    spec = spec or model()
    rows = tuple(float(table.rows or grown) for table in spec.tables)
    base = JobMemoryFacts(
        model=spec,
        workers=1,
        servers=1,
        access="direct",
        batch_size=512,
        rows=rows,
        ids=tuple(grown if table.is_dynamic else 0.0 for table in spec.tables),
        ids_per_batch=tuple(300.0 for _ in rows),
        sample_ids=float(len(rows)),
        sample_features=len(rows),
        sample_bytes=60.0,
        limit_bytes=BUDGET,
        block_bytes=BLOCK,
        working=NOTHING,
        bases=BESIDE,
    )
    return msgspec.structs.replace(base, **settings)


def of(estimate: MemoryEstimate, *names: str) -> int:
    """The bytes of the parts with these names."""
    return sum(part.bytes for part in estimate.parts if part.name in names)


ARENA = ("rows", "optimizer state", "ids and their index", "dense vector", "pushes")


# --- comparison with real allocations ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("ids", "optimizer"), [(2_000, "sgd"), (60_000, "rowwise_adagrad"), (150_000, "adagrad")])
def test_an_arena_takes_the_estimated_bytes(tmp_path: Path, ids: int, optimizer: RowOptimizer) -> None:
    spec = model(optimizer=optimizer)
    with Arena.create(tmp_path, plan_layout(spec, 7, BUDGET)) as arena:
        store, dense = RowStore(arena, 7), DenseStore(arena)
        buckets = [(table.index, bucket) for table in spec.tables for bucket in range(bucket_count(table))]
        store.adopt(buckets, initialise=True)
        for half in (0, 1):
            dense.mailbox(0, half)
        keys = np.random.default_rng(0).permutation(ids)
        for start in range(0, ids, 4096):
            store.rows_for(1, keys[start : start + 4096], True, start)
            store.confirm_grace()
        found = estimate_peak(facts(spec, float(ids)))
        assert of(found, *ARENA) == pytest.approx(used_bytes(tmp_path), rel=0.1)
        places = arena.files.rows.touched_bytes() + arena.files.state.touched_bytes()
        assert of(found, "rows", "optimizer state") == pytest.approx(places, rel=0.02)


def test_allocated_rows_agree_with_the_writer_of_a_bucket(tmp_path: Path) -> None:
    spec = model()
    with Arena.create(tmp_path, plan_layout(spec, 7, BUDGET)) as arena:
        store = RowStore(arena, 7)
        store.adopt([(1, bucket) for bucket in range(16)], initialise=True)
        for start in range(0, 60_000, 500):
            store.rows_for(1, np.arange(start, start + 500), True, start)
        headers = [arena.header(1, bucket) for bucket in range(16)]
        allocated = [int(header[index.ALLOCATED_ROWS]) for header in headers]
        assert allocated == [allocated_rows(int(header[index.LIVE_ROWS]), 16) for header in headers]


@pytest.mark.parametrize("rows", [20_000, 150_000, 700_000])
def test_reserved_copies_take_the_estimated_bytes(rows: int) -> None:
    spec = fixed_only(rows)
    told = of(estimate_peak(facts(spec, has_periodic_checkpoints=True)), "copies for checkpoints")
    writer = snapshot.SnapshotWriter()
    writer.reserve(rows * 68)
    assert writer._toucher is not None
    writer._toucher.join()
    space = writer.space()
    for start in range(0, rows, -(-rows // 16)):
        count = min(-(-rows // 16), rows - start)
        space.copy(np.zeros((count, 16), np.float32))
        space.copy(np.zeros(count, np.float32))
    assert told == pytest.approx(writer.kept_bytes, rel=0.13)
    writer.close()


def test_the_cost_of_rows_agrees_with_that_of_grants() -> None:
    spec = model(dim=30, optimizer="adagrad")
    bare = estimate_peak(facts(spec, grown=0.0))
    more = estimate_peak(facts(spec, grown=0.0, rows=(25_000.0, 0.0)))
    fixed = row_costs(spec).place[0] * 20_000
    assert of(more, "rows", "optimizer state") - of(bare, "rows", "optimizer state") == pytest.approx(fixed, rel=0.01)


def test_constants_agree_with_those_of_other_modules() -> None:
    assert peak_memory.BATCHES_DIRECT == PREFETCH_BATCHES + 2
    pieces = (snapshot._PIECE_BYTES, snapshot._LEAST_PIECE_BYTES, snapshot._PIECES)
    told = (peak_memory.COPY_PIECE_BYTES, peak_memory.LEAST_COPY_PIECE_BYTES, peak_memory.COPY_PIECES)
    assert pieces == told
    assert int(MALLOC_ENVIRONMENT["MALLOC_MMAP_THRESHOLD_"]) == BLOCK


# --- tensors ----------------------------------------------------------------------------------------------------------


def made(number: int, sample_bytes: float = 0.0, fixed_bytes: float = 0.0) -> TensorEvent:
    return TensorEvent(number, True, fixed_bytes, sample_bytes)


def freed(number: int) -> TensorEvent:
    return TensorEvent(number, False)


def test_tensors_that_exist_together_are_added() -> None:
    events = (made(0, 8.0), made(1, 4.0), freed(0), made(2, 6.0, 100.0), freed(1), freed(2))
    assert living_bytes(events, 10, BLOCK) == (200, 0, 200)
    assert living_bytes(events, 100, BLOCK) == (1200, 0, 1200)


def test_large_tensors_are_counted_separately() -> None:
    events = (made(0, 1000.0), made(1, 10.0), freed(0), freed(1))
    assert living_bytes(events, 100, 50_000) == (1000, 100_000, 101_000)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1e6)), max_size=30), st.integers(1, 1000), st.floats(1, 1e9))
def test_living_bytes_never_exceed_the_made_bytes(found: list[tuple[int, float]], samples: int, block: float) -> None:
    """A tensor with the number of an earlier one frees that one."""
    events, living = list[TensorEvent](), set[int]()
    for number, size in found:
        if number in living:
            events.append(freed(number))
            living.discard(number)
        else:
            events.append(made(number, size))
            living.add(number)
    small, large, both = living_bytes(events, samples, int(block))
    whole = sum(event.sample_bytes * samples for event in events)
    assert max(small, large) <= both * (1 + 1e-9) + 1e-6
    assert both <= (small + large) * (1 + 1e-9) + 1e-6
    assert both <= whole * (1 + 1e-9) + 1e-6


# --- the sum ----------------------------------------------------------------------------------------------------------

STEP = WorkingSet((made(0, 4000.0), freed(0)), (made(0, 3000.0), freed(0)))
LARGE = WorkingSet((made(0, 5e5), freed(0)), (made(0, 1e5), freed(0)))


@pytest.mark.parametrize(
    "more",
    [
        {"workers": 2},
        {"servers": 2},
        {"batch_size": 4096},
        {"access": "served"},
        {"test_samples": 100_000},
        {"readers": 2},
        {"train_unit": UnitMemory(50 * MB, 80 * MB)},
        {"has_periodic_checkpoints": True},
        {"bases": ALONE},
        {"rows": (90_000.0, 40_000.0)},
        {"ids": (0.0, 90_000.0)},
        {"sample_ids": 50.0},
    ],
    ids=lambda more: next(iter(more)),
)
def test_the_estimate_grows_with_every_input(more: dict[str, object]) -> None:
    assert estimate_peak(facts(working=STEP, **more)).host_bytes > estimate_peak(facts(working=STEP)).host_bytes


def test_copies_exist_at_a_checkpoint_and_large_tensors_in_a_step() -> None:
    small = estimate_peak(facts(fixed_only(500_000), working=STEP))
    assert (small.moment, of(small, "copies for checkpoints")) == ("checkpoint", 500_000 * 68)
    large = estimate_peak(facts(fixed_only(1000), working=LARGE))
    assert (large.moment, of(large, "copies for checkpoints")) == ("training", 0)
    assert of(large, "activations, large ones") == 256_000_000
    both = estimate_peak(facts(fixed_only(1000), working=LARGE, has_periodic_checkpoints=True))
    assert both.moment == "training" and of(both, "copies for checkpoints") > 0


def test_an_evaluation_with_larger_batches_is_the_peak() -> None:
    found = estimate_peak(facts(fixed_only(1000), working=LARGE, batch_size=16, test_samples=10_000))
    assert found.moment == "evaluation"
    assert of(found, "activations, large ones") == 51_200_000
    few = estimate_peak(facts(fixed_only(1000), working=LARGE, batch_size=16, test_samples=400, workers=3))
    assert of(few, "activations, large ones") == 40_000_000  # one worker scores all of them


def test_a_heap_is_that_of_its_moment() -> None:
    """A worker that scores returns what training has taken, and afterwards what scoring has taken."""

    def heap(rows: int, batch: int, test: int, workers: int = 1) -> tuple[str, int]:
        found = estimate_peak(
            facts(fixed_only(rows), working=STEP, batch_size=batch, test_samples=test, workers=workers)
        )
        return found.moment, of(found, "activations")

    few, many = 10, 2_000_000  # many rows: most memory is needed when they are copied for a checkpoint
    trained, scored = MOST_FRAGMENTATION * 512 * 4000, MOST_FRAGMENTATION * 1024 * 3000
    assert heap(few, 512, 20_000) == ("evaluation", pytest.approx(scored, abs=1))
    assert heap(few, 4096, 20_000) == ("training", pytest.approx(MOST_FRAGMENTATION * 4096 * 4000, abs=1))
    assert heap(many, 512, 0) == ("checkpoint", pytest.approx(trained, abs=1)), "nothing was scored or returned"
    assert heap(many, 512, 20_000) == ("checkpoint", 0)
    # three workers have trained, and one of them scores all test samples
    assert heap(few, 512, 1024, 3) == ("evaluation", pytest.approx(2 * trained + scored, abs=1))
    assert heap(many, 512, 1024, 3) == ("checkpoint", pytest.approx(2 * trained, abs=1))


def heap_of(*sizes: int) -> int:
    """The heap of a step that makes tensors of these sizes and frees none before its end."""
    events = tuple(TensorEvent(number, True, float(size), 0.0) for number, size in enumerate(sizes))
    return of(estimate_peak(facts(working=WorkingSet(events, ()))), "activations")


def test_a_large_block_that_fits_into_a_hole_displaces_small_ones() -> None:
    small = [MB] * 40
    assert heap_of(*small, 50 * MB) == pytest.approx(FRAGMENTATION * 40 * MB + 50 * MB, abs=1)
    assert heap_of(*small, 200 * MB) == pytest.approx(FRAGMENTATION * 40 * MB, abs=1), "no hole is so large"


def test_a_few_tensors_divide_a_heap_more_than_many() -> None:
    assert heap_of(*[MB] * 20) == pytest.approx(FRAGMENTATION * 20 * MB, abs=1)
    assert heap_of(*[5 * MB] * 4) == pytest.approx((20 + UNFIT * 5) * MB, rel=0.06)
    assert heap_of(10 * MB, 10 * MB) == pytest.approx((20 + UNFIT * 10) * MB, abs=1)
    assert heap_of(20 * MB) == pytest.approx(MOST_FRAGMENTATION * 20 * MB, abs=1)


def test_a_heap_of_which_nothing_is_known_is_guessed_from_the_dense_part() -> None:
    known, guessed = (of(estimate_peak(facts(working=one)), "activations") for one in (NOTHING, None))
    assert known == 0 and guessed > FRAGMENTATION * 512 * 4


def test_modules_of_the_user_take_memory_in_each_process_that_imports_them() -> None:
    many = facts(workers=3, readers=2, own_reader_bytes=1_000_000, own_model_bytes=10_000_000)
    assert of(estimate_peak(many), "own reader and model") == (1 + 3 + 3 * 2) * 1_000_000 + 3 * 10_000_000


def test_a_tuner_takes_memory_of_its_supervisor() -> None:
    without, with_one = (estimate_peak(facts(has_tuner=has)) for has in (False, True))
    assert with_one.host_bytes - without.host_bytes == BESIDE.tuner
    assert of(with_one, "supervisor") - of(without, "supervisor") == BESIDE.tuner


def test_one_more_worker_takes_the_estimated_bytes() -> None:
    one = estimate_peak(facts(working=STEP, test_samples=50_000))
    two = estimate_peak(facts(working=STEP, test_samples=50_000, workers=2))
    assert one.worker_bytes == two.host_bytes - one.host_bytes > BESIDE.worker


def test_only_jobs_with_dynamic_tables_are_limited_to_the_budget() -> None:
    grown = estimate_peak(facts(grown=5e6, limit_bytes=600 * MB))
    assert grown.host_bytes == 600 * MB < sum(part.bytes for part in grown.parts)
    assert "limited to" in grown.words()[0]
    fixed = estimate_peak(facts(fixed_only(10_000_000), limit_bytes=600 * MB))
    assert fixed.host_bytes > 1000 * MB


def test_if_the_model_was_not_run_tensors_are_guessed_from_the_dense_part() -> None:
    guessed = estimate_peak(facts(working=None, batch_size=8192, notes=("the model fails",)))
    assert of(guessed, "activations") > 8192 * 4 * 100  # the layer's outputs alone
    assert guessed.words()[-1] == "the model fails"


def test_an_emulated_job_has_only_its_processes() -> None:
    nothing = ModelSpec((), (), DenseSpec((), 0, 0), 0, 0)
    found = estimate_peak(facts(nothing, rows=(), ids=(), is_emulated=True, workers=10, servers=2, bases=EMULATED))
    b = EMULATED
    assert found.host_bytes == b.fork_server + b.supervisor + 2 * b.server + 10 * b.worker
    assert found.worker_bytes == b.worker


def test_activations_and_replicas_on_a_gpu_are_gpu_memory() -> None:
    on_cpu = estimate_peak(facts(working=STEP, batch_size=8192))
    on_gpu = estimate_peak(facts(working=STEP, batch_size=8192, gpus=1))
    assert on_cpu.gpu_bytes == 0
    assert on_gpu.gpu_bytes > BESIDE.gpu_context + 8192 * 4000
    assert of(on_gpu, "activations") < of(on_cpu, "activations")
    assert "on GPUs" in on_gpu.words()[0]


def test_a_model_in_memory_of_the_gpu_takes_memory_there_too() -> None:
    in_arena, resident = (
        estimate_peak(facts(fixed_only(), working=STEP, gpus=1, is_model_on_gpu=on_gpu)) for on_gpu in (False, True)
    )
    assert resident.host_bytes == in_arena.host_bytes
    rows, state, dense = 4 * 5000 * 16, 4 * 5000, 2 * 12 * 1000  # two halves of vector and two moments
    assert rows + state + dense <= resident.gpu_bytes - in_arena.gpu_bytes < rows + state + dense + (1 << 16)
    assert of(resident, "rows and dense part") == resident.gpu_bytes - in_arena.gpu_bytes


def test_workers_beyond_the_gpus_are_on_the_cpu() -> None:
    def estimate(workers: int, gpus: int) -> MemoryEstimate:
        return estimate_peak(facts(working=STEP, batch_size=8192, workers=workers, gpus=gpus))

    alone, mixed, on_cpu = estimate(1, 1), estimate(3, 1), estimate(2, 0)
    assert mixed.gpu_bytes == alone.gpu_bytes, "CPU workers take nothing of a GPU"
    one, both = of(alone, "activations"), of(mixed, "activations")
    assert both == pytest.approx(one + of(on_cpu, "activations"))


def test_words_list_the_parts_by_size() -> None:
    found = estimate_peak(facts(fixed_only(500_000), working=STEP))
    first, *lines = found.words()
    assert f"{mib(found.host_bytes)}, at a checkpoint" in first
    sizes = [float(line.split()[0].replace(",", "")) for line in lines]
    assert sizes == sorted(sizes, reverse=True)
    assert any("copies for checkpoints" in line for line in lines)


def test_in_sync_mode_every_micro_batch_may_be_staged() -> None:
    few = estimate_peak(facts(access="served", micro_batches=2))
    many = estimate_peak(facts(access="served", micro_batches=16))
    assert of(many, "pushes") > 5 * of(few, "pushes")
