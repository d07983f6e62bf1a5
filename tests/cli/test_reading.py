"""status, events and logs on run directories as they are found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from elastichost.cli.runs import find_run, is_alive, program, runs_under
from elastichost.cli.tail import Tail
from elastichost.dispatcher.facts import HOST_FILE, HostStatus, JobStatus
from elastichost.errors import ConfigError, PreflightError
from elastichost.supervisor.rundir import lock_directory, point_latest

from .conftest import JOB, Elastichost, write_status


@pytest.fixture
def dead_pid() -> int:
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize("name", ["latest", "shop-20260101T000000Z-abc123", "runs/latest", "path"])
def test_runs_are_found_by_every_name(run_directory: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(run_directory.parent.parent)
    assert find_run(str(run_directory) if name == "path" else name) == run_directory


def test_unknown_runs_name_the_known(run_directory: Path) -> None:
    with pytest.raises(ConfigError, match="no run 'shop-20260101T000000Z-abc12'; did you mean") as caught:
        find_run("shop-20260101T000000Z-abc12", run_directory.parent)
    assert run_directory.name in caught.value.hint
    assert runs_under(run_directory.parent) == [run_directory]


def test_status_of_a_run_that_is_going_on(elastichost: Elastichost, run_directory: Path) -> None:
    outcome = elastichost("status")
    assert outcome.code == 0
    assert "25.0%" in outcome.stdout
    assert "worker-0 life 2" in outcome.stdout
    assert f"running: supervisor {os.getpid()}, runs/{run_directory.name}" in outcome.stdout
    facts = json.loads(elastichost("status", "--json").last_line)
    assert (facts["schema"], facts["running"], facts["samples_trained"]) == ("elastichost/v1", True, 250)


def test_status_of_a_run_whose_supervisor_is_gone(elastichost: Elastichost, run_directory: Path, dead_pid: int) -> None:
    write_status(run_directory, "training", dead_pid)
    outcome = elastichost("status", run_directory.name)
    assert f"not running: its supervisor ({dead_pid}) is gone" in outcome.stdout
    assert f"{program()} resume runs/{run_directory.name}" in outcome.stdout
    assert json.loads(elastichost("status", "--json").last_line)["running"] is False


def test_status_of_a_finished_run(elastichost: Elastichost, run_directory: Path) -> None:
    write_status(run_directory, "done", os.getpid())
    outcome = elastichost("status")
    assert "not running: done" in outcome.stdout
    assert "resume" not in outcome.stdout


def test_status_that_cannot_be_read(elastichost: Elastichost, run_directory: Path) -> None:
    (run_directory / "status.json").write_text("{")
    outcome = elastichost("status")
    assert outcome.code == 3
    assert "status.json: cannot be read" in outcome.stderr
    (run_directory / "status.json").unlink()
    assert "has not written its status yet" in elastichost("status").stderr


def test_latest_that_is_a_batch_names_its_runs(elastichost: Elastichost, run_directory: Path) -> None:
    batch = run_directory.parent / "batch-1"
    batch.mkdir()
    jobs = (
        JobStatus(job="shop", state="done", run_dir=str(run_directory)),
        JobStatus(job="b", state="waiting", run_dir=""),
    )
    status = HostStatus(directory=str(batch), pid=1, commands="", policy="complementary", state="ended", jobs=jobs)
    (batch / HOST_FILE).write_bytes(msgspec.json.encode(status))
    point_latest(batch)
    outcome = elastichost("status")
    assert outcome.code == 2
    assert "latest is runs/batch-1, which trains many jobs; this verb takes one run" in outcome.stderr
    assert f"- shop: runs/{run_directory.name} (done)" in outcome.stderr
    assert runs_under(run_directory.parent) == [run_directory]


def test_no_runs_at_all(elastichost: Elastichost) -> None:
    outcome = elastichost("status")
    assert outcome.code == 2
    assert "no run 'latest'" in outcome.stderr


def test_events_in_words_and_as_json(elastichost: Elastichost, run_directory: Path) -> None:
    assert elastichost("events").stdout.splitlines() == [
        "00:00:01  worker-0  started [pid 7]",
        "00:00:02  stay: nothing is known yet",
    ]
    *events, last = elastichost("events", "--json").stdout.splitlines()
    assert [json.loads(event)["kind"] for event in events] == ["process_started", "decision"]
    assert json.loads(last) == {"schema": "elastichost/v1", "run_dir": str(run_directory), "events": 2}


def test_events_leave_out_a_line_that_is_being_written(elastichost: Elastichost, run_directory: Path) -> None:
    with (run_directory / "journal.jsonl").open("a") as journal:
        journal.write('{"time_utc":"2026')
    assert len(elastichost("events").stdout.splitlines()) == 2
    with (run_directory / "journal.jsonl").open("a") as journal:
        journal.write("\n")
    outcome = elastichost("events")
    assert outcome.code == 3
    assert "journal.jsonl, line 3: not a journal event" in outcome.stderr


def test_following_ends_with_the_run(elastichost: Elastichost, run_directory: Path) -> None:
    write_status(run_directory, "done", os.getpid())
    assert len(elastichost("events", "-f").stdout.splitlines()) == 2
    assert "second life" in elastichost("logs", "-f", "--process", "worker-0").stdout


def test_logs_of_all_and_of_one(elastichost: Elastichost, run_directory: Path) -> None:
    lines = elastichost("logs").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["server-0.1", "worker-0.1", "worker-0.1", "worker-0.2"]
    assert elastichost("logs", "-p", "worker-0").stdout.splitlines() == ["first", "life", "second life"]
    outcome = elastichost("logs", "-p", "worker-9")
    assert outcome.code == 2
    assert 'did you mean "worker-0"?' in outcome.stderr


def test_a_tail_gives_every_line_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntw")
    tail = Tail(path)
    assert list(tail.new_lines()) == ["one"]
    assert list(tail.new_lines()) == []
    with path.open("ab") as file:
        file.write(b"o\n\xff\n")
    assert list(tail.new_lines()) == ["two", "\\xff"]


def test_liveness(dead_pid: int) -> None:
    assert is_alive(os.getpid())
    assert not is_alive(dead_pid)


@pytest.fixture
def nothing_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No arena and no socket of this host is seen."""
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


@pytest.mark.usefixtures("nothing_shared")
def test_clean_keeps_what_is_alive(elastichost: Elastichost, run_directory: Path) -> None:
    old = run_directory.parent / "old"
    old.mkdir()
    (old / "job.resolved.toml").write_text(JOB)
    arguments = ("clean", "--runs", "--keep", "0", "--json")
    lock = lock_directory(run_directory, "the run directory", PreflightError("taken"))
    planned = json.loads(elastichost(*arguments, "--dry-run").last_line)
    assert [Path(one["path"]).name for one in planned["removed"]] == ["old"]
    assert old.exists()
    elastichost(*arguments)
    assert not old.exists()
    assert run_directory.exists()
    os.close(lock)
    elastichost(*arguments)
    assert not run_directory.exists(), "nobody works in it, whatever process bears its supervisor's number"
