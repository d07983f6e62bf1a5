"""The record of rows that are in memory of a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.arena.recovery.device_residence import (
    NEVER,
    DeviceResidence,
    forget_residence,
    read_residence,
    write_residence,
)
from elastichost.errors import ArenaError


def test_without_a_record_rows_are_in_the_arena(tmp_path: Path) -> None:
    assert read_residence(tmp_path) is None
    forget_residence(tmp_path)


def test_a_record_is_read_as_it_was_written_last(tmp_path: Path) -> None:
    write_residence(tmp_path, DeviceResidence("one", "GPU-1"))
    assert read_residence(tmp_path) == DeviceResidence("one", "GPU-1", NEVER)
    write_residence(tmp_path, DeviceResidence("one", "GPU-1", 7))
    assert read_residence(tmp_path) == DeviceResidence("one", "GPU-1", 7)
    forget_residence(tmp_path)
    assert read_residence(tmp_path) is None


def test_a_damaged_record_is_not_taken_for_none(tmp_path: Path) -> None:
    write_residence(tmp_path, DeviceResidence("one", "GPU-1"))
    (record,) = tmp_path.iterdir()
    record.write_bytes(record.read_bytes()[:9])
    with pytest.raises(ArenaError, match="cannot be read"):
        read_residence(tmp_path)
