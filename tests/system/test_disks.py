"""Checkpoints of whole runs on full or missing disks, and mirrors of checkpoints."""

from __future__ import annotations

import os
import resource
import select
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastichost.checkpoint.format import checkpoint_directories, latest, load_manifest, verify_blocks
from elastichost.results.assemble import find_checkpoint, load_run_job
from elastichost.run_files import METRICS_FILE
from elastichost.runs.events import (
    ArenaOpened,
    CheckpointFailed,
    CheckpointMirrored,
    CheckpointWritten,
    DiskFreed,
    DiskFull,
    MeasurementsSetAside,
    MirrorFailed,
    RunStarted,
    Warned,
)
from elastichost.runs.events.text import text_of
from elastichost.wire.applied import read_applied
from tests.checkpoint.test_checkpoint_format import flip
from tests.system.test_run import JOB, SLOW_MODEL, Supervised, folder

__all__ = ["folder"]

pytestmark = [pytest.mark.system, pytest.mark.thorough]

# A checkpoint has about 3 MB; all rows exist from the beginning, so that only checkpoints write large files.
LARGE = JOB.replace("table_rows = 500", "table_rows = 20000").replace('rows = "dynamic"', "rows = 20000")
FULL_BYTES = 1_000_000


def with_mirror(mirror: Path) -> str:
    return JOB.replace("[checkpoint]\n", f'[checkpoint]\nmirror = "{mirror}"\n')


def limit_files(pid: int, size_bytes: int) -> None:
    """Makes writes beyond a file size fail, as on a full disk."""
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, most))


def test_training_waits_without_its_log_of_commits_and_continues_without_checkpoints(folder: Path) -> None:
    (folder / "slow.py").write_text(SLOW_MODEL.replace("0.001", "0.02"))
    run = Supervised(folder, template=LARGE, build=f"{folder}/slow.py:build", rows=150_000, every_s=0.3)
    run.wait_trained(1)
    server = run.pid("server-0")
    _, no_limit = resource.prlimit(server, resource.RLIMIT_FSIZE)
    limit_files(server, (run.run_dir / "applied.bin").stat().st_size)
    run.wait_until(lambda: run.events(DiskFull))
    assert [(event.files, event.is_training_held) for event in run.events(DiskFull)] == [(("applied.bin",), True)]
    limit_files(server, no_limit)
    run.wait_until(lambda: run.events(DiskFreed))
    run.wait_until(lambda: run.events(CheckpointWritten))
    limit_files(server, FULL_BYTES)
    run.wait_until(lambda: len(run.events(CheckpointFailed)) >= 3)
    for number, event in enumerate(run.events(CheckpointFailed)[:3], start=1):
        assert event.failed_in_a_row == number
        assert "cannot write" in event.error
        assert "the newest good one is step-" in text_of(event)
    staged = list((run.run_dir / "checkpoints").glob(".staging-*"))
    assert len(staged) <= 1, "a failed checkpoint must be removed"
    limit_files(server, no_limit)
    before = len(run.events(CheckpointWritten))
    run.wait_until(lambda: len(run.events(CheckpointWritten)) > before)
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["processes"]["restarts"] == 0
    assert run.result()["samples"]["trained"] == 150_000
    found = latest(run.run_dir / "checkpoints")
    assert found is not None
    assert found.manifest.samples_trained == 150_000
    assert list((run.run_dir / "checkpoints").glob(".staging-*")) == []


def test_the_last_checkpoint_must_be_written(folder: Path) -> None:
    run = Supervised(folder, template=LARGE, rows=400_000, every_s=0.3)
    run.wait_trained(1)
    server = run.pid("server-0")
    run.wait_until(lambda: run.events(CheckpointWritten))
    limit_files(server, FULL_BYTES)
    run.wait_until(lambda: run.events(CheckpointFailed))
    run.process.send_signal(signal.SIGINT)
    code, errors = run.finish()
    assert code == 1
    assert "CheckpointSpaceError: server-0.1: cannot write" in errors
    assert latest(run.run_dir / "checkpoints") is not None


# --- a run directory on a disk that is full ---------------------------------------------------------------------------

SMALL_BYTES = 24 << 20
QUIET_S = 5.0  # time without commits; longer than the hang timeout of these jobs
SYNC = JOB.replace("[train]\n", '[train]\nmode = "sync"\n').replace('rows = "dynamic"', "rows = 500")
SERVED = JOB.replace("[train]\n", '[train]\naccess = "served"\n').replace("workers = 2", "workers = 2\nservers = 2")


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """A real file system of 24 MB, in memory."""
    place = folder / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES},mode=0700", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here: that takes the rights of root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Fills the remaining space."""
    ballast = disk / "ballast"
    descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for size in (1 << 16, 1 << 12):
            while True:
                try:
                    os.write(descriptor, bytes(size))
                except OSError:
                    break
    finally:
        os.close(descriptor)
    return ballast


