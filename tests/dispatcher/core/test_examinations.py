"""Which jobs are examined before they start: a few at a time, and one of each shape."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.config.job import load_job
from elastichost.dispatcher.core.effects import ExamineJob
from elastichost.dispatcher.core.examinations import Examinations
from elastichost.dispatcher.core.shapes import shape_of, twin_of
from elastichost.dispatcher.facts import JobFailure
from tests.dispatcher.jobs import Hosted, ended, examined, hosted, request

JOB = (
    '[job]\nname = "{name}"\nseed = {seed}\n[model]\nbuild = "elastichost.models:dlrm"\n[data]\nformat = "synthetic"\n'
)


def looked_at(host: Hosted) -> list[str]:
    """Returns the jobs whose examination the last event started."""
    return [effect.job for effect in host.effects if isinstance(effect, ExamineJob)]


def test_the_number_of_examinations_at_once_is_limited() -> None:
    waiting = Examinations()
    for job in "abc":
        waiting.submit(job, "")
    assert waiting.next(2) == ("a", "b")
    assert waiting.next(2) == ()
    assert waiting.found("a") == ("a",)
    assert waiting.next(2) == ("c",)


def test_the_result_of_one_examination_holds_for_all_jobs_of_its_shape() -> None:
    host = hosted()
    for job in "abc":
        host.did(host.core.submit(request(job, shape="same"), 0.0))
    host.did(host.core.submit(request("other", shape="another"), 0.0))
    assert looked_at(host) == ["other"]
    host.did(host.core.examined(examined("a", samples=77), 1.0))
    assert [host.job(job).samples_planned for job in "abc"] == [77, 77, 77]
    assert host.job("other").why == "waits for its examination"
    assert sorted(host.tick(1.0)) == ["a", "b", "c"]


def test_after_a_failed_examination_the_next_job_of_the_shape_is_examined_itself() -> None:
    host = hosted()
    for job in "abc":
        host.did(host.core.submit(request(job, shape="same"), 0.0))
    host.did(host.core.ended(ended("a", 3, "exit code 3"), JobFailure("DataError", "no file of a"), 1.0))
    assert looked_at(host) == ["b"]
    host.cancel("b")
    assert looked_at(host) == ["c"], "the job whose result would hold for it was cancelled"
    host.did(host.core.examined(examined("c"), 2.0))
    assert [host.job(job).state for job in "abc"] == ["failed", "cancelled", "waiting"]


def test_no_examination_starts_when_the_dispatcher_stops() -> None:
    host = hosted()
    for number in range(9):
        host.did(host.core.submit(request(str(number)), 0.0))
    host.did(host.core.stop(1.0))
    host.did(host.core.ended(ended("0", -9, "signal 9"), None, 1.1))
    assert looked_at(host) == []
    assert {job.state for job in host.status().jobs} == {"stopped"}


def test_an_examination_that_ends_without_a_result_is_a_failure() -> None:
    host = hosted()
    host.did(host.core.submit(request("a"), 0.0))
    host.did(host.core.ended(ended("a", 0, "exit code 0"), None, 1.0))
    assert host.job("a").state == "failed"


@pytest.mark.parametrize(
    ("change", "is_alike", "is_twin"),
    [
        ("", True, True),
        ('[checkpoint]\nevery_s = 7\n', False, True),
        ("[train]\nepochs = 3\n", False, True),
        ("[train]\nbatch_size = 64\n", False, False),
        ("[train.optimizer_rows]\nlr = 0.3\n[tables.default.optimizer]\nlr = 0.2\n", False, False),
        ("[train.optimizer_rows]\nlr = 0.3\n[train.optimizer_dense]\nlr = 0.2\nbeta2 = 0.9\n", True, True),
        ('[train.optimizer_rows]\nname = "sgd"\n', False, False),
        ("[resources]\nworkers = 3\n", False, False),
    ],
)  # fmt: skip
def test_jobs_that_differ_only_in_name_seed_and_learning_rate_have_the_same_shape(
    tmp_path: Path, change: str, is_alike: bool, is_twin: bool
) -> None:
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    one.write_text(JOB.format(name="one", seed=1))
    other.write_text(JOB.format(name="other", seed=2) + change)
    first, second = load_job(one, environ={}), load_job(other, environ={})
    assert (shape_of(first, tmp_path) == shape_of(second, tmp_path)) == is_alike
    assert (twin_of(first) == twin_of(second)) == is_twin
    assert shape_of(first, tmp_path) != shape_of(first, tmp_path / "elsewhere"), (
        "modules of another directory may differ"
    )
