"""A second directory of checkpoints has only complete copies, and its failures are reported, not raised."""

from __future__ import annotations

import os
import resource
import signal
import stat
import threading
from pathlib import Path

import pytest

from elastichost.checkpoint.format import checkpoint_directories, latest, load_manifest, retain, verify_blocks
from elastichost.checkpoint.mirror import Mirror, Mirrored, mirror_checkpoint
from elastichost.errors import CheckpointError
from tests.checkpoint.test_checkpoint_format import flip, write_checkpoint

WAIT_S = 30.0


def wait_result(mirror: Mirror) -> Mirrored:
    """Waits for the next result by polling, because an event would need a hook in the tested code."""
    deadline = threading.Event()
    timer = threading.Timer(WAIT_S, deadline.set)
    timer.start()
    try:
        while not (found := mirror.results()):
            assert not deadline.wait(0.005), "no result"
        (result,) = found
        return result
    finally:
        timer.cancel()


def test_a_copy_is_a_checkpoint_of_its_own_and_old_copies_are_removed(tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    for samples in (100, 200, 300):
        source = write_checkpoint(tmp_path / "own", samples)
        size_bytes = mirror_checkpoint(source, mirror, keep=2)
        assert size_bytes == sum(path.stat().st_size for path in source.glob("*.bin"))
    assert [path.name for path in checkpoint_directories(mirror)] == ["step-300", "step-200"]
    copy = load_manifest(mirror / "step-300")
    verify_blocks(mirror / "step-300", copy)
    assert copy == load_manifest(tmp_path / "own" / "step-300")
    assert sorted(os.listdir(mirror)) == ["step-200", "step-300"]
    for path in (mirror / "step-300").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (tmp_path / "own" / "step-300" / path.name).read_bytes() == path.read_bytes()


def test_damage_is_not_copied(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "own", 100)
    flip(next(source.glob("*.bin")), 0)
    with pytest.raises(CheckpointError, match="corrupt"):
        mirror_checkpoint(source, tmp_path / "mirror", keep=2)
    assert os.listdir(tmp_path / "mirror") == []


def test_a_full_disk_leaves_nothing_and_the_older_copy(tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    mirror_checkpoint(write_checkpoint(tmp_path / "own", 100), mirror, keep=2)
    source = write_checkpoint(tmp_path / "own", 200)
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    try:
        with pytest.raises(CheckpointError, match="cannot copy to"):
            mirror_checkpoint(source, mirror, keep=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert os.listdir(mirror) == ["step-100"]


def test_the_newest_good_checkpoint_of_both_directories_is_found(tmp_path: Path) -> None:
    own, mirror = tmp_path / "own", tmp_path / "mirror"
    for samples in (100, 200):
        mirror_checkpoint(write_checkpoint(own, samples), mirror, keep=2)
    newest = write_checkpoint(own, 300)

    def found() -> tuple[Path, int]:
        one = latest(own, mirror)
        assert one is not None
        return one.directory, len(one.warnings)

    assert found() == (newest, 0)
    flip(next(newest.glob("*.bin")), 0)
    assert found() == (own / "step-200", 1)
    flip(next((own / "step-200").glob("*.bin")), 0)
    assert found() == (mirror / "step-200", 2)
    assert latest(tmp_path / "gone", mirror) is not None
    assert latest(tmp_path / "gone", tmp_path / "nothing") is None


def test_the_thread_copies_and_reports(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "mirror", keep=2)
    assert not mirror.is_busy
    mirror.copy(write_checkpoint(tmp_path / "own", 100))
    assert mirror.is_busy
    result = wait_result(mirror)
    assert (result.checkpoint, result.error) == ("step-100", None)
    assert result.bytes > 0
    mirror.copy(tmp_path / "own" / "step-999")
    failed = wait_result(mirror)
    assert failed.error is not None
    assert "step-999" in failed.error.message
    assert mirror.close() is False


def test_a_directory_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    mirror = Mirror(tmp_path / "file" / "mirror", keep=2)
    mirror.copy(write_checkpoint(tmp_path / "own", 100))
    result = wait_result(mirror)
    assert result.error is not None
    assert "cannot create" in result.error.message
    assert mirror.close() is False


def test_a_cancelled_copy_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reached, go_on = threading.Event(), threading.Event()
    mirror = Mirror(tmp_path / "mirror", keep=2)
    proceed = mirror._proceed

    def hold() -> None:
        reached.set()
        assert go_on.wait(WAIT_S)
        proceed()

    monkeypatch.setattr(mirror, "_proceed", hold)
    mirror.copy(write_checkpoint(tmp_path / "own", 100))
    assert reached.wait(WAIT_S)
    closer = threading.Thread(target=mirror.close)
    closer.start()
    while not mirror._is_closed:
        closer.join(0.005)
    go_on.set()
    closer.join(WAIT_S)
    assert not mirror._thread.is_alive()
    assert os.listdir(tmp_path / "mirror") == []
    assert mirror.results() == ()


def test_retention_keeps_the_checkpoint_that_is_being_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that takes longer than `keep` checkpoints would otherwise fail, and so would each copy after it."""
    own = tmp_path / "own"
    reached, go_on = threading.Event(), threading.Event()
    mirror = Mirror(tmp_path / "mirror", keep=2)

    def hold() -> None:
        reached.set()
        assert go_on.wait(WAIT_S)

    monkeypatch.setattr(mirror, "_proceed", hold)
    mirror.copy(slow := write_checkpoint(own, 100))
    assert len(list(slow.glob("*.bin"))) > 1, "the thread has opened the first file, and waits"
    assert reached.wait(WAIT_S)
    assert mirror.copying == slow
    for samples in (200, 300, 400):
        mirror.copy(newest := write_checkpoint(own, samples))
        retain(own, 2, newest, copying=mirror.copying)
    assert [path.name for path in checkpoint_directories(own)] == ["step-400", "step-300", "step-100"]
    go_on.set()
    results = []
    while mirror.is_busy or not results:
        results += mirror.results()
    assert [(result.checkpoint, result.error) for result in results] == [("step-100", None), ("step-400", None)]
    assert mirror.copying is None
    assert mirror.close() is False
    assert retain(own, 2, newest, copying=mirror.copying) == (slow,)
