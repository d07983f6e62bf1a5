"""Readers with a limited rate: how long batches take, which bytes count, and how a wait is interrupted."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.datasets import open_reader
from elastichost.datasets.api import Reader, SampleBatch, Unit
from elastichost.datasets.remote import (
    BURST_S,
    MOST_WAIT_S,
    RemoteLink,
    RemoteRate,
    RemoteReader,
    asked,
    batch_bytes,
    cut_off,
    opened,
    remote_rate,
    resized,
)

from .conftest import (
    all_batches,
    assert_same_samples,
    criteo_line,
    criteo_settings,
    load,
    reader_of,
    settings,
    write_parquet,
)

# Seconds until the next request, and whether that is for another unit; and the bytes that are requested.
PAUSES = st.tuples(st.floats(0.0, 2.0), st.booleans())
ASKS = st.lists(st.tuples(st.integers(0, 5000), PAUSES), min_size=1, max_size=30)
RATES = st.floats(1.0, 1e6)
LATENCIES = st.floats(0.0, 1.0)


@dataclass(slots=True)
class Clock:
    """A clock that only waiting advances. `stops_s`: the time from which on no batch is needed any more."""

    now_s: float = 50.0
    stops_s: float = math.inf
    waits_s: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> bool:
        self.waits_s.append(seconds)
        self.now_s = min(self.now_s + seconds, max(self.now_s, self.stops_s))
        return self.now_s < self.stops_s


def remote(reader: Reader, clock: Clock, bytes_per_s: float, latency_s: float = 0.0) -> RemoteReader:
    return RemoteReader(reader, RemoteRate(bytes_per_s, latency_s), clock.wait, clock)


def synthetic(folder: Path, more: str = "") -> Reader:
    """3 units of 200 samples; a sample is 2 * 4 + 3 * (8 + 4) + 4 = 48 bytes."""
    shape = "synthetic = { rows = 600, tables = 3, table_rows = 50, dense = 2, unit_rows = 200 }"
    return open_reader(load(folder, f'format = "synthetic"\n{shape}\n{more}'), "train")


# --- the pure part ----------------------------------------------------------------------------------------------


@given(bytes_per_s=RATES, latency_s=LATENCIES, asks=ASKS)
def test_never_faster_than_the_rate_beyond_the_burst(
    bytes_per_s: float, latency_s: float, asks: list[tuple[int, tuple[float, bool]]]
) -> None:
    """In every window from a request to a batch the bytes stay within the rate, and no burst begins before its unit."""
    link, now_s, opened_s = opened(RemoteLink(RemoteRate(bytes_per_s, latency_s), (0.0,)), 3.0), 3.0, 3.0
    # times of the unit's request, the batch's request and its arrival; bytes
    came: list[tuple[float, float, float, int]] = []
    for size_bytes, (pause_s, is_new_unit) in asks:
        asked_s = now_s
        link, wait_s = asked(link, size_bytes, now_s)
        assert wait_s >= 0.0
        now_s += wait_s
        came.append((opened_s, asked_s, now_s, size_bytes))
        now_s += pause_s
        if is_new_unit:
            opened_s, link = now_s, opened(link, now_s)
    for first, (unit_s, begin_s, _, _) in enumerate(came):
        sums = np.cumsum([size_bytes for *_, size_bytes in came[first:]])
        for sum_bytes, (_, _, there_s, _) in zip(sums, came[first:], strict=True):
            assert sum_bytes / bytes_per_s <= (there_s - begin_s + BURST_S) * (1 + 1e-9)
            if first == 0 or unit_s != came[first - 1][0]:
                assert sum_bytes / bytes_per_s + latency_s <= (there_s - unit_s) * (1 + 1e-9) + 1e-9


@given(bytes_per_s=RATES, latency_s=LATENCIES, sizes=st.lists(st.integers(0, 5000), min_size=1, max_size=30))
def test_bytes_arrive_while_the_reader_works(bytes_per_s: float, latency_s: float, sizes: list[int]) -> None:
    """While the buffers can hold them: all bytes have arrived after latency + bytes / rate."""
    link, now_s = opened(RemoteLink(RemoteRate(bytes_per_s, latency_s), (0.0,)), 3.0), 3.0
    for size_bytes in sizes:
        last_s = now_s = now_s + BURST_S / len(sizes)
        link, wait_s = asked(link, size_bytes, now_s)
        now_s += wait_s
    assert now_s == pytest.approx(max(last_s, 3.0 + latency_s + sum(sizes) / bytes_per_s))


def test_without_requests_no_more_arrives_than_the_buffers_hold() -> None:
    link, wait_s = asked(opened(RemoteLink(RemoteRate(100.0), (0.0,)), 0.0), 100, 0.0)
    assert wait_s == 1.0
    _, wait_s = asked(link, 100, 61.0)
    assert wait_s == 1.0 - BURST_S


def test_the_next_request_does_not_wait_for_a_cancelled_one() -> None:
    link, wait_s = asked(opened(RemoteLink(RemoteRate(100.0), (0.0,)), 0.0), 100_000, 0.0)
    assert wait_s == 1000.0
    _, wait_s = asked(opened(cut_off(link, 2.0), 2.0), 100, 2.0)
    assert wait_s == 1.0


@given(rate=RATES, connections=st.integers(1, 32), asks=ASKS, range_bytes=st.integers(1, 10_000))
def test_several_connections_are_never_faster_than_that_number_of_rates(
    rate: float, connections: int, asks: list[tuple[int, tuple[float, bool]]], range_bytes: int
) -> None:
    link, now_s, opened_s = RemoteLink(RemoteRate(rate), (0.0,) * connections), 3.0, 3.0
    link, arrived = opened(link, now_s), 0
    for size, (pause_s, _) in asks:
        link, wait_s = asked(link, size, now_s, range_bytes)
        now_s, arrived = now_s + wait_s, arrived + size
        assert arrived <= connections * rate * (now_s - opened_s + BURST_S) * (1 + 1e-9) + 1e-6
        now_s += pause_s


def test_ranges_of_one_batch_arrive_at_the_same_time_over_several_connections() -> None:
    link = opened(RemoteLink(RemoteRate(100.0), (10.0,) * 4), 10.0)
    assert asked(link, 400, 10.0, 100)[1] == 1.0
    assert asked(link, 400, 10.0)[1] == 4.0


def test_fewer_connections_bring_no_bytes_earlier() -> None:
    link = RemoteLink(RemoteRate(100.0, latency_s=0.5), (11.0, 14.0, 12.0))
    assert resized(link, 2, 10.0).free_s == (14.0, 12.0)
    assert resized(link, 4, 10.0).free_s == (14.0, 12.0, 11.0, 10.5)


# --- readers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle_seed", [None, 5])
def test_the_batches_are_the_same_but_arrive_later(tmp_path: Path, shuffle_seed: int | None) -> None:
    clock = Clock()
    slow = remote(synthetic(tmp_path), clock, bytes_per_s=1000.0, latency_s=0.5)
    assert slow.describe().samples == 600
    assert clock.now_s == 50.0
    batches = all_batches(slow, 70, shuffle_seed)
    assert_same_samples(batches, all_batches(synthetic(tmp_path), 70, shuffle_seed), 3)
    assert sum(map(batch_bytes, batches)) == 600 * 48
    assert clock.now_s == pytest.approx(50.0 + 3 * 0.5 + 600 * 48 / 1000.0)
    assert max(clock.waits_s) <= MOST_WAIT_S


def test_latency_counts_once_for_each_unit(tmp_path: Path) -> None:
    clock = Clock()
    slow = remote(synthetic(tmp_path), clock, bytes_per_s=0.0, latency_s=0.5)
    first, second, _ = slow.describe().units
    ranges = [(first, 0, 50), (first, 50, 100), (second, 0, 10), (first, 100, 101), (first, 150, 200)]
    moments = []
    for unit, start, stop in ranges:
        list(slow.batches(unit, start, stop, 64))
        moments.append(clock.now_s - 50.0)
    assert moments == pytest.approx([0.5, 0.5, 1.0, 1.5, 1.5])


def test_batches_end_at_once_when_they_are_no_longer_needed(tmp_path: Path) -> None:
    clock = Clock(stops_s=52.5)
    slow = remote(synthetic(tmp_path), clock, bytes_per_s=48.0, latency_s=0.25)  # a sample a second
    unit = slow.describe().units[0]
    assert [batch.stop for batch in slow.batches(unit, 0, 100, 1)] == [1, 2]
    assert clock.now_s == 52.5
    clock.stops_s = math.inf
    assert [batch.start for batch in slow.batches(unit, 2, 3, 1)] == [2]
    assert clock.now_s == 52.5 + 1.25  # the cancelled batch is requested again


def test_a_rate_that_never_ends_can_be_interrupted(tmp_path: Path) -> None:
    clock = Clock(stops_s=55.0)
    slow = remote(synthetic(tmp_path), clock, bytes_per_s=1.0, latency_s=1e300)
    assert list(slow.batches(slow.describe().units[0], 0, 200, 200)) == []
    assert clock.now_s == 55.0


# --- what counts as bytes -------------------------------------------------------------------------------------------


def test_bytes_of_parquet_are_the_compressed_ones_of_the_columns_that_are_read(tmp_path: Path) -> None:
    rows = 3000
    random = np.random.default_rng(0)
    columns = {
        "y": random.integers(0, 2, rows),
        "unread": random.random(rows),
        "x": np.zeros(rows),
        "c": random.integers(0, 500, rows),
        "lists": [[1, 2, 3]] * rows,
    }
    path = write_parquet(tmp_path / "a.parquet", columns, row_group_rows=1000)
    reader = reader_of(settings(path, categorical=("c", "lists")))
    metadata = pq.read_metadata(path)
    groups = [metadata.row_group(number) for number in range(3)]
    expected = [sum(group.column(leaf).total_compressed_size for leaf in range(5) if leaf != 1) for group in groups]
    units = reader.describe().units
    assert [reader.stored_bytes(unit) for unit in units] == expected
    assert expected[0] < 1000 * (8 + 8 + 8 + 3 * 8)  # zeros are compressed

    clock = Clock()
    slow = remote(reader, clock, bytes_per_s=100.0)
    for start, stop in ((0, 300), (300, 1000)):
        list(slow.batches(units[1], start, stop, 64, 7))
    assert clock.now_s - 50.0 == pytest.approx(expected[1] / 100.0)

    cut_short = reader_of(settings(path, categorical=("c", "lists"), limit_rows=1250))
    assert [cut_short.stored_bytes(unit) for unit in cut_short.describe().units] == [expected[0], expected[1] / 4]


def test_bytes_of_text_are_those_of_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "day.tsv"
    path.write_text("".join(criteo_line(integers=str(number)) + "\n" for number in range(250)))
    reader = reader_of(criteo_settings(path, text_unit_lines=100))
    stored = [reader.stored_bytes(unit) for unit in reader.describe().units]
    assert len(stored) == 3
    assert sum(stored) == path.stat().st_size

    table = tmp_path / "day.csv"
    table.write_text("y,x,c\n" + "0,1,a\n" * 10)
    short = reader_of(settings(table, "csv", limit_rows=5))
    (unit,) = short.describe().units
    assert short.stored_bytes(unit) == 5 * len("0,1,a\n")


def test_bad_rows_count_as_bytes(tmp_path: Path) -> None:
    columns = {"y": [0.0, None, None, 1.0], "x": [1.0] * 4, "c": [1] * 4}
    reader = reader_of(settings(write_parquet(tmp_path / "a.parquet", columns), skip_bad_rows=True))
    (unit,) = reader.describe().units
    clock = Clock()
    batches = list(remote(reader, clock, bytes_per_s=10.0).batches(unit, 0, 4, 64))
    assert sum(batch.size for batch in batches) == 2
    assert clock.now_s - 50.0 == pytest.approx(reader.stored_bytes(unit) / 10.0)


class OneBatch:
    """A custom reader that gives one batch. How many bytes it reads is not known."""

    def describe(self) -> None:
        raise NotImplementedError

    def batches(
        self,
        unit: Unit,
        start: int,
        stop: int,
        batch_size: int,
        shuffle_seed: int | None = None,
        min_samples: int = 1,
    ) -> list[SampleBatch]:
        size = stop - start
        numbers, weights = np.zeros((size, 3), np.float32), np.ones(size, np.float32)
        keys, lengths = np.zeros(2 * size, np.int64), np.full(size, 2, np.int32)
        return [SampleBatch(0, start, stop, size, 0, numbers, keys, lengths, numbers[:, :1], weights)]


def test_bytes_of_a_custom_reader_are_those_of_its_arrays() -> None:
    clock = Clock()
    slow = remote(OneBatch(), clock, bytes_per_s=1.0)  # type: ignore[arg-type]  # it describes nothing
    list(slow.batches(Unit(0, 0, 10, 0, 0), 0, 10, 10))
    assert clock.now_s - 50.0 == 10 * (3 * 4 + 2 * 8 + 4 + 4 + 4)


# --- from the job file ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("{}", None),
        ("{ bytes_per_s = 0 }", None),
        ('{ bytes_per_s = "20MB" }', RemoteRate(20e6)),
        ("{ bytes_per_s = 1_000, latency_s = 0.05 }", RemoteRate(1000.0, 0.05)),
        ("{ latency_s = 1 }", RemoteRate(0.0, 1.0)),
    ],
)
def test_the_rate_of_a_job(tmp_path: Path, setting: str, expected: RemoteRate | None) -> None:
    assert remote_rate(load(tmp_path, f'format = "synthetic"\nremote = {setting}')) == expected


def test_opening_a_reader_slows_nothing(tmp_path: Path) -> None:
    """Only the pipeline that trains limits the rate: checks, evaluations and predictions read without a limit."""
    assert type(synthetic(tmp_path, "remote = { bytes_per_s = 1 }")) is type(synthetic(tmp_path))
