"""Attempts to remove the arena of a run that trains: `clean` in another pid namespace, and rm -r."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from elastichost.arena.host import arena_root
from elastichost.runs.events import ArenaReused, StartedFromCheckpoint
from tests.system.beds import in_another_pid_namespace
from tests.system.test_orphan import KEPT, finish_well, kill, processes_of, resumes, wait_gone
from tests.system.test_run import SLOW_MODEL, Supervised, folder

__all__ = ["folder"]

pytestmark = pytest.mark.system

ROWS = 200_000


def cleaned() -> str:
    """The output of a `clean` that cannot see the processes of the run. It reads only directories of this test."""
    own = os.environ["XDG_RUNTIME_DIR"]
    done = in_another_pid_namespace(sys.executable, "-m", "elastichost", "clean", TMPDIR=own)
    assert done.returncode == 0, done.stderr
    return done.stdout


def arena_of() -> Path:
    """The only arena of the test."""
    (arena,) = arena_root().iterdir()
    return arena


@pytest.mark.thorough
def test_clean_of_another_pid_namespace_leaves_a_living_and_a_kept_arena_alone(folder: Path) -> None:
    (folder / "slow.py").write_text(SLOW_MODEL)
    settings = {"template": KEPT, "build": f"{folder}/slow.py:build", "rows": ROWS}
    run = Supervised(folder, **settings)
    run.wait_trained(10_000)
    arena = arena_of()
    assert cleaned() == "nothing to remove\n"
    assert (arena / "LAYOUT.json").exists()
    processes = processes_of(run)
    kill(run)
    wait_gone(processes[:-1])
    assert str(arena) not in cleaned(), "the arena is kept for a resume"
    again = Supervised(folder, resume=True, **settings)
    again.wait_trained(20_000)
    assert str(arena) not in cleaned()
    finish_well(again)
    assert again.events(ArenaReused), resumes(again)
    assert again.result()["samples"]["trained"] == ROWS


@pytest.mark.parametrize("access", ["direct", pytest.param("served", marks=pytest.mark.thorough)])
def test_an_arena_whose_files_are_removed_ends_in_a_checkpoint_and_says_so(folder: Path, access: str) -> None:
    (folder / "slow.py").write_text(SLOW_MODEL)
    template = KEPT.replace("[train]\n", f'[train]\naccess = "{access}"\n')
    settings = {"template": template, "build": f"{folder}/slow.py:build", "rows": ROWS}
    run = Supervised(folder, **settings)
    run.wait_trained(10_000)
    shutil.rmtree(arena_of())
    code, errors = run.finish()
    assert code == 1
    assert errors.startswith("ArenaError: the files of the arena "), errors
    assert "all trained samples are saved in" in errors and f"elastichost resume {run.run_dir}" in errors
    result = run.result()
    assert result["status"] == "failed"
    assert result["samples"]["trained"] >= 10_000
    again = Supervised(folder, resume=True, **settings)
    finish_well(again)
    assert again.result()["samples"]["trained"] == ROWS
    step = f"step-{result['samples']['trained']}"
    assert any(step in event.checkpoint for event in again.events(StartedFromCheckpoint)), resumes(again)
