"""CSV and Criteo text at an address: the same samples and the same errors as from the disk."""

from __future__ import annotations

import gzip
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elastichost.chaos.faults.source_process import Order
from elastichost.chaos.faults.source_server import SourceServer
from elastichost.datasets.api import SampleBatch
from elastichost.datasets.files import opened, stamp
from elastichost.datasets.reader import UnitReader
from elastichost.datasets.reader_factory import make_decoder
from elastichost.datasets.settings import CRITEO_CATEGORICAL, CRITEO_DENSE, DataSettings
from elastichost.datasets.sources.bounded_directory import BoundedDirectory
from elastichost.datasets.sources.connections import SourceConnections
from elastichost.datasets.sources.control import InputControl
from elastichost.datasets.text.plain_copy import PlainCopies
from elastichost.errors import DataError
from elastichost.wire.facts import InputKnobs
from tests.datasets.conftest import criteo_line, settings

ROWS = 5000
FORMATS = ("csv", "criteo_tsv")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SourceServer]:
    random = np.random.default_rng(2)
    rows = [f"{n % 2},{random.random():.6f},id{random.integers(300)}" for n in range(ROWS)]
    (tmp_path / "a.csv").write_text("\n".join(["y,x,c", *rows]) + "\n")
    lines = [criteo_line(str(n % 2), str(n), f"{n % 97:08x}") for n in range(ROWS)]
    (tmp_path / "a.criteo_tsv").write_text("".join(line if line.endswith("\n") else line + "\n" for line in lines))
    with SourceServer(tmp_path) as made:
        yield made


def settings_of(path: str, file_format: str, **changes: Any) -> DataSettings:
    columns: dict[str, Any] = {"text_unit_lines": 700}
    if file_format == "criteo_tsv":
        columns |= {"labels": ("label",), "dense": CRITEO_DENSE, "categorical": CRITEO_CATEGORICAL}
    return settings(path, file_format, **(columns | changes))


def batches_of(found: DataSettings, control: InputControl | None = None) -> list[SampleBatch]:
    connections = None if control is None else SourceConnections(control, stall_s=0.5, patience_s=30.0)
    decoder = make_decoder(found, connections)
    assert decoder is not None
    reader = UnitReader(decoder)
    units = reader.describe().units
    made = [batch for unit in units for batch in reader.batches(unit, 0, unit.samples, 512)]
    if connections is not None:
        connections.close()
    return made


def assert_same(found: list[SampleBatch], expected: list[SampleBatch]) -> None:
    assert [(one.unit, one.start, one.stop, one.size) for one in found] == [
        (one.unit, one.start, one.stop, one.size) for one in expected
    ]
    for one, other in zip(found, expected, strict=True):
        for name in ("dense", "keys", "lengths", "labels"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("connections", [0, 1, 4])
def test_text_at_an_address_gives_the_samples_of_the_file(
    server: SourceServer, tmp_path: Path, file_format: str, connections: int
) -> None:
    control = InputControl(InputKnobs(connections=connections, range_bytes=1 << 14)) if connections else None
    found = batches_of(settings_of(server.url(f"a.{file_format}"), file_format), control)
    assert_same(found, batches_of(settings_of(str(tmp_path / f"a.{file_format}"), file_format)))
    assert sum(batch.size for batch in found) == ROWS
    if control is not None:
        assert control.take_stages(queued=0)[0].bytes > 0.9 * (tmp_path / f"a.{file_format}").stat().st_size


@pytest.mark.parametrize("order", [Order("reset"), Order("refuse", 0.3)])
def test_a_broken_connection_costs_no_sample(server: SourceServer, tmp_path: Path, order: Order) -> None:
    control = InputControl(InputKnobs(connections=2, range_bytes=1 << 14))
    connections = SourceConnections(control, stall_s=0.5, patience_s=30.0)
    decoder = make_decoder(settings_of(server.url("a.csv"), "csv"), connections)
    assert decoder is not None
    reader = UnitReader(decoder)
    found = []
    for unit in reader.describe().units:
        server.order(order)
        found += list(reader.batches(unit, 0, unit.samples, 512))
    connections.close()
    assert_same(found, batches_of(settings_of(str(tmp_path / "a.csv"), "csv")))


@pytest.mark.parametrize("connections", [0, 2])
def test_a_bad_row_is_told_with_address_and_line(server: SourceServer, tmp_path: Path, connections: int) -> None:
    lines = (tmp_path / "a.csv").read_text().splitlines()
    lines[1234] = "5,0.5,id1"  # the header is line 1
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    control = InputControl(InputKnobs(connections=connections)) if connections else None
    url = server.url("a.csv")
    with pytest.raises(DataError) as error:
        batches_of(settings_of(url, "csv"), control)
    assert f"{url}: line 1235" in error.value.message
    assert sum(one.skipped for one in batches_of(settings_of(url, "csv", skip_bad_rows=True), control)) == 1


def test_a_file_that_changes_while_it_is_read_is_an_error(server: SourceServer, tmp_path: Path) -> None:
    decoder = make_decoder(settings_of(server.url("a.csv"), "csv"))
    assert decoder is not None
    reader = UnitReader(decoder)
    first, *_ = reader.describe().units
    (tmp_path / "a.csv").write_text("y,x,c\n1,2,3\n")
    with pytest.raises(DataError, match="changed while it was being read"):
        list(reader.batches(first, 0, 10, 10))


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("members", [1, 3])
def test_compressed_text_at_an_address_gives_the_samples_of_the_plain_file(
    server: SourceServer, tmp_path: Path, own_cache: Path, file_format: str, members: int
) -> None:
    plain = (tmp_path / f"a.{file_format}").read_bytes()
    cuts = [len(plain) * part // members for part in range(members + 1)]
    parts = [gzip.compress(plain[start:stop]) for start, stop in itertools.pairwise(cuts)]
    (tmp_path / "a.gz").write_bytes(b"".join(parts))
    found = settings_of(server.url("a.gz"), file_format)
    expected = batches_of(settings_of(str(tmp_path / f"a.{file_format}"), file_format))
    assert_same(batches_of(found, InputControl(InputKnobs(connections=2))), expected)
    (copy,) = (own_cache / "text").glob("*/plain")
    made_ns = copy.stat().st_mtime_ns
    assert_same(batches_of(found), expected)
    assert copy.stat().st_mtime_ns == made_ns, "it is made once"
    decoder = make_decoder(found)
    assert decoder is not None
    description = decoder.inspect().description
    assert description is not None and description.files == (server.url("a.gz"),)


def test_a_bad_row_of_compressed_text_is_told_with_address_and_line(server: SourceServer, tmp_path: Path) -> None:
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"y,x,c\n1,2,3\n7,2,3\n"))
    url = server.url("b.csv.gz")
    with pytest.raises(DataError) as error:
        batches_of(settings_of(url, "csv"))
    assert f"{url}: line 3" in error.value.message


