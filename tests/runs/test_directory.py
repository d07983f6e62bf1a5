"""The directory of a run, and which run directories may write to a checkpoint directory."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from elastichost.checkpoint.places import PLACES_FILE, named_source, read_identity
from elastichost.config.job import JobSpec, load_job
from elastichost.errors import ConfigError, PreflightError
from elastichost.run_files import RESOLVED_JOB_FILE
from elastichost.runs.directory import RunDirectory
from elastichost.runs.liveness import LOCK_FILE

JOB = """
[model]
build = "elastichost.models:dlrm"
[data]
format = "synthetic"
[data.synthetic]
rows = 1000
[checkpoint]
directory = "{shared}"
"""


@pytest.fixture
def job(tmp_path: Path) -> JobSpec:
    (tmp_path / "job.toml").write_text(JOB.format(shared=tmp_path / "shared"))
    return load_job(tmp_path / "job.toml", environ={})


def test_a_copy_of_a_run_does_not_write_to_the_checkpoint_directory_of_the_run(tmp_path: Path, job: JobSpec) -> None:
    run = RunDirectory.open(tmp_path / "run", job, resume=False)
    shutil.copytree(run.path, tmp_path / "copy")
    with pytest.raises(PreflightError, match=r"another supervisor writes checkpoints.*copy") as found:
        RunDirectory.open(tmp_path / "copy", job, resume=True)
    assert "--from" in found.value.hint
    run.close()
    copy = RunDirectory.open(tmp_path / "copy", job, resume=True)
    assert copy.checkpoints == run.checkpoints, "only one of the two may run at a time"
    with pytest.raises(PreflightError, match="copy"):
        RunDirectory.open(tmp_path / "run", job, resume=True)
    copy.close()


def test_runs_that_share_a_checkpoint_directory_have_separate_subdirectories(tmp_path: Path, job: JobSpec) -> None:
    both = [RunDirectory.open(tmp_path / name, job, resume=False) for name in ("a", "b")]
    assert both[0].checkpoints.parent == both[1].checkpoints.parent == tmp_path / "shared"
    assert both[0].checkpoints != both[1].checkpoints
    both[0].discard()
    assert [path.name for path in (tmp_path / "shared").iterdir()] == [both[1].checkpoints.name]
    assert read_identity(both[1].path) == both[1].identity
    for one in both:
        one.close()


def test_other_files_beside_the_checkpoints_are_kept(tmp_path: Path, job: JobSpec) -> None:
    run = RunDirectory.open(tmp_path / "run", job, resume=False)
    (run.checkpoints / "notes.txt").touch()
    run.discard()
    assert sorted(os.listdir(run.checkpoints)) == [LOCK_FILE, "notes.txt"]
    run.close()


@pytest.mark.parametrize("mirror", ["shared", "shared/", "shared/../shared", "link"])
def test_a_mirror_that_is_the_checkpoint_directory_is_refused_in_every_spelling(tmp_path: Path, mirror: str) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "link").symlink_to("shared")
    text = JOB.format(shared=tmp_path / "shared") + f'mirror = "{tmp_path}/{mirror}"\n'
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"a checkpoint.mirror that differs from checkpoint.directory"):
        load_job(tmp_path / "job.toml", environ={})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
@pytest.mark.parametrize("resume", [False, True])
def test_a_full_disk_is_an_error_before_anything_is_written(tmp_path: Path, job: JobSpec, resume: bool) -> None:
    (tmp_path / "small").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(tmp_path / "small")], check=True)
    try:
        with pytest.raises(PreflightError, match=r"0\.5 MiB are free .* a run needs 1\.0 MiB to start") as found:
            RunDirectory.open(tmp_path / "small" / "runs" / "one", job, resume=resume)
        assert "--run-dir" in found.value.hint
        assert os.listdir(tmp_path / "small") == []
    finally:
        subprocess.run(["umount", str(tmp_path / "small")], check=True)


def with_places(job: JobSpec, directory: Path | None, mirror: Path | None = None) -> JobSpec:
    places = {"directory": str(directory or ""), "mirror": str(mirror or "")}
    return job.model_copy(update={"checkpoint": job.checkpoint.model_copy(update=places)})


def opened_again(path: Path, *jobs: JobSpec) -> tuple[Path, ...]:
    """The places of checkpoints after the run has had each of the jobs, one after another."""
    for number, job in enumerate(jobs):
        run = RunDirectory.open(path, job, resume=number > 0)
        run.write_facts(job, is_one_of_many=True)
        run.close()
    return run.checkpoint_source.places


def test_places_of_earlier_settings_are_searched_through_a_chain_of_changes(tmp_path: Path, job: JobSpec) -> None:
    a, b, c, mirror = (tmp_path / name for name in ("a", "b", "c", "mirror"))
    run = tmp_path / "run"
    places = opened_again(run, with_places(job, a, mirror), with_places(job, b), with_places(job, c))
    identity = read_identity(run)
    assert identity is not None
    assert places[:2] == (c / identity.folder, run / "checkpoints")
    assert set(places[2:]) == {a / identity.folder, b / identity.folder, mirror / identity.folder}
    assert set(named_source(run).places) == set(places), "a command that names the run finds the same places"
    removed = opened_again(tmp_path / "other", with_places(job, a), with_places(job, None))
    assert [place.parent for place in removed] == [tmp_path / "other", a]


def test_a_run_without_a_list_of_places_has_those_of_its_job_file(tmp_path: Path, job: JobSpec) -> None:
    """It was begun by an earlier version."""
    run = tmp_path / "run"
    (before,) = set(opened_again(run, with_places(job, tmp_path / "a"))) - {run / "checkpoints"}
    (run / PLACES_FILE).unlink()
    again = RunDirectory.open(run, with_places(job, tmp_path / "b"), resume=True)
    again.close()
    assert before in again.checkpoint_source.places
    (run / RESOLVED_JOB_FILE).write_text("not TOML")
    again = RunDirectory.open(run, with_places(job, tmp_path / "c"), resume=True)
    again.close()
    assert before in again.checkpoint_source.places, "the list has it now"


def test_a_copy_of_a_run_does_not_write_to_its_earlier_places(tmp_path: Path, job: JobSpec) -> None:
    at_a, at_b = with_places(job, tmp_path / "a"), with_places(job, tmp_path / "b")
    opened_again(tmp_path / "run", at_a)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    run = RunDirectory.open(tmp_path / "run", at_b, resume=True)
    with pytest.raises(PreflightError, match=r"another supervisor writes checkpoints"):
        RunDirectory.open(tmp_path / "copy", at_a, resume=True)
    run.close()
    copy = RunDirectory.open(tmp_path / "copy", at_a, resume=True)
    for _ in range(2):  # a refused one leaves no lock
        with pytest.raises(PreflightError, match=r"another supervisor writes checkpoints"):
            RunDirectory.open(tmp_path / "run", at_b, resume=True)
    copy.close()
    (tmp_path / "link").symlink_to("a")
    RunDirectory.open(tmp_path / "run", with_places(job, tmp_path / "link"), resume=True).close()
