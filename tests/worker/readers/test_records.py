"""A batch as bytes is the same batch again."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.datasets.api import SampleBatch
from elastichost.errors import DataError, IdOutOfRangeError, JobFailedError
from elastichost.worker.readers.failures import error_bytes, error_from
from elastichost.worker.readers.records import (
    Kind,
    Record,
    batch_record_bytes,
    note_of,
    read_batch,
    read_record,
    write_batch,
    write_note,
)


def batch_of(size: int, seed: int = 0, *, weights: bool = False, truth: bool = False) -> SampleBatch:
    """A batch with lists of ids."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 4, 3 * size, dtype=np.int32)

    def column() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        return random.random(size, dtype=np.float32)

    return SampleBatch(
        unit=3,
        start=10,
        stop=12 + size,
        size=size,
        skipped=2,
        dense=random.random((size, 5), dtype=np.float32),
        keys=random.integers(-(2**63), 2**63 - 1, int(lengths.sum())),
        lengths=lengths,
        labels=random.random((size, 2), dtype=np.float32),
        weights=column() if weights else None,
        truth=column() if truth else None,
    )


def assert_same(one: SampleBatch, other: SampleBatch) -> None:
    for field in dataclasses.fields(SampleBatch):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(mine, np.ndarray):
            assert mine.dtype == theirs.dtype
            assert mine.shape == theirs.shape
        np.testing.assert_array_equal(mine, theirs, err_msg=field.name)


@given(st.integers(0, 40), st.integers(0, 1000), st.booleans(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_batch_comes_back_whole_and_in_memory_of_its_own(size: int, seed: int, weights: bool, truth: bool) -> None:
    batch = batch_of(size, seed, weights=weights, truth=truth)
    place = np.full(batch_record_bytes(batch), 0xFF, np.uint8)
    write_batch(place, batch, Record(Kind.BATCH, 4, 9))
    assert read_record(place) == Record(Kind.BATCH, 4, 9)
    found = read_batch(place)
    place[:] = 0
    assert_same(found, batch)


def test_columns_without_dense_features_and_arrays_in_another_order_come_back() -> None:
    batch = batch_of(6)
    batch = dataclasses.replace(
        batch, dense=np.empty((6, 0), np.float32), labels=np.asfortranarray(batch.labels), is_single_valued=True
    )
    place = np.empty(batch_record_bytes(batch), np.uint8)
    write_batch(place, batch, Record(Kind.BATCH, 0, 1))
    assert_same(read_batch(place), batch)


def test_a_note_is_cut_to_its_place() -> None:
    place = np.empty(256, np.uint8)
    write_note(place, Record(Kind.FAILED, 1, 2), b"x" * 500)
    assert read_record(place) == Record(Kind.FAILED, 1, 2)
    assert note_of(place) == b"x" * 128


@pytest.mark.parametrize("error", [DataError("row 6 of a.csv", hint="mend it"), IdOutOfRangeError("id 7")])
def test_an_error_of_the_data_comes_back_as_itself(error: DataError) -> None:
    found = error_from(error_bytes(error), "a reader of worker-0")
    assert (type(found), found.message, found.hint) == (type(error), error.message, error.hint)


def test_any_other_error_names_the_reader_and_fits_into_a_place() -> None:
    report = error_bytes(TypeError("no \ud800 \N{SNOWMAN}" * 2000))
    assert len(report) < 16_000
    found = error_from(report, "a reader of worker-0")
    assert type(found) is JobFailedError
    assert found.message.startswith("a reader of worker-0: TypeError: no ")
