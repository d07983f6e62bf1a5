"""The events of a full disk, and whether training waits for it."""

from __future__ import annotations

import pytest

from elastichost.runs.events import DiskFreed, DiskFull
from elastichost.runs.events.text import text_of
from elastichost.supervisor.core.disk_space import AGAIN_S, DiskSpace

NO_SPACE = "No space left on device"


def test_a_full_disk_is_reported_once_then_periodically_and_when_it_is_freed() -> None:
    space = DiskSpace()
    assert space.note("/data", 0.0) is None
    space.look("status.json", NO_SPACE, 1.0)
    event = space.note("/data", 1.0)
    assert event is not None
    assert event == DiskFull(("status.json",), "/data", NO_SPACE, 0.0, is_training_held=False)
    assert "free some space" in text_of(event)
    assert "Training goes on" in text_of(event)
    assert space.note("/data", 2.0) is None
    again = space.note("/data", 1.0 + AGAIN_S)
    assert again is not None
    assert isinstance(again, DiskFull) and again.since_s == pytest.approx(AGAIN_S)
    space.look("status.json", "", 70.0)
    over = space.note("", 70.0)
    assert over is not None
    assert isinstance(over, DiskFreed)
    assert space.note("", 71.0) is None


def test_training_waits_only_for_files_that_it_needs() -> None:
    space = DiskSpace()
    space.look("status.json", NO_SPACE, 1.0)
    assert not space.holds_training
    assert space.note("/data", 1.0) is not None
    space.look("applied.bin", NO_SPACE, 5.0, must_wait=True)
    assert space.holds_training
    assert space.held_since_s == 5.0
    event = space.note("/data", 5.0)
    assert event is not None, "a further file is reported at once"
    assert isinstance(event, DiskFull)
    assert event.files == ("applied.bin", "status.json")
    assert event.is_training_held
    assert "Training waits" in text_of(event)
    space.look("applied.bin", NO_SPACE, 9.0, must_wait=True)
    assert space.held_since_s == 5.0
    space.look("applied.bin", "", 9.0, must_wait=True)
    assert space.held_since_s is None
    assert not space.holds_training
    assert space.files == ("status.json",)
