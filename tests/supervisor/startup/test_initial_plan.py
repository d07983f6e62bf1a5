"""The first plan of a run: without a readable history, as tuner.first_plan asks, after a resume, and on GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.config.job import load_job
from elastichost.datasets import open_reader
from elastichost.resources import GpuDevice
from elastichost.runs.journal_replay import EndedSize
from elastichost.supervisor.startup.initial_plan import InitialPlan, begin

JOB = """
[model]
build = "elastichost.models:dlrm"
[data]
format = "synthetic"
synthetic = { rows = 1000, test_rows = 1, tables = 1 }
"""


def begun(
    folder: Path, tuner: str = "", ended: EndedSize | None = None, gpus: tuple[GpuDevice, ...] = ()
) -> InitialPlan:
    """The first plan of a job on two cores. tuner: lines of the job file; ended: the size of the run before it."""
    path = folder / "job.toml"
    path.write_text(f"{JOB}[tuner]\n{tuner}\n")
    job = load_job(path, environ={})
    return begin(job, (), open_reader(job, "train").describe(), (0, 1), gpus, 0.9 if gpus else 1.0, ended)


def test_a_run_begins_without_a_history_if_its_path_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICHOST_HISTORY", "~nobody-of-that-name/history.sqlite")
    found = begun(tmp_path)
    assert "the path of the history is not known" in found.warnings[0]
    assert "the history is not used" in found.plan.reason


def test_a_run_begins_without_a_history_that_it_may_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICHOST_HISTORY", str(tmp_path / "history.sqlite"))

    own, exists = tmp_path / "history.sqlite", Path.exists

    def forbidden(path: Path) -> bool:
        if path == own:  # as for a user without access; root has access to every path
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", forbidden)
    found = begun(tmp_path)
    assert "Permission denied" in found.warnings[0]
    assert "the history is not used" in found.plan.reason


@pytest.mark.parametrize(
    ("tuner", "words"),
    [
        ("first_plan = { workers = 9 }", "asks for workers = 9; the nearest allowed size is 4 workers, 1 PS"),
        ('mode = "off"\nfirst_plan = { workers = 1 }', 'workers = 1: it is ignored with tuner.mode = "off"'),
        ("first_plan = { workers = 2 }", "as tuner.first_plan asks: 2 workers"),
    ],
)
def test_the_reason_says_whether_the_plan_is_as_first_plan_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tuner: str, words: str
) -> None:
    monkeypatch.setenv("ELASTICHOST_HISTORY", "off")
    assert words in begun(tmp_path, tuner).plan.reason


def test_the_reason_says_that_resources_do_not_allow_the_first_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICHOST_HISTORY", "off")
    fixed = "first_plan = { workers = 2 }\n[resources]\nworkers = 1\nservers = 1"
    reason = begun(tmp_path, fixed).plan.reason
    assert "asks for workers = 2" in reason and "resources.workers allows only 1 worker" in reason
    wide = "first_plan = { worker_cores = 4 }\n[resources]\nworkers = 1\nservers = 1"
    assert "not even 1 worker x 4 cores, 1 PS fits on the 2 cores of the job" in begun(tmp_path, wide).plan.reason


@pytest.mark.parametrize(
    ("ended", "tuner", "workers", "is_asked"),
    [
        (EndedSize(3, 2), "", 3, False),
        (EndedSize(3, 2), 'mode = "off"', 3, False),
        (EndedSize(3, 2), "first_plan = { workers = 1 }", 3, False),
        (EndedSize(30, 1), "", 2, False),  # the host is smaller now
        (EndedSize(30, 1, was_asked=True), "", 30, True),  # the user asked for this size
        (EndedSize(3, 1, 4, was_asked=True), "", 2, False),  # four threads on two cores
        (EndedSize(3, 1), "[resources]\nworkers = 1", 1, False),
        (EndedSize(3, 1, was_asked=True), "[resources]\nworkers = [1, 2]", 2, False),
    ],
)
def test_a_resumed_run_begins_with_its_last_size_if_that_fits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ended: EndedSize,
    tuner: str,
    workers: int,
    is_asked: bool,
) -> None:
    monkeypatch.setenv("ELASTICHOST_HISTORY", "off")
    found = begun(tmp_path, tuner, ended)
    assert len(found.plan.workers) == workers
    assert found.first.is_asked == is_asked
    assert "resumed" in found.plan.reason


@pytest.mark.parametrize(
    ("workers", "ended", "others"),
    [
        ("[1, 4]", None, []),  # 1 worker for 1 GPU
        ("[1, 4]", EndedSize(4, 1), [None, None, None]),
        ("[1, 4]", EndedSize(5, 1, was_asked=True), []),
        ("3", None, [None, None]),
        ('"auto"', None, []),
        ('"auto"', EndedSize(3, 1, was_asked=True), [None, None]),
    ],
)
def test_the_first_worker_has_the_gpu_and_the_others_train_on_the_cpu(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: str,
    ended: EndedSize | None,
    others: list[None],
) -> None:
    monkeypatch.setenv("ELASTICHOST_HISTORY", "off")
    gpus = (GpuDevice(0, "an accelerator", 80 << 30),)
    found = begun(tmp_path, f"[resources]\ngpus = 1\nworkers = {workers}", ended, gpus)
    assert [spec.gpu for spec in found.plan.workers] == [0, *others]
    assert [spec.gpu_memory_fraction for spec in found.plan.workers] == [0.9, *(1.0 for _ in others)]
