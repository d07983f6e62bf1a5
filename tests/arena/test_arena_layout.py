"""The layout is a pure function whose regions never overlap."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.arena.layout import MAX_BUCKET_ROWS, MAX_VIRTUAL_BYTES, MIN_BUCKET_ROWS, ArenaLayout, plan_layout
from elastichost.errors import ArenaFullError
from elastichost.host.machine import PAGE_BYTES
from elastichost.specs import DenseSpec, EmbeddingSpec, ModelSpec, RowOptimizer, RowOptimizerSpec, TableSpec
from tests.effort import examples

MakeModel = Callable[..., ModelSpec]


def model_of(rows: list[int], dims: list[int]) -> ModelSpec:
    tables = tuple(TableSpec(f"t{i}", i, (f"f{i}",), "int", rows=count) for i, count in enumerate(rows))
    optimizers: tuple[RowOptimizer, ...] = ("sgd", "adagrad", "rowwise_adagrad")
    embeddings = tuple(
        EmbeddingSpec(
            f"e{i}", i, i % len(tables), "m", "bag", ("f",), dim, "sum", RowOptimizerSpec(optimizers[i % 3]), -1.0, 1.0
        )
        for i, dim in enumerate(dims)
    )
    return ModelSpec(tables, embeddings, DenseSpec((), 100, 120), 1, 1)


@settings(max_examples=examples(50), deadline=None)
@given(
    rows=st.lists(st.integers(0, 100_000), min_size=1, max_size=5),
    dims=st.lists(st.integers(1, 70), max_size=8),
    memory_bytes=st.integers(1, 1 << 40),
)
def test_regions_are_page_aligned_and_do_not_overlap(rows: list[int], dims: list[int], memory_bytes: int) -> None:
    model = model_of(rows, dims)
    layout = plan_layout(model, 3, memory_bytes)
    regions: list[tuple[int, int]] = []
    for e in model.embeddings:
        start = 4 * layout.rows_offset(e.index)
        regions.append((start, start + 4 * e.padded_dim * layout.row_space(e.table)))
    assert_disjoint(regions, layout.files.rows)
    states = [e for e in model.embeddings if e.state_floats_per_row]
    starts = [4 * layout.state_offset(e.index) for e in states]
    sizes = [4 * e.state_floats_per_row * layout.row_space(e.table) for e in states]
    assert_disjoint([(start, start + size) for start, size in zip(starts, sizes, strict=True)], layout.files.state)
    assert all(layout.state_offset(e.index) == -1 for e in model.embeddings if not e.state_floats_per_row)
    slots = [
        (16 * layout.slot_offset(t.index, b), 16 * (layout.slot_offset(t.index, b) + layout.tables[i].region_slots))
        for i, t in enumerate(model.tables)
        if t.is_dynamic
        for b in range(layout.bucket_count(t.index))
    ]
    assert_disjoint(slots, layout.files.index)


def assert_disjoint(regions: list[tuple[int, int]], file_bytes: int) -> None:
    end = 0
    for start, stop in sorted(regions):
        assert start % PAGE_BYTES == 0
        assert start >= end
        end = stop
    assert end <= file_bytes


@pytest.mark.parametrize("memory_bytes", [1, 1 << 30, 1 << 36, 1 << 50])
def test_dynamic_capacity_is_a_bounded_power_of_two(make_model: MakeModel, memory_bytes: int) -> None:
    layout = plan_layout(make_model(rows=(0,), dims=(16, 1)), 0, memory_bytes)
    capacity = layout.bucket_capacity(0)
    assert capacity & (capacity - 1) == 0
    assert MIN_BUCKET_ROWS <= capacity <= MAX_BUCKET_ROWS
    assert layout.row_space(0) == 16 * capacity


def test_a_bucket_could_hold_an_eighth_of_the_budget(make_model: MakeModel) -> None:
    layout = plan_layout(make_model(rows=(0,), dims=(16,)), 0, 1 << 28)
    row_bytes = 4 * (16 + 1) + 8 + 4 + 32
    assert layout.bucket_capacity(0) * row_bytes >= (1 << 28) // 8


def test_the_layout_can_be_sent_as_json(make_model: MakeModel) -> None:
    layout = plan_layout(make_model(rows=(0, 5000)), 11, 1 << 28)
    assert msgspec.json.decode(msgspec.json.encode(layout), type=ArenaLayout) == layout


def test_fixed_bytes_count_rows_state_and_both_dense_halves(make_model: MakeModel) -> None:
    small = plan_layout(make_model(rows=(1000,), dims=(4,)), 0, 1 << 28)
    large = plan_layout(make_model(rows=(1000 + 1024 * 64,), dims=(4,)), 0, 1 << 28)
    assert large.fixed_bytes - small.fixed_bytes == pytest.approx(1024 * 64 * (4 * 4 + 4), abs=4 * PAGE_BYTES)
    dynamic = plan_layout(make_model(rows=(0,), elements=1 << 20, parameters=1 << 20), 0, 1 << 28)
    assert dynamic.fixed_bytes == pytest.approx(2 * 3 * 4 * (1 << 20), rel=0.01)


def test_many_dynamic_tables_stay_mappable() -> None:
    layout = plan_layout(model_of([0] * 2000, [8] * 2000), 0, 1 << 40)
    assert layout.files.total <= MAX_VIRTUAL_BYTES
    assert layout.bucket_capacity(0) >= MIN_BUCKET_ROWS


def test_a_model_beyond_the_address_space_is_refused(make_model: MakeModel) -> None:
    with pytest.raises(ArenaFullError, match="address space"):
        plan_layout(make_model(rows=(1 << 44,), dims=(16,)), 0, 1 << 30)


def test_the_last_bucket_of_a_fixed_table_may_be_shorter(make_model: MakeModel) -> None:
    layout = plan_layout(make_model(rows=(2500,)), 0, 1 << 28)
    sizes = [layout.bucket_rows(0, bucket) for bucket in range(layout.bucket_count(0))]
    assert sum(sizes) == 2500
    assert sizes[0] == layout.bucket_capacity(0)
