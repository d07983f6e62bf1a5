"""The directories of a run's checkpoints, also below directories that several runs share."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.checkpoint.places import (
    PLACES_FILE,
    RUN_FILE,
    CheckpointSource,
    RunIdentity,
    checkpoint_source,
    keep_places,
    new_identity,
    read_identity,
)
from elastichost.config.job import load_job
from elastichost.errors import CheckpointError

JOB = '[job]\nname = "shop"\n[model]\nbuild = "elastichost.models:dlrm"\n[data]\nformat = "synthetic"\n[checkpoint]\n'


def test_runs_that_share_directories_have_their_own_below_them(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(f'{JOB}directory = "{tmp_path}/kept"\nmirror = "{tmp_path}/mirror"\n')
    job = load_job(tmp_path / "job.toml", environ={})
    one, other = (checkpoint_source(tmp_path / name, RunIdentity(name, "shop"), job) for name in ("a1", "b2"))
    assert one.places == (tmp_path / "kept/shop-a1", tmp_path / "a1/checkpoints", tmp_path / "mirror/shop-a1")
    assert (one.run_id, other.run_id) == ("a1", "b2")
    assert not set(one.places) & set(other.places)


def test_without_settings_checkpoints_are_in_the_run_directory(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(JOB)
    job = load_job(tmp_path / "job.toml", environ={})
    assert checkpoint_source(tmp_path, RunIdentity("a1", "shop"), job).places == (tmp_path / "checkpoints",)


def test_the_identity_of_a_run_is_kept_and_an_unreadable_one_is_an_error(tmp_path: Path) -> None:
    assert read_identity(tmp_path) is None
    assert new_identity("shop") != new_identity("shop") and new_identity("shop", "a1") == RunIdentity("a1", "shop")
    (tmp_path / RUN_FILE).write_text('{"run_id": "a1", "job_name": "shop"}')
    assert read_identity(tmp_path) == RunIdentity("a1", "shop")
    (tmp_path / RUN_FILE).write_text("{")
    with pytest.raises(CheckpointError, match="run.json cannot be read") as raised:
        read_identity(tmp_path)
    assert "MANIFEST.json" in raised.value.hint


def test_a_list_of_places_is_read_again_and_a_copy_of_the_run_has_its_own_directory(tmp_path: Path) -> None:
    run, identity = tmp_path / "run", RunIdentity("a1", "shop")
    run.mkdir()
    keep_places(run, CheckpointSource((run / "checkpoints",)))
    assert not (run / PLACES_FILE).exists(), "a run that only ever had its own directory needs no list"
    keep_places(run, CheckpointSource((tmp_path / "kept/shop-a1", run / "inside/shop-a1", run / "checkpoints")))
    run.rename(tmp_path / "copy")
    copy = tmp_path / "copy"
    expected = (copy / "checkpoints", tmp_path / "kept/shop-a1", copy / "inside/shop-a1")
    assert checkpoint_source(copy, identity).places == expected
    (copy / PLACES_FILE).write_text("{}")
    with pytest.raises(CheckpointError, match="checkpoint_places.json cannot be read") as raised:
        checkpoint_source(copy, identity)
    assert "JSON list of strings" in raised.value.hint
