"""Checkpoints that an agent keeps: a run can be resumed from them, and damaged ones are refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from elastichost.checkpoint.format import latest
from elastichost.checkpoint.places import RUN_FILE, new_identity, read_identity
from elastichost.config.hosts import read_hosts
from elastichost.datasets.file_stamp import FileStamp
from elastichost.datasets.files import PinnedFiles, read_pinned, write_pinned
from elastichost.supervisor.remote.agent_tasks import keep
from tests.ps.rows.test_restorer import checkpoint_of, opened
from tests.ps.rows.test_store import ALL

FILES = PinnedFiles((FileStamp("/data/clicks.parquet", 10, -1),))
RUN = new_identity("shop", "r1")


def run_directory(folder: Path) -> Path:
    """The run directory of an agent that has received a checkpoint."""
    arena, store = opened(folder / "arena")
    store.adopt(ALL, initialise=True)
    saved = checkpoint_of(arena, store, folder / "saved-of-first")
    arena.close()
    run_dir = folder / "run"
    (run_dir / "source").mkdir(parents=True)
    (run_dir / "source" / "net.py").write_text("def build(): ...")
    (run_dir / "job.resolved.toml").write_text("[job]")
    (run_dir / RUN_FILE).write_bytes(msgspec.json.encode(RUN))
    write_pinned(run_dir, FILES)
    shutil.copytree(saved, run_dir / "incoming" / "step-1")
    return run_dir


def test_a_run_can_be_resumed_from_a_kept_checkpoint(tmp_path: Path) -> None:
    run_dir, kept = run_directory(tmp_path), tmp_path / "kept"
    answer = keep(run_dir, run_dir / "incoming" / "step-1", kept, 2)
    assert (answer.problem, answer.bytes > 0) == ("", True)
    found = latest(kept / "checkpoints")
    assert found is not None and found.directory.name == "step-1"
    assert (kept / "job.resolved.toml").read_text() == "[job]"
    assert read_pinned(kept) == FILES, "it reads the files that the run began with"
    assert read_identity(kept) == RUN, "a resumed run must know that the checkpoints are its own"
    assert (kept / "source" / "net.py").exists()
    assert read_hosts(kept / "hosts.json").hosts == ()
    assert not (run_dir / "incoming" / "step-1").exists()


def test_a_checkpoint_that_was_damaged_in_transfer_is_not_kept(tmp_path: Path) -> None:
    run_dir, kept = run_directory(tmp_path), tmp_path / "kept"
    block = run_dir / "incoming" / "step-1" / "server-0.bin"
    data = bytearray(block.read_bytes())
    data[len(data) // 2] ^= 1
    block.write_bytes(bytes(data))
    answer = keep(run_dir, run_dir / "incoming" / "step-1", kept, 2)
    assert answer.bytes == 0 and "server-0.bin" in answer.problem
    assert latest(kept / "checkpoints") is None


def test_a_directory_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    run_dir = run_directory(tmp_path)
    (tmp_path / "file").write_text("")
    answer = keep(run_dir, run_dir / "incoming" / "step-1", tmp_path / "file" / "kept", 2)
    assert answer.bytes == 0 and str(tmp_path / "file") in answer.problem
