"""Footers of files at addresses: read once, kept, and never those of another version."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastichost.chaos.faults.source_server import SourceServer
from elastichost.datasets.file_stamp import FileStamp
from elastichost.datasets.files import stamp
from elastichost.datasets.parquet.footers import GROUPS, Footer, KeptFooters, remote_footers
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy
from elastichost.datasets.sources.transports.addressed_file import AddressedFile
from elastichost.datasets.sources.transports.connection import SourceConnection
from elastichost.datasets.sources.transports.open_stores import OpenStores
from elastichost.errors import DataError, SourceGoneError

FILES = 5


class Once(RequestPolicy):
    """One try."""

    def is_over(self, *_: object) -> bool:
        return True


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(FILES):
        write(tmp_path / f"{number}.parquet", columns=300 if number == 3 else 4)
    return tmp_path


def write(path: Path, columns: int, rows: int = 40) -> None:
    """With 300 columns the footer is longer than the first request."""
    table = pa.table({f"column_{number:03}": np.arange(rows) for number in range(columns)})
    pq.write_table(table, path, row_group_size=10)


@pytest.fixture
def server(folder: Path) -> Iterator[SourceServer]:
    with SourceServer(folder, bytes_per_s=1e8) as made:
        yield made


def urls_of(server: SourceServer) -> list[str]:
    return [server.url(f"{number}.parquet") for number in range(FILES)]


def read(
    urls: Sequence[str], kept: Path | None, pinned: Sequence[FileStamp] = (), waiting: RequestPolicy = BEFORE_RUN
) -> list[Footer | DataError]:
    footers = KeptFooters(kept)
    try:
        return remote_footers(urls, pinned, footers, waiting, OpenStores(waiting.stall_s))
    finally:
        footers.close()


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses whose bytes are requested from now on."""
    reads: list[str] = []
    real = SourceConnection.read

    def counted(self: SourceConnection, file, *more):  # type: ignore[no-untyped-def]
        reads.append(file.url)
        return real(self, file, *more)

    monkeypatch.setattr(SourceConnection, "read", counted)
    return reads


def test_footers_are_those_of_the_files(folder: Path, server: SourceServer) -> None:
    for number, found in enumerate(read(urls_of(server), None)):
        assert isinstance(found, Footer)
        assert found.metadata.equals(pq.read_metadata(folder / f"{number}.parquet"))
        assert found.stamp == stamp(server.url(f"{number}.parquet"))


def test_a_kept_footer_is_not_read_again(tmp_path: Path, server: SourceServer, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = count_reads(monkeypatch)
    first = read(urls_of(server), tmp_path / "kept")
    assert len(reads) == FILES + 1, "the long footer takes two requests"
    again = read(urls_of(server), tmp_path / "kept")
    assert len(reads) == FILES + 1
    for one, other in zip(first, again, strict=True):
        assert isinstance(one, Footer) and isinstance(other, Footer)
        assert one.metadata.equals(other.metadata) and one.stamp == other.stamp


def test_a_run_that_has_begun_needs_no_source_for_kept_footers(folder: Path, tmp_path: Path) -> None:
    with SourceServer(folder, bytes_per_s=1e8) as server:
        urls = urls_of(server)
        found = read(urls, tmp_path / "kept")
    pinned = [one.stamp for one in found if isinstance(one, Footer)]
    assert len(read(urls, tmp_path / "kept", pinned)) == FILES
    with pytest.raises(SourceGoneError):
        read(urls, tmp_path / "none", pinned, Once())
    with pytest.raises(SourceGoneError):
        read(urls, tmp_path / "kept", waiting=Once())


def test_a_replaced_file_has_another_footer_and_is_refused_by_a_run(
    folder: Path, tmp_path: Path, server: SourceServer
) -> None:
    found = read(urls_of(server), tmp_path / "kept")
    pinned = [one.stamp for one in found if isinstance(one, Footer)]
    write(folder / "1.parquet", columns=4, rows=50)
    again = read(urls_of(server), tmp_path / "kept")[1]
    assert isinstance(again, Footer) and again.metadata.num_rows == 50
    refused = read(urls_of(server), tmp_path / "other", pinned)
    assert [number for number, one in enumerate(refused) if isinstance(one, DataError)] == [1]
    assert "was replaced after the run began" in str(refused[1])


def test_a_damaged_footer_is_read_again(tmp_path: Path, server: SourceServer) -> None:
    read(urls_of(server), tmp_path / "kept")
    kept = [path for path in (tmp_path / "kept").rglob("*") if path.is_file() and not path.name.startswith(".")]
    assert len(kept) == FILES
    for path in kept:
        content = bytearray(path.read_bytes())
        content[20] ^= 1
        path.write_bytes(content)
    found = read(urls_of(server), tmp_path / "kept")
    assert [one.metadata.num_rows for one in found if isinstance(one, Footer)] == [40] * FILES


def test_where_nothing_can_be_kept_footers_are_read(tmp_path: Path, server: SourceServer) -> None:
    (tmp_path / "file").touch()
    assert all(isinstance(one, Footer) for one in read(urls_of(server), tmp_path / "file"))


def test_many_folders_hold_few_descriptors(tmp_path: Path) -> None:
    """A table in folders by day and hour has thousands of them, and a process has a thousand descriptors."""
    kept = KeptFooters(tmp_path / "kept")
    before = len(os.listdir("/proc/self/fd"))
    for number in range(300):
        options = "?endpoint_override=http://127.0.0.1:9000"
        assert kept.find(AddressedFile(f"s3://b/day={number}/part.parquet{options}", 10, 1)) is None
    assert len(os.listdir("/proc/self/fd")) - before <= GROUPS + 2
    kept.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_files_that_are_not_parquet_are_named(folder: Path, server: SourceServer) -> None:
    (folder / "0.parquet").write_bytes(b"PAR1 text, but no footer PAR1")
    (folder / "1.parquet").write_text("a,b\n")
    (folder / "2.parquet").write_bytes(b"\x89HDF\0" * 100)
    found = read(urls_of(server), None)
    for number, words in enumerate(("not a readable Parquet file", "is a text file, not Parquet: set", "begins with")):
        assert words in str(found[number])
    assert all(isinstance(one, Footer) for one in found[3:])