def test_compressed_text_that_changed_at_the_source_is_copied_anew(server: SourceServer, tmp_path: Path) -> None:
    for rows in (3, 5):
        (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"y,x,c\n" + b"1,2,3\n" * rows))
        assert sum(one.size for one in batches_of(settings_of(server.url("b.csv.gz"), "csv"))) == rows


@pytest.mark.parametrize("damage", ["cut", "wrong"])
def test_damaged_compressed_text_leaves_no_copy(
    server: SourceServer, tmp_path: Path, own_cache: Path, damage: str
) -> None:
    content = bytearray(gzip.compress((tmp_path / "a.csv").read_bytes()))
    content = content[:-20] if damage == "cut" else content[:5000] + b"\0" * 200 + content[5200:]
    (tmp_path / "b.csv.gz").write_bytes(content)
    decoder = make_decoder(settings_of(server.url("b.csv.gz"), "csv"))
    assert decoder is not None
    (problem,) = decoder.inspect().problems
    assert ("ends within its gzip stream" if damage == "cut" else "is damaged before byte") in problem
    assert not list((own_cache / "text").glob("*/*"))
    assert BoundedDirectory(own_cache / "text", None).used_bytes == 0


def test_compressed_text_without_room_is_a_problem(
    server: SourceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elastichost.datasets.sources.bounded_directory.free_bytes", lambda path: 4000)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    decoder = make_decoder(settings_of(server.url("b.csv.gz"), "csv"))
    assert decoder is not None
    (problem,) = decoder.inspect().problems
    assert "no room for its plain text" in problem


def descriptors_of(folder: Path) -> int:
    """The number of descriptors that this process has of files in a folder."""
    own = Path("/proc/self/fd")
    return sum(folder in (own / name).resolve().parents for name in os.listdir(own))


def removable_bytes(own_cache: Path) -> int:
    """What another process removes when it has no room."""
    return BoundedDirectory(own_cache / "text", None).clear()


def test_the_plain_copies_of_many_files_need_one_descriptor(
    server: SourceServer, tmp_path: Path, own_cache: Path
) -> None:
    for number in range(100):
        (tmp_path / f"{number}.csv.gz").write_bytes(gzip.compress(f"y,x,c\n1,{number},3\n".encode()))
    files = [stamp(server.url(f"{number}.csv.gz")) for number in range(100)]
    copies = PlainCopies(os.environ)
    for _ in range(2):
        found = {copies.copy_of(file).path for file in files}
        assert (len(found), descriptors_of(own_cache)) == (100, 1)
    assert removable_bytes(own_cache) == 0, "what this process reads stays"
    del copies
    assert descriptors_of(own_cache) == 0
    assert removable_bytes(own_cache) > 0


def test_a_plain_copy_stays_while_its_decoder_lives(server: SourceServer, tmp_path: Path, own_cache: Path) -> None:
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"y,x,c\n1,2,3\n"))
    for _ in range(3):
        decoder = make_decoder(settings_of(server.url("b.csv.gz"), "csv"))
        assert decoder is not None
        assert not decoder.inspect().problems and not decoder.inspect().problems
        assert (descriptors_of(own_cache), removable_bytes(own_cache)) == (1, 0)
    del decoder
    assert descriptors_of(own_cache) == 0


@pytest.mark.parametrize(("content", "message"), [(b"", "is empty"), (b"PAR1....", "is a Parquet file")])
def test_what_cannot_be_read_is_told_before_a_job_starts(
    server: SourceServer, tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "b.csv").write_bytes(content)
    decoder = make_decoder(settings_of(server.url("b.csv"), "csv"))
    assert decoder is not None
    (problem,) = decoder.inspect().problems
    assert message in problem and server.url("b.csv") in problem


def test_a_file_at_an_address_is_opened_as_a_local_one(server: SourceServer, tmp_path: Path) -> None:
    for path in (str(tmp_path / "a.csv"), server.url("a.csv")):
        with opened(stamp(path)) as file:
            file.seek(6)
            assert file.read(3) == (tmp_path / "a.csv").read_bytes()[6:9]
