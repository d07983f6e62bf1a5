"""The shared source: one rate for all connections together, in equal parts, counted by the kernel for each process."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from benchmarks.colocate.jobs import QUICK, SHAPES, SOURCE_BYTES_PER_S, Shape, job_of, write_job
from benchmarks.colocate.shared_source import SOURCE_VARIABLE, SharedSource, SourceConnection
from elastichost.config.job import load_job
from elastichost.datasets import open_reader
from elastichost.dispatcher.isolation.process_meter import read_bytes

MB = 10**6


def test_what_is_fetched_is_counted_for_the_process(tmp_path: Path) -> None:
    with SharedSource(tmp_path / "source", 50 * MB):
        one = SourceConnection(str(tmp_path / "source"))
        before = read_bytes((os.getpid(),))
        one.fetch(2 * MB)
        after = read_bytes((os.getpid(),))
        one.close()
    assert before is not None and after is not None
    assert 2 * MB <= after - before < 3 * MB
    assert not (tmp_path / "source").exists()


def test_connections_get_equal_parts(tmp_path: Path) -> None:
    """One that wants ten times as much gets no more than the other until the other has ended."""
    got = {"many": 0, "few": 0}
    ended = threading.Event()

    def fetch(name: str, times: int) -> None:
        one = SourceConnection(str(tmp_path / "source"))
        while got[name] < times and not ended.is_set():
            one.fetch(MB // 10)
            got[name] += 1
        one.close()
        ended.set()

    with SharedSource(tmp_path / "source", 20 * MB):
        threads = [threading.Thread(target=fetch, args=pair) for pair in (("many", 200), ("few", 20))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert got["few"] == 20 and got["many"] < 60


def test_a_source_that_ends_ends_its_readers(tmp_path: Path) -> None:
    raised: list[ConnectionError] = []

    def read(one: SourceConnection) -> None:
        try:
            one.fetch(MB)
        except ConnectionError as error:
            raised.append(error)

    with SharedSource(tmp_path / "source", 1000.0):
        one = SourceConnection(str(tmp_path / "source"))
        one.fetch(10)  # it is served
        reading = threading.Thread(target=read, args=(one,))
        reading.start()
    reading.join()
    one.close()
    assert len(raised) == 1


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.kind == "disk"], ids=lambda shape: shape.name)
def test_a_sample_of_a_disk_job_needs_its_part_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: Shape
) -> None:
    spec = load_job(write_job(tmp_path, job_of(shape, 1, QUICK)), environ={})
    with SharedSource(tmp_path / "source", 100 * MB):
        monkeypatch.setenv(SOURCE_VARIABLE, str(tmp_path / "source"))
        reader = open_reader(spec, "train")
        unit = reader.describe().units[0]
        next(iter(reader.batches(unit, 0, 10, 10)))  # the first batch also loads kernels
        before = read_bytes((os.getpid(),)) or 0
        assert sum(batch.size for batch in reader.batches(unit, 0, 100, 50)) == 100
        fetched = (read_bytes((os.getpid(),)) or 0) - before
    assert fetched / 100 == pytest.approx(SOURCE_BYTES_PER_S / shape.samples_per_s, rel=0.1)
    test = open_reader(spec, "test")
    assert sum(batch.size for batch in test.batches(test.describe().units[0], 0, 100, 50)) == 100
