"""Ranges on the disk: each is fetched once by all who read the file, never after the file has changed, and never in a
state that is not whole."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from elastichost.datasets.sources.byte_ranges import ByteRange
from elastichost.datasets.sources.connections import SourceConnections
from elastichost.datasets.sources.control import InputControl
from elastichost.datasets.sources.range_cache import RangeCache
from elastichost.datasets.sources.remote_file import remote_file
from elastichost.datasets.sources.transports.addressed_file import AddressedFile
from elastichost.errors import DataError
from elastichost.wire.facts import InputKnobs
from tests.datasets.sources.served import CONTENT, file, folder, server

__all__ = ["file", "folder", "server"]

RANGES = ((0, 1000), (5000, 9000), (9000, 9001))
FILE = AddressedFile("http://example.org/a", 10_000, 7)
LIMIT_BYTES = 1 << 20

# A process that fetches the first range for ever.
HANGING = """
import sys, time
from pathlib import Path
from elastichost.datasets.sources.transports.addressed_file import AddressedFile
from elastichost.datasets.sources.range_cache import RangeCache

def fetch(file, ranges):
    print("fetching", flush=True)
    time.sleep(600)

file = AddressedFile("http://example.org/a", 10_000, 7)
RangeCache(Path(sys.argv[1]), 1 << 20, 600.0).fetch(file, ((0, 1000),), fetch)
"""


class Source:
    """Counts the ranges that are fetched."""

    def __init__(self, fill: int = 1) -> None:
        self.fetched: list[ByteRange] = []
        self.fill = fill
        self.gate = threading.Event()
        self.gate.set()

    def fetch(self, file: AddressedFile, ranges: Sequence[ByteRange]) -> tuple[bytearray, ...]:
        self.fetched += ranges
        assert self.gate.wait(20.0)
        return tuple(bytearray([self.fill]) * (stop - start) for start, stop in ranges)


def opened(path: Path, limit_bytes: int = LIMIT_BYTES, wait_s: float = 20.0) -> RangeCache:
    return RangeCache(path / "ranges", limit_bytes, wait_s)


def test_what_was_fetched_once_is_read_from_the_disk_by_every_process(tmp_path: Path) -> None:
    source = Source()
    first = opened(tmp_path).fetch(FILE, RANGES, source.fetch)
    again = opened(tmp_path).fetch(FILE, RANGES, source.fetch)
    assert [len(part) for part in first] == [1000, 4000, 1]
    assert first == again
    assert source.fetched == list(RANGES)


@pytest.mark.parametrize("changed", [AddressedFile(FILE.url, 10_000, 8), AddressedFile(FILE.url, 9_999, 7)])
def test_a_file_that_has_changed_at_the_source_is_fetched_anew(tmp_path: Path, changed: AddressedFile) -> None:
    opened(tmp_path).fetch(FILE, RANGES, Source(1).fetch)
    assert opened(tmp_path).fetch(changed, RANGES, Source(2).fetch)[0][0] == 2


def test_a_file_whose_version_is_not_known_is_never_kept(tmp_path: Path) -> None:
    source, unknown = Source(), AddressedFile(FILE.url, 10_000, 0)
    for _ in range(2):
        opened(tmp_path).fetch(unknown, RANGES[:1], source.fetch)
    assert len(source.fetched) == 2
    assert not (tmp_path / "ranges").exists()


@pytest.mark.parametrize("damage", [b"", b"short", b"\x02" * 1008])
def test_a_damaged_range_is_fetched_again(tmp_path: Path, damage: bytes) -> None:
    opened(tmp_path).fetch(FILE, RANGES, Source().fetch)
    (path,) = (tmp_path / "ranges").glob("*/0-1000")
    path.write_bytes(damage)
    cache, source = opened(tmp_path), Source()
    assert cache.fetch(FILE, RANGES, source.fetch)[0] == bytearray(b"\x01" * 1000)
    assert source.fetched == [(0, 1000)] and cache.counts.damaged == 1
    opened(tmp_path).fetch(FILE, RANGES, source.fetch)
    assert source.fetched == [(0, 1000)]


def test_no_more_is_kept_than_the_bound(tmp_path: Path) -> None:
    cache, source = opened(tmp_path, 4500), Source()
    for _ in range(2):
        cache.fetch(FILE, RANGES, source.fetch)
    assert source.fetched == [*RANGES, (5000, 9000)], "what fits is kept, and is read from the disk"
    kept = sum(path.stat().st_size for path in (tmp_path / "ranges").glob("*/[0-9]*"))
    assert 0 < kept <= 4500
    assert cache.counts.not_kept > 0


def test_of_jobs_that_want_a_range_at_the_same_time_one_fetches_it(tmp_path: Path) -> None:
    source, found = Source(), []
    source.gate.clear()

    def job() -> None:
        found.append(opened(tmp_path).fetch(FILE, RANGES, source.fetch))

    threads = [threading.Thread(target=job) for _ in range(4)]
    for thread in threads:
        thread.start()
    while not source.fetched:
        pass
    source.gate.set()
    for thread in threads:
        thread.join()
    assert sorted(source.fetched) == sorted(RANGES)
    assert all(parts == found[0] for parts in found)


def test_a_job_that_is_killed_while_it_fetches_blocks_nobody(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HANGING, str(tmp_path / "ranges")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"fetching\n"
        source, found = Source(), []
        thread = threading.Thread(target=lambda: found.append(opened(tmp_path).fetch(FILE, RANGES[:2], source.fetch)))
        thread.start()
        while not source.fetched:  # its own range at once, before it waits
            pass
        assert source.fetched == [RANGES[1]]
        process.kill()
    thread.join(20.0)
    assert source.fetched == [RANGES[1], RANGES[0]]
    assert [len(part) for part in found[0]] == [1000, 4000]


def test_nobody_waits_for_ever_for_a_job_that_hangs(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HANGING, str(tmp_path / "ranges")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"fetching\n"
        source = Source()
        opened(tmp_path, wait_s=0.1).fetch(FILE, RANGES[:1], source.fetch)
        assert source.fetched == [RANGES[0]]
        process.kill()


def test_a_failure_of_the_source_ends_the_claim(tmp_path: Path) -> None:
    def failing(file: AddressedFile, ranges: Sequence[ByteRange]) -> tuple[bytearray, ...]:
        raise DataError("gone")

    cache, source = opened(tmp_path), Source()
    with pytest.raises(DataError):
        cache.fetch(FILE, RANGES, failing)
    cache.fetch(FILE, RANGES, source.fetch)
    assert source.fetched == list(RANGES)


def test_without_a_directory_everything_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "ranges").write_text("a file")
    source = Source()
    opened(tmp_path).fetch(FILE, RANGES, source.fetch)
    assert source.fetched == list(RANGES)


def test_a_worker_reads_the_second_time_from_the_disk_while_the_knob_says_so(
    file: AddressedFile, tmp_path: Path
) -> None:
    control = InputControl(InputKnobs(connections=4, cache="disk"))
    for expected in (1_000_000, 0):
        source = SourceConnections(control, 5.0, 20.0, tmp_path / "ranges", LIMIT_BYTES * 4)
        assert bytes(source.fetch(file, [(0, 1_000_000)])[0]) == CONTENT[:1_000_000]
        assert control.take_stages(queued=0)[0].bytes == expected
        source.close()
    control.tune(InputKnobs(connections=4))
    source = SourceConnections(control, 5.0, 20.0, tmp_path / "ranges", LIMIT_BYTES * 4)
    source.fetch(file, [(0, 1_000_000)])
    assert control.take_stages(queued=0)[0].bytes == 1_000_000
    source.close()


def test_a_file_that_was_replaced_on_the_server_has_none_of_the_old_ranges(
    file: AddressedFile, folder: Path, tmp_path: Path
) -> None:
    control = InputControl(InputKnobs(connections=4, cache="disk"))
    source = SourceConnections(control, 5.0, 20.0, tmp_path / "ranges", LIMIT_BYTES * 4)
    source.fetch(file, [(0, 1000)])
    (folder / "data.bin").write_bytes(b"n" * len(CONTENT))
    assert bytes(source.fetch(remote_file(file.url), [(0, 1000)])[0]) == b"n" * 1000
    source.close()


def test_a_directory_that_goes_away_costs_only_the_cache(tmp_path: Path) -> None:
    def never(_: float) -> bool:
        pytest.fail("it waited for another process, and there is none")

    cache, source = RangeCache(tmp_path / "ranges", LIMIT_BYTES, 20.0, never), Source()
    cache.fetch(FILE, RANGES, source.fetch)
    shutil.rmtree(tmp_path / "ranges")
    assert [len(part) for part in cache.fetch(FILE, RANGES, source.fetch)] == [1000, 4000, 1]
    assert source.fetched == [*RANGES, *RANGES]
    assert cache.counts.not_kept == len(RANGES)


def test_a_directory_that_goes_away_while_a_range_is_fetched_costs_only_the_cache(tmp_path: Path) -> None:
    source = Source()

    def fetch(file: AddressedFile, ranges: Sequence[ByteRange]) -> tuple[bytearray, ...]:
        shutil.rmtree(tmp_path / "ranges")
        return source.fetch(file, ranges)

    assert len(opened(tmp_path).fetch(FILE, RANGES[:1], fetch)[0]) == 1000
