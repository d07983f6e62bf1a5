"""Checkpoints that an agent keeps: a run directory, with nothing in it that is not whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from elastichost.checkpoint.format import latest
from elastichost.checkpoint.places import RUN_FILE, new_identity, read_identity
from elastichost.config.hosts import read_hosts
from elastichost.supervisor.remote.agent_tasks import keep
from tests.ps.rows.test_restorer import checkpoint_of, opened
from tests.ps.rows.test_store import ALL

RUN = new_identity("shop", "r1")


def run_directory(folder: Path) -> Path:
    """Of an agent, with a checkpoint that has come."""
    arena, store = opened(folder / "arena")
    store.adopt(ALL, initialise=True)
    saved = checkpoint_of(arena, store, folder / "saved-of-first")
    arena.close()
    run_dir = folder / "run"
    (run_dir / "source").mkdir(parents=True)
    (run_dir / "source" / "net.py").write_text("def build(): ...")
    (run_dir / "job.resolved.toml").write_text("[job]")
    (run_dir / RUN_FILE).write_bytes(msgspec.json.encode(RUN))
    shutil.copytree(saved, run_dir / "incoming" / "step-1")
    return run_dir


def test_what_is_kept_can_be_resumed(tmp_path: Path) -> None:
    run_dir, kept = run_directory(tmp_path), tmp_path / "kept"
    told = keep(run_dir, run_dir / "incoming" / "step-1", kept, 2)
    assert (told.problem, told.bytes > 0) == ("", True)
    found = latest(kept / "checkpoints")
    assert found is not None and found.directory.name == "step-1"
    assert (kept / "job.resolved.toml").read_text() == "[job]"
    assert read_identity(kept) == RUN, "a resume there knows its checkpoints"
    assert (kept / "source" / "net.py").exists()
    assert read_hosts(kept / "hosts.json").hosts == ()
    assert not (run_dir / "incoming" / "step-1").exists()


def test_what_was_damaged_on_its_way_is_not_kept(tmp_path: Path) -> None:
    run_dir, kept = run_directory(tmp_path), tmp_path / "kept"
    block = run_dir / "incoming" / "step-1" / "server-0.bin"
    data = bytearray(block.read_bytes())
    data[len(data) // 2] ^= 1
    block.write_bytes(bytes(data))
    told = keep(run_dir, run_dir / "incoming" / "step-1", kept, 2)
    assert told.bytes == 0 and "server-0.bin" in told.problem
    assert latest(kept / "checkpoints") is None


def test_a_directory_that_cannot_be_is_told(tmp_path: Path) -> None:
    run_dir = run_directory(tmp_path)
    (tmp_path / "file").write_text("")
    told = keep(run_dir, run_dir / "incoming" / "step-1", tmp_path / "file" / "kept", 2)
    assert told.bytes == 0 and str(tmp_path / "file") in told.problem
