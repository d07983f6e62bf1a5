"""Which jobs are looked at before they start: few at a time, of those alike only one."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.config.job import load_job
from elastichost.dispatcher.core.effects import ExamineJob
from elastichost.dispatcher.core.examinations import Examinations
from elastichost.dispatcher.core.shapes import shape_of, twin_of
from elastichost.dispatcher.facts import JobFailure
from tests.dispatcher.jobs import Hosted, examined, hosted, request

JOB = (
    '[job]\nname = "{name}"\nseed = {seed}\n[model]\nbuild = "elastichost.models:dlrm"\n[data]\nformat = "synthetic"\n'
)


def looked_at(host: Hosted) -> list[str]:
    """Of the last event."""
    return [effect.job for effect in host.effects if isinstance(effect, ExamineJob)]


def test_no_more_at_once_than_there_is_room_for() -> None:
    waiting = Examinations()
    for job in "abc":
        waiting.submit(job, "")
    assert waiting.next(2) == ("a", "b")
    assert waiting.next(2) == ()
    assert waiting.found("a") == ("a",)
    assert waiting.next(2) == ("c",)


def test_what_is_found_of_one_holds_for_all_that_are_alike() -> None:
    host = hosted()
    for job in "abc":
        host.did(host.core.submit(request(job, shape="same"), 0.0))
    host.did(host.core.submit(request("other", shape="another"), 0.0))
    assert looked_at(host) == ["other"]
    host.did(host.core.examined(examined("a", samples=77), 1.0))
    assert [host.job(job).samples_planned for job in "abc"] == [77, 77, 77]
    assert host.job("other").why == "waits for its examination"
    assert sorted(host.tick(1.0)) == ["a", "b", "c"]


def test_when_the_first_cannot_be_run_the_next_is_told_its_own_error() -> None:
    host = hosted()
    for job in "abc":
        host.did(host.core.submit(request(job, shape="same"), 0.0))
    host.did(host.core.ended("a", 3, "exit code 3", JobFailure("DataError", "no file of a"), 1.0))
    assert looked_at(host) == ["b"]
    host.cancel("b")
    assert looked_at(host) == ["c"], "whoever was to tell for it is gone"
    host.did(host.core.examined(examined("c"), 2.0))
    assert [host.job(job).state for job in "abc"] == ["failed", "cancelled", "waiting"]


def test_nobody_is_looked_at_when_the_host_stops() -> None:
    host = hosted()
    for number in range(9):
        host.did(host.core.submit(request(str(number)), 0.0))
    host.did(host.core.stop(1.0))
    host.did(host.core.ended("0", -9, "signal 9", None, 1.1))
    assert looked_at(host) == []
    assert {job.state for job in host.status().jobs} == {"stopped"}


def test_who_looked_at_it_and_left_no_word_is_a_failure() -> None:
    host = hosted()
    host.did(host.core.submit(request("a"), 0.0))
    host.did(host.core.ended("a", 0, "exit code 0", None, 1.0))
    assert host.job("a").state == "failed"


@pytest.mark.parametrize(
    ("change", "is_alike", "is_twin"),
    [
        ("", True, True),
        ('[checkpoint]\nevery_s = 7\n', False, True),
        ("[train]\nepochs = 3\n", False, True),
        ("[train]\nbatch_size = 64\n", False, False),
        ("[resources]\nworkers = 3\n", False, False),
    ],
)  # fmt: skip
def test_alike_but_for_name_and_seed(tmp_path: Path, change: str, is_alike: bool, is_twin: bool) -> None:
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    one.write_text(JOB.format(name="one", seed=1))
    other.write_text(JOB.format(name="other", seed=2) + change)
    first, second = load_job(one, environ={}), load_job(other, environ={})
    assert (shape_of(first, tmp_path) == shape_of(second, tmp_path)) == is_alike
    assert (twin_of(first) == twin_of(second)) == is_twin
    assert shape_of(first, tmp_path) != shape_of(first, tmp_path / "elsewhere"), "its modules are others"
