"""The verbs status, events, logs and clean on run directories in different states."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from elastichost.cli.runs import find_run, program, runs_under
from elastichost.dispatcher.facts import HOST_FILE, HostStatus, JobStatus
from elastichost.errors import ConfigError, PreflightError
from elastichost.plan import ProcessId
from elastichost.runs.directory import lock_directory, point_latest
from elastichost.runs.events import (
    AnyEvent,
    LeaseGranted,
    LeasesSettled,
    ProcessLost,
    ProcessStarting,
    RunEnded,
    Warned,
)
from elastichost.runs.events.schema import line_schema
from elastichost.runs.events.text import text_of
from elastichost.runs.journal import LEASES_FILE, Journal
from elastichost.runs.result import ProcessCounts, RunOutcome, RunResult, SampleCounts
from elastichost.runs.tail import Tail
from tests.cli.conftest import JOB, Elastichost, write_status


@pytest.fixture
def dead_pid() -> int:
    """The pid of a process that has ended."""
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize("name", ["latest", "shop-20260101T000000Z-abc123", "runs/latest", "path"])
def test_runs_are_found_by_every_name(run_directory: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(run_directory.parent.parent)
    assert find_run(str(run_directory) if name == "path" else name) == run_directory


def test_an_unknown_run_lists_known_runs(run_directory: Path) -> None:
    with pytest.raises(ConfigError, match="no run 'latset'; did you mean \"latest\""):
        find_run("latset", run_directory.parent)
    with pytest.raises(ConfigError, match="no run 'shop-20260101T000000Z-abc12'; did you mean") as caught:
        find_run("shop-20260101T000000Z-abc12", run_directory.parent)
    assert run_directory.name in caught.value.hint
    assert runs_under(run_directory.parent) == [run_directory]


def test_the_newest_run_is_the_one_that_was_started_last(run_directory: Path) -> None:
    """A report that is written into an old run does not make it the newest."""
    newer = run_directory.parent / "shop-20260102T000000Z-abc123"
    newer.mkdir()
    (newer / "job.resolved.toml").write_text(JOB)
    os.utime(run_directory / "job.resolved.toml", (1.0, 1.0))
    (run_directory / "report.html").write_text("written now")
    assert runs_under(run_directory.parent) == [newer, run_directory]


def test_a_link_to_a_run_that_is_gone_says_so(run_directory: Path) -> None:
    (run_directory.parent / "latest").unlink()
    (run_directory.parent / "latest").symlink_to("shop-gone")
    with pytest.raises(ConfigError, match="no run 'latest': it was shop-gone, which is gone"):
        find_run("latest", run_directory.parent)


def test_status_of_a_run_that_is_going_on(elastichost: Elastichost, running_directory: Path) -> None:
    outcome = elastichost("status")
    assert outcome.code == 0
    assert "25.0%" in outcome.stdout
    assert "worker-0.2" in outcome.stdout
    assert f"running: supervisor {os.getpid()}, runs/{running_directory.name}" in outcome.stdout
    facts = json.loads(elastichost("status", "--json").last_line)
    assert (facts["schema"], facts["running"], facts["samples_trained"]) == ("elastichost/v1", True, 250)


def test_status_of_a_run_whose_supervisor_is_gone(elastichost: Elastichost, run_directory: Path) -> None:
    """Its pid was given to another process."""
    outcome = elastichost("status", run_directory.name)
    assert f"not running: its supervisor ({os.getpid()}) is gone" in outcome.stdout
    assert f"{program()} resume runs/{run_directory.name}" in outcome.stdout
    assert json.loads(elastichost("status", "--json").last_line)["running"] is False


def test_status_of_a_finished_run(elastichost: Elastichost, run_directory: Path) -> None:
    write_status(run_directory, "done", os.getpid())
    outcome = elastichost("status")
    assert "not running: done" in outcome.stdout
    assert "resume" not in outcome.stdout


@pytest.mark.parametrize(
    ("state", "checkpoint", "told"),
    [
        ("failed", "", "not running: failed: no luck"),
        ("failed", "checkpoints/step-8", "resume"),
        ("killed", "", "nothing of the run was saved"),
        ("stopped", "checkpoints/step-8", "resume"),
    ],
)
def test_status_of_a_run_that_ended_early_says_why_and_what_to_do(
    elastichost: Elastichost, run_directory: Path, state: RunOutcome, checkpoint: str, told: str
) -> None:
    write_status(run_directory, state, os.getpid())
    counts, processes = SampleCounts(1000, 250, 0, 0), ProcessCounts(1, 1, 0)
    facts = {"samples_per_s": 1.0, "wall_s": 1.0, "arena_bytes": 0, "epochs": 1, "torn_batches": 0, "test": None}
    message = "no luck\nand more" if state == "failed" else ""
    ended = {"status": state, "exit_code": 1, "checkpoint": checkpoint, "message": message}
    result = RunResult(run_dir=str(run_directory), samples=counts, processes=processes, **ended, **facts)  # type: ignore[arg-type]
    (run_directory / "result.json").write_bytes(result.to_bytes())
    outcome = elastichost("status")
    assert told in outcome.stdout
    assert ("resume" in outcome.stdout) == bool(checkpoint)
    assert "and more" not in outcome.stdout


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
    assert "latest is the directory of many jobs (runs/batch-1), and this verb takes one run" in outcome.stderr
    assert f"- shop: runs/{run_directory.name} (done)" in outcome.stderr
    assert runs_under(run_directory.parent) == [run_directory]


def test_no_runs_at_all(elastichost: Elastichost) -> None:
    outcome = elastichost("status")
    assert outcome.code == 2
    assert "no run 'latest'" in outcome.stderr


def test_events_in_words_and_as_json(elastichost: Elastichost, run_directory: Path) -> None:
    assert elastichost("events").stdout.splitlines() == [
        "00:00:01  worker-0  worker-0.1 started with pid 7",
        "00:00:02  tuner: stay, nothing is known yet",
    ]
    *events, last = elastichost("events", "--json").stdout.splitlines()
    assert [json.loads(event)["kind"] for event in events] == ["process_started", "tuner_decided"]
    assert json.loads(last) == {"schema": "elastichost/v1", "run_dir": str(run_directory), "events": 2}


def test_each_event_as_json_has_its_line_flat_and_its_sentence(elastichost: Elastichost, run_directory: Path) -> None:
    started, decided, _ = elastichost("events", "--json").stdout.splitlines()
    assert json.loads(started) == {
        "schema": "elastichost/v1",
        "time_utc": "2026-01-01T00:00:01.000Z",
        "monotonic_s": 1.0,
        "cause": "start-1.1",
        "kind": "process_started",
        "category": "progress",
        "process": "worker-0",
        "data": {"incarnation": 1, "pid": 7},
        "text": "worker-0.1 started with pid 7",
    }
    facts = json.loads(decided)
    assert set(facts) == set(json.loads(started))
    assert (facts["kind"], facts["category"], facts["process"], facts["cause"]) == ("tuner_decided", "decision", "", "")
    assert facts["data"]["only_watches"] is False
    assert facts["data"]["decision"]["reason"] == "stay, nothing is known yet"


# --- which events are shown -------------------------------------------------------------------------------------------


def lease(number: int) -> LeaseGranted:
    return LeaseGranted(WORKER, lease=number, epoch=0, unit=0, start=64 * (number - 1), stop=64 * number)


WORKER = ProcessId("worker", 0, 1)
LOST = ProcessLost(WORKER, 7, -9, "running", "signal 9")
STARTING = ProcessStarting(ProcessId("worker", 0, 2), "worker-0.1 ended: signal 9")
# events and causes that follow the two lines of `run_directory`
STORY: tuple[tuple[AnyEvent, str], ...] = (
    (lease(1), ""),
    (LOST, "exit-worker-0.1"),
    (LeasesSettled(WORKER, 0, 0, 64), "exit-worker-0.1"),
    (Warned("the disk is slow"), ""),
    (lease(2), ""),
    (STARTING, "exit-worker-0.1"),
    (RunEnded("done"), "stop-1.1"),
)
KINDS = ["process_started", "tuner_decided", *(event.kind for event, _ in STORY)]


@pytest.fixture
def story(run_directory: Path) -> Path:
    """A run in which a worker is lost and replaced, and leases are granted."""
    journal = Journal(run_directory / "journal.jsonl")
    for event, cause in STORY:
        journal.write(event, cause)
    journal.close()
    assert (run_directory / LEASES_FILE).read_bytes().count(b"\n") == 2
    return run_directory


def kinds_shown(elastichost: Elastichost, *arguments: str) -> list[str]:
    """The kinds that `events --json` prints, without its last line, which counts them."""
    *events, last = elastichost("events", "--json", *arguments).stdout.splitlines()
    assert json.loads(last)["events"] == len(events)
    return [json.loads(event)["kind"] for event in events]


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        (("--kind", "process_lost"), ["process_lost"]),
        (("-k", "fault"), ["process_lost"]),
        (("--kind", "decision"), ["tuner_decided", "process_starting"]),
        (("--kind", "decision", "--kind", "process_lost"), ["tuner_decided", "process_lost", "process_starting"]),
        (("--kind", "warning", "--kind", "run_ended"), ["warned", "run_ended"]),
        (("--kind", "checkpoint_written"), []),
    ],
)
@pytest.mark.usefixtures("story")
def test_a_kind_or_a_category_chooses_events(
    elastichost: Elastichost, arguments: tuple[str, ...], kinds: list[str]
) -> None:
    assert kinds_shown(elastichost, *arguments) == kinds


@pytest.mark.usefixtures("story")
def test_chosen_events_are_shown_in_words(elastichost: Elastichost) -> None:
    (shown,) = elastichost("events", "--kind", "fault").stdout.splitlines()
    assert shown.endswith(f"  worker-0  {text_of(LOST)}")


@pytest.mark.parametrize(
    ("kind", "suggestion"), [("proces_lost", "process_lost"), ("decisions", "decision"), ("zzz", "")]
)
def test_an_unknown_kind_is_an_error(elastichost: Elastichost, run_directory: Path, kind: str, suggestion: str) -> None:
    outcome = elastichost("events", "--kind", "fault", "--kind", kind, "--json")
    assert outcome.code == 2
    error = json.loads(outcome.last_line)["error"]
    assert error["type"] == "ConfigError"
    meant = f'; did you mean "{suggestion}"?' if suggestion else ""
    assert error["message"] == f"unknown kind of event {kind!r}{meant}"
    assert error["hint"].endswith("categories: progress, decision, fault, warning, lease")


@pytest.mark.usefixtures("story")
def test_a_cause_chooses_what_followed_from_it(elastichost: Elastichost) -> None:
    followed = ["process_lost", "leases_settled", "process_starting"]
    assert kinds_shown(elastichost, "--cause", "exit-worker-0.1") == followed
    assert kinds_shown(elastichost, "-c", "exit-worker-0.1", "--kind", "decision") == ["process_starting"]
    assert kinds_shown(elastichost, "--cause", "start-1.1") == ["process_started"]
    assert kinds_shown(elastichost, "--cause", "exit-worker-0") == [], "a prefix of a cause must not match it"


@pytest.mark.usefixtures("story")
def test_leases_are_shown_in_order_when_requested(elastichost: Elastichost) -> None:
    assert kinds_shown(elastichost) == [kind for kind in KINDS if kind != "lease_granted"]
    assert kinds_shown(elastichost, "--leases") == KINDS
    assert kinds_shown(elastichost, "--leases", "--kind", "process_lost") == ["process_lost"]
    for kind in ("lease", "lease_granted"):
        assert kinds_shown(elastichost, "--kind", kind) == ["lease_granted"] * 2
    assert text_of(lease(2)) in elastichost("events", "--leases").stdout


def test_leases_of_another_version_are_an_error(elastichost: Elastichost, story: Path) -> None:
    with (story / LEASES_FILE).open("a") as leases:
        leases.write('{"journal_bytes": "many"}\n')
    assert elastichost("events").code == 0
    outcome = elastichost("events", "--leases")
    assert outcome.code == 3
    assert "journal.jsonl, or the leases beside it: not an event of this elastichost version" in outcome.stderr


def test_leases_are_not_followed(elastichost: Elastichost, run_directory: Path) -> None:
    for option in (("--leases",), ("--kind", "lease"), ("--kind", "lease_granted")):
        outcome = elastichost("events", str(run_directory), "--follow", *option)
        assert outcome.code == 2
        assert "leases cannot be followed" in outcome.stderr


def test_the_schema_of_a_line_is_printed_without_a_run(elastichost: Elastichost, tmp_path: Path) -> None:
    outcome = elastichost("events", "--schema")
    assert outcome.code == 0
    schema = json.loads(outcome.stdout)
    assert schema == json.loads(msgspec.json.encode(line_schema()))
    assert set(schema["$defs"]) >= {"JournalLine", "ProcessLost", "LeaseGranted"}
    assert not list(tmp_path.iterdir())


# --- journals that grow -----------------------------------------------------------------------------------------------


def test_events_leave_out_a_line_that_is_being_written(elastichost: Elastichost, run_directory: Path) -> None:
    with (run_directory / "journal.jsonl").open("a") as journal:
        journal.write('{"time_utc":"2026')
    assert len(elastichost("events").stdout.splitlines()) == 2
    with (run_directory / "journal.jsonl").open("a") as journal:
        journal.write("\n")
    outcome = elastichost("events")
    assert outcome.code == 3
    assert "journal.jsonl, line 3: not an event of this elastichost version" in outcome.stderr
    assert "versions.json" in outcome.stderr


def test_following_ends_with_the_run(elastichost: Elastichost, run_directory: Path) -> None:
    write_status(run_directory, "done", os.getpid())
    assert len(elastichost("events", "-f").stdout.splitlines()) == 2
    assert "second incarnation" in elastichost("logs", "-f", "--process", "worker-0").stdout


def test_logs_of_all_and_of_one(elastichost: Elastichost, run_directory: Path) -> None:
    lines = elastichost("logs").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["server-0.1", "worker-0.1", "worker-0.1", "worker-0.2"]
    assert elastichost("logs", "-p", "worker-0").stdout.splitlines() == ["first", "incarnation", "second incarnation"]
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


@pytest.fixture
def nothing_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides all arenas and sockets of this host."""
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)


@pytest.mark.usefixtures("nothing_shared")
def test_clean_keeps_runs_that_are_in_use(elastichost: Elastichost, run_directory: Path) -> None:
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
    assert not run_directory.exists(), "the run has ended, even if another process has the pid of its supervisor"
