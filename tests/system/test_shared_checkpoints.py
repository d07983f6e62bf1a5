"""Runs that share a directory of checkpoints, and resumes without a resume source."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from elastichost.arena.host import arena_root
from elastichost.checkpoint.format import checkpoint_directories, latest
from elastichost.checkpoint.places import RUN_FILE, read_identity
from elastichost.results.assemble import find_checkpoint, load_run_job
from elastichost.runs.events import (
    ArenaOpened,
    ArenaReused,
    CheckpointFailed,
    CheckpointWritten,
    StartedFromCheckpoint,
    Warned,
)
from elastichost.runs.events.text import text_of
from tests.system.journals import events_of
from tests.system.test_run import JOB, SLOW_MODEL, Supervised, folder

__all__ = ["folder"]

pytestmark = pytest.mark.system

SLOW = SLOW_MODEL.replace("0.001", "0.01")  # 60,000 samples take at least 2 s
KEPT = JOB.replace("[supervision]\n", "[supervision]\nkeep_arena_s = 60\n")


def sharing(directory: Path) -> str:
    places = f'[checkpoint]\ndirectory = "{directory}/kept"\nmirror = "{directory}/mirror"\n'
    return JOB.replace("[checkpoint]\n", places)


def elastichost(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "elastichost", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.thorough
def test_runs_that_share_directories_do_not_touch_each_other(folder: Path) -> None:
    """Regression: `resume B` continued from A, staging directories collided, and the manifest of one run was committed
    over the blocks of the other."""
    template, build = sharing(folder / "shared"), f"{folder}/slow.py:build"
    (folder / "slow.py").write_text(SLOW)
    one, other = folder / "one", folder / "other"
    for place in (one, other):
        place.mkdir()
    longer = Supervised(one, template=template, build=build, rows=60_000, every_s=0.2)
    shorter = Supervised(other, template=template, build=build, rows=40_000, every_s=0.2)
    shorter.wait_trained(1)
    shorter.wait_until(lambda: len(shorter.events(CheckpointWritten)) >= 2)
    shorter.process.send_signal(signal.SIGINT)
    code, errors = shorter.finish()
    assert code == 75, errors
    code, errors = longer.finish()
    assert code == 0, errors
    for run in (longer, shorter):
        assert run.events(CheckpointFailed) == [], "the runs must not disturb each other"

    again = Supervised(other, resume=True, template=template, build=build, rows=40_000)
    code, errors = again.finish()
    assert code == 0, errors
    assert again.result()["samples"]["trained"] == 40_000
    for run, rows in ((longer, 60_000), (again, 40_000)):
        identity = read_identity(run.run_dir)
        assert identity is not None
        for place in ("kept", "mirror"):
            found = latest(folder / "shared" / place / identity.folder)
            assert found is not None
            assert (found.manifest.run_id, found.manifest.samples_trained) == (identity.run_id, rows)
        assert find_checkpoint(run.run_dir, load_run_job(run.run_dir), None).manifest.run_id == identity.run_id


@pytest.mark.thorough
def test_a_new_run_starts_from_the_checkpoint_of_another_and_reports_it(folder: Path) -> None:
    """Regression: the new run also took over the position in the data, so that a finished run left nothing to train."""
    taught = Supervised(folder, rows=40_000)
    code, errors = taught.finish()
    assert code == 0, errors
    source = read_identity(taught.run_dir)
    assert source is not None
    (folder / "slow.py").write_text(SLOW)
    settings = {"build": f"{folder}/slow.py:build", "rows": 60_000, "every_s": 0.2}
    job = folder / "job.toml"
    job.write_text(JOB.format(epochs=1, restarts=3, **settings))
    new = folder / "new"
    command = [
        sys.executable,
        "-m",
        "elastichost",
        "run",
        "job.toml",
        "--from",
        str(taught.run_dir),
        "--run-dir",
        "new",
    ]
    with subprocess.Popen([*command, "--dashboard", "no"], cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if "  checkpoint step-" in line and " written: " in line:
                process.send_signal(signal.SIGINT)
                break
        said += process.stderr.readlines()
    assert process.returncode == 75, "".join(said)
    (began,) = events_of(new / "journal.jsonl", StartedFromCheckpoint)
    assert began.is_foreign
    assert f"of run {source.run_id} (job system-test)" in began.checkpoint
    assert text_of(began) in "".join(said)
    resumed = elastichost(folder, "resume", "new", "--dashboard", "no", "--json")
    assert resumed.returncode == 0, resumed.stderr
    result = json.loads(resumed.stdout.splitlines()[-1])
    assert result["samples"]["trained"] == 60_000
    assert f"of run {source.run_id} (job system-test)" in result["started_from"], "recorded after a resume too"
    found = latest(new / "checkpoints")
    assert found is not None and found.manifest.run_id != source.run_id
    assert found.manifest.samples_trained == 60_000

    # a directory with a run is refused, and a finished run is not started from another source
    held = elastichost(folder, "run", "job.toml", "--from", str(taught.run_dir), "--run-dir", "new")
    assert held.returncode == 2 and "already holds a run" in held.stderr
    done = elastichost(folder, "resume", "new", "--from", str(taught.run_dir))
    assert done.returncode == 2 and "a run that has ended cannot take over another checkpoint" in done.stderr


def test_a_run_that_is_done_stays_as_it_is(folder: Path) -> None:
    run = Supervised(folder, rows=20_000)
    code, errors = run.finish()
    assert code == 0, errors
    before = {path: path.read_bytes() for path in run.run_dir.rglob("*") if path.is_file()}
    again = elastichost(folder, "resume", str(run.run_dir), "--dashboard", "no", "--json")
    assert again.returncode == 0, again.stderr
    assert ": there is nothing to resume, and nothing was changed" in again.stderr
    assert json.loads(again.stdout.splitlines()[-1]) == {"schema": "elastichost/v1", **run.result()}
    assert {path: path.read_bytes() for path in run.run_dir.rglob("*") if path.is_file()} == before


@pytest.mark.thorough
def test_a_run_that_goes_back_to_an_earlier_checkpoint_does_not_find_the_later_ones_again(folder: Path) -> None:
    """Regression: the next resume continued from a later checkpoint of what the run had given up."""
    (folder / "slow.py").write_text(SLOW)
    run = Supervised(folder, build=f"{folder}/slow.py:build", rows=60_000, every_s=0.2)
    run.wait_trained(1)
    run.wait_until(lambda: len(run.events(CheckpointWritten)) >= 2)
    run.process.send_signal(signal.SIGINT)
    code, errors = run.finish()
    assert code == 75, errors
    *later, earlier = checkpoint_directories(run.run_dir / "checkpoints")
    assert later
    again = elastichost(folder, "resume", str(run.run_dir), "--from", str(earlier), "--dashboard", "no", "--json")
    assert again.returncode == 0, again.stderr
    assert run.result()["samples"]["trained"] == 60_000
    assert run.events(StartedFromCheckpoint)[-1].checkpoint == earlier.name
    abandoned = {path.name for path in (run.run_dir / "checkpoints").glob("abandoned-*")}
    assert abandoned == {f"abandoned-{path.name}" for path in later}
    told = " ".join(event.message for event in run.events(Warned))
    assert all(name in told for name in abandoned)


@pytest.mark.thorough
def test_a_resume_that_must_fail_leaves_the_arena_for_one_that_need_not(folder: Path) -> None:
    """Regression: with a changed model and no checkpoint, a failing resume destroyed the arena."""
    (folder / "slow.py").write_text(SLOW)
    settings = {"template": KEPT, "build": f"{folder}/slow.py:build", "rows": 60_000}
    run = Supervised(folder, **settings)  # type: ignore[arg-type]
    run.wait_trained(10_000)
    os.kill(run.process.pid, signal.SIGKILL)
    run.finish()
    (arena,) = [path for path in arena_root().iterdir() if path.name == Path(run.events(ArenaOpened)[0].path).name]
    shutil.copy(folder / "slow.py", folder / "kept.py")
    (folder / "slow.py").write_text(SLOW.replace("def build(", "def unused(") + WIDER)
    failed = Supervised(folder, resume=True, **settings)  # type: ignore[arg-type]
    code, errors = failed.finish()
    assert code == 1, errors
    assert "CheckpointError: no checkpoint in" in errors
    assert "does not fit either (it holds another model:" in errors and "is left as it is" in errors
    assert "kept for another 60 s" in errors
    assert arena.is_dir()
    shutil.copy(folder / "kept.py", folder / "slow.py")
    again = Supervised(folder, resume=True, **settings)  # type: ignore[arg-type]
    code, errors = again.finish()
    assert code == 0, errors
    assert again.events(ArenaReused), "the arena must be reused"
    assert again.result()["samples"]["trained"] == 60_000


@pytest.mark.thorough
def test_a_resume_with_other_data_leaves_the_arena(folder: Path) -> None:
    """Regression: if all trained positions exist in the other data too, the resume continued in the arena."""
    (folder / "slow.py").write_text(SLOW)
    settings = {"template": KEPT, "build": f"{folder}/slow.py:build", "every_s": 0.2}
    run = Supervised(folder, rows=60_000, **settings)  # type: ignore[arg-type]
    run.wait_trained(1)
    run.wait_until(lambda: run.events(CheckpointWritten))
    os.kill(run.process.pid, signal.SIGKILL)
    run.finish()
    arena = Path(run.events(ArenaOpened)[0].path)
    failed = Supervised(folder, resume=True, rows=30_000, **settings)  # type: ignore[arg-type]
    code, errors = failed.finish()
    assert code == 1, errors
    assert "CheckpointError: the checkpoint was made with data of" in errors and "is left as it is" in errors
    assert "does not fit either (it was trained with data of 60000 samples in 8 units; the data now has 30000" in errors
    assert arena.is_dir()
    again = Supervised(folder, resume=True, rows=60_000, **settings)  # type: ignore[arg-type]
    code, errors = again.finish()
    assert code == 0, errors
    assert again.events(ArenaReused), "the arena must be reused"


@pytest.mark.thorough
def test_a_run_that_has_lost_its_identity_is_not_given_another(folder: Path) -> None:
    (folder / "slow.py").write_text(SLOW)
    run = Supervised(folder, build=f"{folder}/slow.py:build", rows=60_000, every_s=0.2)
    run.wait_trained(1)
    run.process.send_signal(signal.SIGINT)
    assert run.finish()[0] == 75
    (run.run_dir / RUN_FILE).unlink()
    failed = elastichost(folder, "resume", str(run.run_dir), "--dashboard", "no")
    assert failed.returncode == 1 and "has lost its run.json" in failed.stderr
    assert not (run.run_dir / RUN_FILE).exists()


WIDER = """

def build(tables, num_dense, **args):
    return unused(tables, num_dense, bottom=[32, 8], top=[16, 1])
"""
