"""Worker processes tell each other which export answers; a file that cannot be written ends none of them."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from elastichost.errors import ElastichostError
from elastichost.serving.follower import Follower, first_export
from elastichost.serving.loaded_export import load_export
from elastichost.serving.settings import ServeSettings
from elastichost.serving.telemetry import Telemetry
from tests.serving.test_server import switch


def follower_of(link: Path, answers: Path) -> Follower:
    settings = ServeSettings(directory=str(link), workers=2, answers_file=str(answers))
    return Follower(settings, load_export(link, refuse_nulls=False), Telemetry())


def test_a_file_that_cannot_be_written_does_not_end_a_reload(
    program: Path, other_program: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A cleaner of /tmp has removed its folder."""
    link, answers = tmp_path / "current", tmp_path / "removed" / "answers"
    link.symlink_to(program)
    follower = follower_of(link, answers)
    switch(link, other_program)
    with caplog.at_level(logging.WARNING, "elastichost.serving"):
        asyncio.run(follower.look())
    follower.close()
    assert follower.export.directory == other_program.resolve()
    assert follower.problem == ""
    assert f"{answers} cannot be written: no such file or directory" in caplog.text


def test_two_workers_that_reload_at_once_both_write(
    program: Path,
    other_program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    link, answers = tmp_path / "current", tmp_path / "folder" / "answers"
    answers.parent.mkdir()
    link.symlink_to(program)
    first, second = follower_of(link, answers), follower_of(link, answers)
    switch(link, other_program)
    replace, own_pid = Path.replace, os.getpid()

    def replace_after_the_other(made: Path, target: Path) -> Path:
        """The second process writes while the first one has written its new file, and has not renamed it."""
        monkeypatch.setattr(Path, "replace", replace)
        with monkeypatch.context() as other_process:
            other_process.setattr(os, "getpid", lambda: own_pid + 1)
            second._tell_workers(answers)
        return replace(made, target)

    monkeypatch.setattr(Path, "replace", replace_after_the_other)
    with caplog.at_level(logging.WARNING, "elastichost.serving"):
        asyncio.run(first.look())
    for one in (first, second):
        one.close()
    assert answers.read_text() == str(other_program.resolve())
    assert os.listdir(answers.parent) == ["answers"]
    assert caplog.text == ""


def test_a_worker_without_the_file_says_why_the_export_does_not_load(tmp_path: Path) -> None:
    settings = ServeSettings(directory=str(tmp_path / "broken"), answers_file=str(tmp_path / "removed" / "answers"))
    with pytest.raises(ElastichostError, match="is not an export"):
        first_export(settings)