def wait_paused(run: Supervised) -> None:
    """Waits until no batch has been committed for longer than the hang timeout."""
    log = run.run_dir / "applied.bin"
    deadline_s = time.monotonic() + 60.0
    size, since_s = log.stat().st_size, time.monotonic()
    while time.monotonic() - since_s < QUIET_S:
        assert run.process.poll() is None, run.finish()
        assert time.monotonic() < deadline_s
        select.select([], [], [], 0.05)
        if log.stat().st_size != size:
            size, since_s = log.stat().st_size, time.monotonic()


@pytest.mark.parametrize("template", [JOB, SERVED, SYNC], ids=["direct", "served", "sync"])
def test_a_run_on_a_full_disk_waits_and_goes_on_by_itself(folder: Path, small_disk: Path, template: str) -> None:
    (folder / "slow.py").write_text(SLOW_MODEL.replace("0.001", "0.004"))
    rows = 120_000
    run = Supervised(small_disk, template=template, build=f"{folder}/slow.py:build", rows=rows, every_s=1)
    run.wait_trained(1)
    ballast = fill(small_disk)
    wait_paused(run)
    ballast.unlink()
    code, errors = run.finish()
    assert code == 0, errors
    assert run.result()["samples"] == {"planned": rows, "trained": rows, "skipped": 0, "quarantined": 0}
    assert run.result()["processes"]["restarts"] == 0, "hang detection pauses on a full disk"
    full = run.events(DiskFull)
    # Which file is full first depends on the space left in its last page.
    assert {"applied.bin", "journal.jsonl"} & {file for event in full if event.is_training_held for file in event.files}
    assert all(str(small_disk) in event.file_system for event in full)
    assert all("free some" in text_of(event) for event in full)
    assert run.events(DiskFreed)
    applied = read_applied(run.run_dir)
    assert int(applied["samples"].sum()) == rows


def test_checkpoints_wait_for_their_disk_even_the_last_one(folder: Path, small_disk: Path) -> None:
    template = JOB.replace("[checkpoint]\n", f'[checkpoint]\ndirectory = "{small_disk}/checkpoints"\n')
    (small_disk / "checkpoints").mkdir(mode=0o700)
    ballast = fill(small_disk)
    run = Supervised(folder, template=template, rows=60_000, every_s=0.2)
    run.wait_trained(60_000)
    run.wait_until(lambda: len(run.events(CheckpointFailed)) >= 4)
    ballast.unlink()
    code, errors = run.finish()
    assert code == 0, errors
    (own,) = (small_disk / "checkpoints").iterdir()  # the directory of this run
    found = latest(own)
    assert found is not None
    assert found.manifest.samples_trained == 60_000


def test_a_supervisor_killed_on_a_full_disk_can_be_resumed(folder: Path, small_disk: Path) -> None:
    (folder / "slow.py").write_text(SLOW_MODEL.replace("0.001", "0.004"))
    settings = {"build": f"{folder}/slow.py:build", "rows": 120_000, "every_s": 1}
    run = Supervised(small_disk, **settings)
    run.wait_trained(1)
    run.wait_until(lambda: run.events(CheckpointWritten))
    ballast = fill(small_disk)
    wait_paused(run)
    run.process.kill()
    run.finish()
    ballast.unlink()
    resumed = Supervised(small_disk, resume=True, **settings)
    code, errors = resumed.finish()
    assert code == 0, errors
    assert resumed.result()["samples"]["trained"] == 120_000
    assert len(resumed.events(RunStarted)) == 2


def test_a_run_on_a_full_disk_can_be_stopped(folder: Path, small_disk: Path) -> None:
    (folder / "slow.py").write_text(SLOW_MODEL.replace("0.001", "0.004"))
    run = Supervised(small_disk, build=f"{folder}/slow.py:build", rows=50_000_000, every_s=1)
    run.wait_trained(1)
    run.wait_until(lambda: run.events(CheckpointWritten))
    fill(small_disk)
    wait_paused(run)
    run.process.send_signal(signal.SIGINT)
    code, errors = run.finish()
    assert code == 1
    assert "asked to stop" in errors
    assert "are not saved" in errors
    assert str(small_disk) in errors
    assert latest(run.run_dir / "checkpoints") is not None


def test_a_missing_checkpoint_directory_is_reported_and_created_again(folder: Path) -> None:
    (folder / "slow.py").write_text(SLOW_MODEL)
    run = Supervised(folder, build=f"{folder}/slow.py:build", rows=300_000, every_s=0.3)
    run.wait_trained(1)
    run.wait_until(lambda: run.events(CheckpointWritten))
    checkpoints = run.run_dir / "checkpoints"
    checkpoints.rename(folder / "away")
    checkpoints.write_text("no directory")
    run.wait_until(lambda: run.events(CheckpointFailed))
    checkpoints.unlink()
    code, errors = run.finish()
    assert code == 0, errors
    assert latest(checkpoints) is not None


