"""Decoded units in shared memory: the same arrays, each unit decoded once by all workers, within the bound."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from elastichost.datasets.api import Unit
from elastichost.datasets.decoded import DecodedUnit, IdColumn, prepare_unit
from elastichost.datasets.file_stamp import FileStamp
from elastichost.datasets.files import check_unchanged, stamp
from elastichost.datasets.reader import Inspection, ValueFindings
from elastichost.datasets.settings import DataSettings
from elastichost.datasets.sources.control import InputControl
from elastichost.datasets.sources.read_ahead import ReadAhead
from elastichost.datasets.sources.unit_cache import UnitCache
from elastichost.errors import DataError
from elastichost.specs import TableSpec
from elastichost.wire.facts import InputKnobs

SAMPLES = 50
UNITS = tuple(Unit(index, index * SAMPLES, SAMPLES, 0, index) for index in range(6))
SETTINGS = DataSettings("train", (), "parquet", ("y",), ("x",), ("c", "d"))
LIMIT_BYTES = 1 << 20

# A worker that decodes a unit for ever.
HANGING = """
import sys, time
from pathlib import Path
from tests.datasets.sources.test_unit_cache import Counting, UNITS, cache_of

class Hanging(Counting):
    def decode(self, unit):
        print("decoding", flush=True)
        time.sleep(600)

