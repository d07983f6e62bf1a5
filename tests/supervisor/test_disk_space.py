"""What is told of full disks, and when."""

from __future__ import annotations

from elastichost.supervisor.disk_space import AGAIN_S, DiskSpace

NO_SPACE = "No space left on device"


def test_it_is_told_once_then_now_and_then_and_when_it_is_over() -> None:
    space = DiskSpace()
    assert space.note("/data", 0.0) is None
    space.look("status.json", NO_SPACE, 1.0)
    told = space.note("/data", 1.0)
    assert told is not None
    assert told.kind == "disk_full"
    assert "status.json on /data" in told.text
    assert NO_SPACE in told.text
    assert "free some space" in told.text
    assert "Training goes on" in told.text
    assert space.note("/data", 2.0) is None
    again = space.note("/data", 1.0 + AGAIN_S)
    assert again is not None
    assert f"for {AGAIN_S:.0f} s" in again.text
    space.look("status.json", "", 70.0)
    over = space.note("", 70.0)
    assert over is not None
    assert over.kind == "disk_free"
    assert space.note("", 71.0) is None


def test_training_waits_for_some_files_only() -> None:
    space = DiskSpace()
    space.look("status.json", NO_SPACE, 1.0)
    assert not space.holds_training
    assert space.note("/data", 1.0) is not None
    space.look("applied.bin", NO_SPACE, 5.0, must_wait=True)
    assert space.holds_training
    assert space.held_since_s == 5.0
    told = space.note("/data", 5.0)
    assert told is not None, "another file: told at once"
    assert "applied.bin, status.json" in told.text
    assert "Training waits" in told.text
    space.look("applied.bin", NO_SPACE, 9.0, must_wait=True)
    assert space.held_since_s == 5.0
    space.look("applied.bin", "", 9.0, must_wait=True)
    assert space.held_since_s is None
    assert not space.holds_training
    assert space.files == ("status.json",)