def test_every_checkpoint_is_mirrored_and_a_resume_takes_the_newest_good_one_of_both(folder: Path) -> None:
    mirror = folder / "other-disk" / "checkpoints"
    (folder / "slow.py").write_text(SLOW_MODEL)
    settings = {"build": f"{folder}/slow.py:build", "rows": 300_000, "every_s": 0.5}
    run = Supervised(folder, template=with_mirror(mirror), **settings)
    run.wait_trained(1)
    run.wait_until(lambda: len(run.events(CheckpointMirrored)) >= 2)
    run.process.send_signal(signal.SIGINT)
    code, errors = run.finish()
    assert code == 75, errors
    own = run.run_dir / "checkpoints"
    (own_mirror,) = mirror.iterdir()
    names = [path.name for path in checkpoint_directories(own)]
    assert names[0] in os.listdir(own_mirror), "the mirror must have the last one too"
    assert len(checkpoint_directories(own_mirror)) <= 2
    assert load_manifest(own_mirror / names[0]) == load_manifest(own / names[0])
    verify_blocks(own_mirror / names[0], load_manifest(own_mirror / names[0]))

    for name in names:
        flip(own / name / "server-0.bin", 0)
    resumed = Supervised(folder, resume=True, template=with_mirror(mirror), **settings)
    code, errors = resumed.finish()
    assert code == 0, errors
    assert resumed.result()["samples"]["trained"] == 300_000
    assert any(f"{names[0]} cannot be used" in event.message for event in resumed.events(Warned))
    (arena,) = [event for event in resumed.events(ArenaOpened) if event.origin == "checkpoint"]
    assert arena.path
    found = latest(own_mirror)
    assert found is not None
    assert found.manifest.samples_trained == 300_000
    shutil.rmtree(own)
    job = load_run_job(run.run_dir)
    assert find_checkpoint(run.run_dir, job, None).directory == found.directory, "export and predict search mirrors too"


def test_a_mirror_that_cannot_be_written_is_only_warned_of(folder: Path) -> None:
    (folder / "file").write_text("no directory")
    run = Supervised(folder, template=with_mirror(folder / "file" / "mirror"), rows=100_000, every_s=0.3)
    code, errors = run.finish()
    assert code == 0, errors
    assert run.events(CheckpointMirrored) == []
    assert any(event.error.startswith("cannot create") for event in run.events(MirrorFailed))


def test_a_resume_goes_on_with_measurements_that_a_loss_of_power_has_damaged(folder: Path) -> None:
    """Regression: SQLite's error ended each resume of the run."""
    (folder / "slow.py").write_text(SLOW_MODEL)
    settings = {"build": f"{folder}/slow.py:build", "rows": 40_000}
    run = Supervised(folder, every_s=0.2, **settings)
    run.wait_trained(1)
    run.process.send_signal(signal.SIGINT)
    code, errors = run.finish()
    assert code == 75, errors
    content = bytearray((run.run_dir / METRICS_FILE).read_bytes())
    content[4096:8192] = bytes(4096)
    (run.run_dir / METRICS_FILE).write_bytes(content)
    again = Supervised(folder, resume=True, **settings)
    code, errors = again.finish()
    assert code == 0, errors
    assert again.result()["samples"]["trained"] == 40_000
    (event,) = again.events(MeasurementsSetAside)
    assert (run.run_dir / event.file).read_bytes() == content
    with sqlite3.connect(run.run_dir / METRICS_FILE) as database:
        (trained,) = database.execute("SELECT max(samples) FROM curve").fetchone()
    assert trained == 40_000, "the learning curve is read from the log of commits again"


@pytest.mark.thorough
def test_another_program_that_locks_the_measurements_does_not_end_the_run(folder: Path) -> None:
    """Regression: it ended as a bug after the five seconds that SQLite waits."""
    (folder / "slow.py").write_text(SLOW_MODEL)
    run = Supervised(folder, build=f"{folder}/slow.py:build", rows=150_000)
    run.wait_trained(1)
    other = sqlite3.connect(run.run_dir / METRICS_FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    trained = run.status()["samples_trained"]
    run.wait_until(lambda: any(METRICS_FILE in event.files for event in run.events(DiskFull)))
    run.wait_trained(trained + 5_000)
    other.execute("ROLLBACK")
    other.close()
    code, errors = run.finish()
    assert code == 0, errors
    with sqlite3.connect(run.run_dir / METRICS_FILE) as database:
        (samples,) = database.execute("SELECT sum(of_samples) FROM curve").fetchone()
    assert samples == 150_000, "nothing is missing afterwards"