cache_of(Hanging(Path(sys.argv[2])), Path(sys.argv[1])).decode(UNITS[0])
"""


class Counting:
    """A decoder of one file that counts what it decodes."""

    def __init__(self, file: Path) -> None:
        self.decoded: list[int] = []
        self._stamp = stamp(str(file))

    def inspect(self) -> Inspection:
        return Inspection(None, ())

    def stamps(self) -> tuple[FileStamp, ...]:
        return (self._stamp,)

    def check_unchanged(self, unit: Unit) -> None:
        check_unchanged(self._stamp)

    def stored_bytes(self, unit: Unit) -> float:
        return 10.0

    def check_values(self, tables: Sequence[TableSpec]) -> ValueFindings:
        return ValueFindings()

    def decode(self, unit: Unit) -> DecodedUnit:
        self.decoded.append(unit.index)
        return unit_of(unit.index)


def unit_of(index: int, *, is_full: bool = True) -> DecodedUnit:
    random = np.random.default_rng(index)
    lists = np.concatenate([[0], np.cumsum(random.integers(0, 3, SAMPLES))]).astype(np.int64)
    ids = (IdColumn(random.integers(0, 99, SAMPLES)), IdColumn(random.integers(0, 99, int(lists[-1])), lists))
    dense = np.asfortranarray(random.random((SAMPLES, 3), dtype=np.float32))
    labels = random.random((SAMPLES, 1), dtype=np.float32)
    if not is_full:
        return DecodedUnit(SAMPLES, np.empty((SAMPLES, 0), dtype=np.float32), labels, ids)
    weights, bad = random.random(SAMPLES, dtype=np.float32), random.random(SAMPLES) < 0.2
    return DecodedUnit(SAMPLES, dense, labels, ids, weights, bad)


def assert_same(found: DecodedUnit, expected: DecodedUnit) -> None:
    pairs = [(found.dense, expected.dense), (found.labels, expected.labels)]
    pairs += [(found.weights, expected.weights), (found.bad, expected.bad)]
    for one, other in zip(found.ids, expected.ids, strict=True):
        pairs += [(one.keys, other.keys), (one.offsets, other.offsets)]
    assert found.samples == expected.samples
    for one, other in pairs:
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert one.dtype == other.dtype and one.flags.writeable
            np.testing.assert_array_equal(one, other)


def cache_of(decoder: Counting, folder: Path, limit_bytes: int = LIMIT_BYTES) -> UnitCache:
    control = InputControl(InputKnobs(cache="memory"))
    control.tune(control.knobs, limit_bytes)
    cache = UnitCache(decoder, SETTINGS, control, folder / "decoded")
    cache.inspect()
    return cache


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "data").write_text("rows")
    return tmp_path / "data"


@pytest.mark.parametrize("is_full", [True, False])
def test_a_unit_from_the_cache_has_the_same_arrays(
    tmp_path: Path, file: Path, is_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = Counting(file)
    monkeypatch.setattr(decoder, "decode", lambda unit: unit_of(unit.index, is_full=is_full))
    cache_of(decoder, tmp_path).decode(UNITS[3])
    other = Counting(file)
    found = cache_of(other, tmp_path).decode(UNITS[3])
    assert other.decoded == []
    assert_same(found, unit_of(3, is_full=is_full))
    prepare_unit(found, np.random.default_rng(1).permutation(SAMPLES))


def test_workers_decode_each_unit_once(tmp_path: Path, file: Path) -> None:
    decoders = [Counting(file) for _ in range(3)]

    def work(decoder: Counting) -> None:
        cache = cache_of(decoder, tmp_path)
        for _ in range(2):
            for unit in UNITS:
                assert_same(cache.decode(unit), unit_of(unit.index))

    threads = [threading.Thread(target=work, args=(decoder,)) for decoder in decoders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(index for decoder in decoders for index in decoder.decoded) == list(range(len(UNITS)))


def test_a_worker_that_is_killed_while_it_decodes_blocks_nobody(tmp_path: Path, file: Path) -> None:
    words = [sys.executable, "-c", HANGING, str(tmp_path), str(file)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"decoding\n"
        decoder, found = Counting(file), []
        thread = threading.Thread(target=lambda: found.append(cache_of(decoder, tmp_path).decode(UNITS[0])))
        thread.start()
        process.kill()
    thread.join(20.0)
    assert_same(found[0], unit_of(0))
    assert decoder.decoded == [0]


def test_no_more_is_kept_than_the_bound_and_less_when_it_falls(tmp_path: Path, file: Path) -> None:
    decoder = Counting(file)
    control = InputControl(InputKnobs(cache="memory"))
    control.tune(control.knobs, 10_000)
    cache = UnitCache(decoder, SETTINGS, control, tmp_path / "decoded")
    cache.inspect()

    def kept() -> int:
        return sum(path.stat().st_size for path in (tmp_path / "decoded").glob("*/[0-9]*"))

    for unit in UNITS:
        assert_same(cache.decode(unit), unit_of(unit.index))
    assert 2500 < kept() <= 10_000
    control.tune(control.knobs, 3000)
    assert kept() <= 3000
    control.tune(InputKnobs())
    assert kept() == 0
    cache.decode(UNITS[0])
    assert kept() == 0


def test_without_bytes_nothing_is_kept(tmp_path: Path, file: Path) -> None:
    decoder = Counting(file)
    cache = cache_of(decoder, tmp_path, limit_bytes=0)
    for _ in range(2):
        cache.decode(UNITS[0])
    assert decoder.decoded == [0, 0]


def test_a_file_that_changes_is_an_error_also_for_a_unit_that_is_kept(tmp_path: Path, file: Path) -> None:
    cache = cache_of(Counting(file), tmp_path)
    cache.decode(UNITS[0])
    file.write_text("other rows")
    with pytest.raises(DataError, match="changed"):
        cache.decode(UNITS[0])


def test_a_later_run_on_other_files_gets_none_of_the_old_units(tmp_path: Path, file: Path) -> None:
    cache_of(Counting(file), tmp_path).decode(UNITS[0])
    file.write_text("other rows")
    decoder = Counting(file)
    cache_of(decoder, tmp_path).decode(UNITS[0])
    assert decoder.decoded == [0]


def test_units_from_the_cache_are_read_ahead_too(tmp_path: Path, file: Path) -> None:
    cache_of(Counting(file), tmp_path).decode(UNITS[1])
    control = InputControl(InputKnobs(cache="memory", prefetch_bytes=1 << 20))
    control.tune(control.knobs, LIMIT_BYTES)
    decoder = Counting(file)
    ahead = ReadAhead(UnitCache(decoder, SETTINGS, control, tmp_path / "decoded"), control)
    ahead.inspect()
    ahead.decode(UNITS[0])
    ahead.expect(UNITS[1])
    assert_same(ahead.decode(UNITS[1]), unit_of(1))
    assert decoder.decoded == [0]
    control.close()


def test_a_directory_that_goes_away_costs_only_the_cache(tmp_path: Path, file: Path) -> None:
    decoder = Counting(file)
    control = InputControl(InputKnobs(cache="memory"))
    control.tune(control.knobs, LIMIT_BYTES)
    cache = UnitCache(decoder, SETTINGS, control, tmp_path / "decoded")
    cache.decode(UNITS[0])
    shutil.rmtree(tmp_path / "decoded")
    assert_same(cache.decode(UNITS[0]), unit_of(0))
    control.tune(InputKnobs())
    assert decoder.decoded == [0, 0]
