"""A process of a job that fails leaves a file with its error and the place of its traceback."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from elastichost.config.job import JobSpec
from elastichost.dispatcher import admission_probe as examining
from elastichost.dispatcher import job_process
from elastichost.dispatcher.admission_probe import ExamineArguments
from elastichost.dispatcher.child import leave_failure
from elastichost.dispatcher.core.demands import MemoryOfSize
from elastichost.dispatcher.facts import FAILURE_FILE, JobFailure
from elastichost.dispatcher.job_process import JobArguments
from elastichost.errors import DataError, RestartBudgetError
from elastichost.resources import HostInventory
from elastichost.tuner.memory.peak_memory import MemoryEstimate, MemoryPart

LENT = HostInventory((0,), 10**9)
JOB = {"model": {"build": "a:b"}, "data": {"format": "synthetic"}}


def fails(*_: object, **__: object) -> None:
    """Stands for load_job: raises an error with a long message."""
    raise ZeroDivisionError("no towers" * 1000)


@pytest.mark.parametrize("where", ["job", "examination"])
def test_a_failure_is_written_for_the_user_and_raised_again(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder, log = str(tmp_path), str(tmp_path / "its.log")
    monkeypatch.setattr(job_process, "load_job", fails)
    monkeypatch.setattr(examining, "load_job", fails)
    for_job = msgspec.json.encode(JobArguments("job.toml", folder, folder, folder, LENT, log=log))
    to_examine = msgspec.json.encode(ExamineArguments("a", folder, folder, LENT, log=log))
    main, arguments = (job_process.main, for_job) if where == "job" else (examining.main, to_examine)
    with pytest.raises(ZeroDivisionError):
        main(arguments)
    failure = msgspec.json.decode((tmp_path / FAILURE_FILE).read_bytes(), type=JobFailure)
    assert (failure.kind, failure.message[:9]) == ("ZeroDivisionError", "no towers")
    assert len(failure.message) <= 2000
    assert failure.hint == f"the traceback is at the end of {log}"


def test_the_last_error_of_a_process_is_kept_as_a_field(tmp_path: Path) -> None:
    """The dispatcher must not have to read the kind of error from the message."""
    leave_failure(tmp_path, RestartBudgetError("worker-0 ended 4 times", last_error="GpuMemoryError"))
    failure = msgspec.json.decode((tmp_path / FAILURE_FILE).read_bytes(), type=JobFailure)
    assert failure == JobFailure("RestartBudgetError", "worker-0 ended 4 times", last_error="GpuMemoryError")
    leave_failure(tmp_path, DataError("no file"))
    assert msgspec.json.decode((tmp_path / FAILURE_FILE).read_bytes(), type=JobFailure).last_error == ""


def test_a_working_directory_that_is_gone_is_written_as_a_failure(tmp_path: Path) -> None:
    arguments = ExamineArguments("a", str(tmp_path), str(tmp_path / "gone"), LENT, log="l")
    with pytest.raises(FileNotFoundError):
        examining.main(msgspec.json.encode(arguments))
    assert b"FileNotFoundError" in (tmp_path / FAILURE_FILE).read_bytes()


def test_an_examination_counts_what_other_jobs_hold_now_as_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job waits for them; with the bytes that are free now it would fail for good."""
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(tmp_path))
    arena = tmp_path / "elastichost-1-another"
    arena.mkdir()
    (arena / "rows").write_bytes(bytes(1 << 20))
    (tmp_path / "of_another_program").write_bytes(bytes(1 << 20))
    seen: list[int] = []

    def checks(job: object, *, spare_bytes: int, lent: HostInventory) -> None:
        seen.append(spare_bytes)
        raise DataError("no file")

    monkeypatch.setattr(examining, "preflight", checks)
    with pytest.raises(DataError):
        examining.examine(
            JobSpec.model_validate(JOB), ExamineArguments("a", str(tmp_path), str(tmp_path), LENT, log="")
        )
    assert seen == [1 << 20]


def test_an_examination_tells_how_much_of_the_memory_is_in_the_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher compares that with the file system of arenas before a start."""

    class Facts(msgspec.Struct):
        workers: int = 0

    def peak(facts: Facts) -> MemoryEstimate:
        parts = MemoryPart("rows", 70, arena=True), MemoryPart("processes", 30 * facts.workers)
        return MemoryEstimate("training", parts)

    monkeypatch.setattr(examining, "LocalLauncher", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(examining, "memory_facts", lambda *_: Facts())
    monkeypatch.setattr(examining, "estimate_peak", peak)
    prepared: Any = None
    sizes, _ = examining._memory(JobSpec.model_validate(JOB), prepared, 1, 2)
    assert sizes == (MemoryOfSize(1, 100, arena_bytes=70), MemoryOfSize(2, 130, arena_bytes=70))
