"""Files at URLs as pyarrow reads them: the same rows as from the disk, and only the bytes that are needed."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from elastichost.chaos.faults.source_server import SourceServer
from elastichost.datasets import open_reader
from elastichost.datasets.preflight import check_data
from elastichost.datasets.sources.control import InputControl
from elastichost.datasets.sources.remote_file import FetchedFile, RemoteFile, remote_file
from elastichost.datasets.sources.single_requests import RequestPolicy
from elastichost.datasets.sources.transports.addressed_file import AddressedFile, SourceError
from elastichost.errors import DataError, SourceGoneError
from elastichost.wire.facts import InputKnobs
from tests.datasets.conftest import all_batches, assert_same_samples, load, write_parquet
from tests.datasets.sources.served import CONTENT, file, folder, server

__all__ = ["file", "folder", "server"]

ROWS = 900
COLUMNS = 'format = "parquet"\nlabel = "y"\ndense = ["x"]\ncategorical = ["c", "d"]'


def table(path: Path) -> Path:
    numbers = np.arange(ROWS)
    columns = {
        "unused": [f"{number} that nobody reads" * 5 for number in range(ROWS)],
        "y": (numbers % 2).astype(np.float32),
        "x": numbers.astype(np.float32),
        "c": numbers,
        "d": [f"word {number % 17}" for number in range(ROWS)],
    }
    return write_parquet(path, columns, row_group_rows=300)


def test_a_parquet_file_at_a_url_gives_the_batches_of_the_file(tmp_path: Path) -> None:
    table(tmp_path / "rows.parquet")
    with SourceServer(tmp_path, bytes_per_s=2e6) as server:
        here = open_reader(load(tmp_path, f'train = "{tmp_path}/rows.parquet"\n{COLUMNS}'), "train")
        control = InputControl(InputKnobs(connections=3, decode_threads=2, prefetch_bytes=1 << 24, range_bytes=4096))
        there = open_reader(
            load(tmp_path, f'train = "{server.url("rows.parquet")}"\n{COLUMNS}'), "train", control=control
        )
        assert there.describe().units == here.describe().units
        for unit in there.describe().units:
            assert control.ahead is not None
            control.ahead.expect(unit)
        assert_same_samples(all_batches(there), all_batches(here), 2)
        read_bytes = control.take_stages(queued=0)[0].bytes
        assert 0 < read_bytes < (tmp_path / "rows.parquet").stat().st_size
        control.close()


def test_an_address_without_a_file_is_a_problem_with_the_data(tmp_path: Path, server: SourceServer) -> None:
    reader = open_reader(load(tmp_path, f'train = "{server.url("none.parquet")}"\n{COLUMNS}'), "train")
    with pytest.raises(DataError, match="404"):
        reader.describe()


@pytest.mark.parametrize("file_format", ["parquet", "csv"])
def test_a_source_that_does_not_answer_has_an_error_of_its_own(
    tmp_path: Path, file_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RequestPolicy, "pause", lambda *_: None)
    address = "http://127.0.0.1:9/rows"  # nothing listens at the port of the discard service
    columns = COLUMNS.replace("parquet", file_format)
    job = load(tmp_path, f'train = ["{address}-0", "{address}-1"]\n{columns}')
    with pytest.raises(SourceGoneError, match="rows-0: cannot be read"):
        open_reader(job, "train").describe()
    with pytest.raises(SourceGoneError, match="rows-0: cannot be read"):
        check_data(job)


def test_a_remote_file_is_read_like_a_file(server: SourceServer) -> None:
    with RemoteFile(remote_file(server.url("data.bin"))) as found:
        assert found.size() == len(CONTENT)
        assert found.seek(-5, io.SEEK_END) == len(CONTENT) - 5
        assert found.read(100) == CONTENT[-5:]
        found.seek(7)
        assert (found.read(3), found.tell()) == (CONTENT[7:10], 10)
        assert found.read(0) == b""


def test_bytes_that_were_not_fetched_are_not_made_up() -> None:
    found = FetchedFile(100, [(10, 20), (50, 60)], [bytearray(b"a" * 10), bytearray(b"b" * 10)])
    found.seek(12)
    assert found.read(8) == b"a" * 8
    found.seek(50)
    assert found.read(1) == b"b"
    for start, size in ((5, 3), (15, 10), (70, 1)):
        found.seek(start)
        with pytest.raises(ValueError, match="not fetched"):
            found.read(size)


class _Cut:
    """Gives 1000 bytes of a request, then its connection is cut."""

    def __init__(self) -> None:
        self.starts: list[int] = []

    def read(self, file: object, start: int, into: memoryview, arrived: Callable[[int], None]) -> float:
        self.starts.append(start)
        size = min(len(into), 1000)
        into[:size] = CONTENT[start : start + size]
        arrived(size)
        if size < len(into):
            raise SourceError("reset", "cut")
        return 0.0

    def check(self, file: object) -> None:
        if len(self.starts) == 30:
            self.starts.append(-1)
            raise SourceError("refused", "503")

    def close(self) -> None: ...


def test_a_part_goes_on_where_its_connection_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that cuts each connection after some time would otherwise let no large part through, ever."""
    made = RemoteFile(AddressedFile("http://h/data.bin", len(CONTENT), 1), _NoPause())
    monkeypatch.setattr(made, "_connection", cut := _Cut())
    made.seek(500)
    assert made.read(30_000) == CONTENT[500:30_500]
    assert cut.starts == [*range(500, 30_500, 1000), -1], "the last one only asks again for the version"


class _NoPause(RequestPolicy):
    def pause(self, seconds: float) -> None: ...
