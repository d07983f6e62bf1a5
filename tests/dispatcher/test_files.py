"""The dispatcher's directory: names of jobs, the lock, the queue, the status, the timeline."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest

from elastichost.dispatcher.core.demands import Known
from elastichost.dispatcher.directory import HostDirectory, Kept, default_directory, read_asked, write_asked
from elastichost.dispatcher.facts import HOST_FILE, HostStatus, JobObservation, JobSample, JobStatus, read_host
from elastichost.dispatcher.options import AskedOptions
from elastichost.dispatcher.timeline import Moment, Timeline, read_timeline
from elastichost.errors import ConfigError, PreflightError
from tests.dispatcher.jobs import examined, request
from tests.full_disk import file_limit

JOB = JobStatus(job="a", state="running", run_dir="/r", cpu_cores=1.5, memory_bytes=7, charged_bytes=9, workers=2)


def status(*jobs: JobStatus, elapsed_s: float = 1.0) -> HostStatus:
    """The status of a host with these jobs."""
    return HostStatus(directory="/h", pid=4, commands="ipc:///x", policy="fifo", elapsed_s=elapsed_s, jobs=jobs)


# --- the directory ----------------------------------------------------------------------------------------------------


def test_every_job_has_a_name_of_its_own(tmp_path: Path) -> None:
    directory = HostDirectory.open(tmp_path / "new" / "host")
    made = [directory.new_folder("ads", f"# {at}") for at in range(3)]
    assert [name for name, _ in made] == ["ads", "ads-2", "ads-3"]
    assert [(folder / "job.toml").read_text() for _, folder in made] == ["# 0", "# 1", "# 2"]
    assert [folder.parent for _, folder in made] == [directory.path / "jobs"] * 3
    assert all(stat.S_IMODE(folder.stat().st_mode) == 0o700 for _, folder in made)
    directory.close()
    again = HostDirectory.open(tmp_path / "new" / "host")
    assert again.new_folder("ads", "")[0] == "ads-4", "names of an earlier dispatcher's jobs are taken too"
    again.close()


def test_a_folder_that_a_killed_dispatcher_left_is_taken_over(tmp_path: Path) -> None:
    directory = HostDirectory.open(tmp_path)
    for text in ("# killed before the queue", "# again"):
        folder = directory.own_folder("trial-000", text)
        assert (folder / "job.toml").read_text() == text
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["trial-000"]
    directory.close()


def test_a_folder_that_cannot_be_written_is_an_error_that_says_how_to_continue(tmp_path: Path) -> None:
    directory = HostDirectory.open(tmp_path)
    wanted = rf"(?s)jobs/trial-000 of a job cannot be written: file too large.*free some space.*--resume {tmp_path}"
    with file_limit(3), pytest.raises(PreflightError, match=wanted):
        directory.own_folder("trial-000", "# a job")
    assert (directory.own_folder("trial-000", "# a job") / "job.toml").read_text() == "# a job"
    directory.close()


@pytest.mark.parametrize("name", ["", "..", "../../x", "a/b", "/etc", ".hidden", "a b", "a\n", "x" * 65])
def test_an_invalid_job_name_is_refused(tmp_path: Path, name: str) -> None:
    directory = HostDirectory.open(tmp_path / "host")
    with pytest.raises(ConfigError, match="name"):
        directory.new_folder(name, "")
    assert list((tmp_path / "host" / "jobs").iterdir()) == []
    directory.close()


def test_two_dispatchers_never_share_a_directory(tmp_path: Path) -> None:
    first = HostDirectory.open(tmp_path)
    with pytest.raises(PreflightError, match="another dispatcher uses"):
        HostDirectory.open(tmp_path)
    first.close()
    HostDirectory.open(tmp_path).close()


def test_a_directory_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PreflightError, match="the dispatcher's directory .* could not be created"):
        HostDirectory.open(tmp_path / "file" / "host")


def test_the_queue_goes_to_the_next_dispatcher(tmp_path: Path) -> None:
    directory = HostDirectory.open(tmp_path)
    assert directory.read_queue() == ()
    kept = (Kept(request("a", 2.5), has_run=True), Kept(request("b")))
    directory.write_queue(kept)
    directory.close()
    again = HostDirectory.open(tmp_path)
    assert again.read_queue() == kept
    (tmp_path / "queue.json").write_text("[{")
    with pytest.raises(PreflightError, match=r"queue\.json cannot be read"):
        again.read_queue()
    again.close()


def test_ended_jobs_and_the_options_are_kept_for_the_next_dispatcher(tmp_path: Path) -> None:
    directory = HostDirectory.open(tmp_path)
    assert (directory.read_over(), read_asked(tmp_path)) == ((), None)
    over = (msgspec.structs.replace(JOB, state="failed", why="ModelError: too few towers", exit_code=1),)
    asked = AskedOptions("random", ("seed=3",), "12GiB", own_sizes=True)
    directory.write_over(over)
    write_asked(directory.path, asked)
    directory.close()
    again = HostDirectory.open(tmp_path)
    assert (again.read_over(), read_asked(tmp_path)) == (over, asked)
    (tmp_path / "over.json").write_text("[{")
    (tmp_path / "options.json").write_text('{"policy": 3}')
    with pytest.raises(PreflightError, match=r"over\.json cannot be read"):
        again.read_over()
    with pytest.raises(PreflightError, match=r"options\.json cannot be read"):
        read_asked(tmp_path)
    again.close()


def test_the_default_directory_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_directory({"ELASTICHOST_HOST_DIR": str(tmp_path)}) == tmp_path
    assert default_directory({"XDG_STATE_HOME": "/s"}) == Path("/s/elastichost/host")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_directory({}) == Path("/home/me/.local/state/elastichost/host")
    assert default_directory({"ELASTICHOST_HOST_DIR": "~/h"}) == Path("/home/me/h")


# --- facts ------------------------------------------------------------------------------------------------------------


def test_a_status_is_read_as_it_was_written(tmp_path: Path) -> None:
    directory = HostDirectory.open(tmp_path)
    directory.write_status(status(JOB, JobStatus(job="b", state="failed", run_dir="", exit_code=3, gpu=1)))
    directory.close()
    found = read_host(tmp_path)
    assert found.jobs[0] == JOB
    assert (found.jobs[1].exit_code, found.jobs[1].gpu, found.jobs[1].started_s) == (3, 1, None)
    assert found.schema == "elastichost/v1"


def test_a_missing_or_unreadable_status_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="no dispatcher has written its status here"):
        read_host(tmp_path)
    for text in ("{", '{"directory": 3}', '{"directory": "", "pid": 1, "commands": "", "policy": "", "jobs": [{}]}'):
        (tmp_path / HOST_FILE).write_text(text)
        with pytest.raises(PreflightError, match="cannot be read"):
            read_host(tmp_path)


@pytest.mark.parametrize(
    "fact",
    [
        examined("a", least=1, most=3),
        Known(1e-6, 2e-6, 3.0, 0.5, 7.0),
        JobSample(1.0, 2.0, 3.0, 4.0, 5, 0.5),
        request("a"),
        JobObservation("a", None, None, 0.5, 1, 2, (3, 4)),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_facts_survive_json_unchanged(fact: msgspec.Struct) -> None:
    assert msgspec.json.decode(msgspec.json.encode(fact), type=type(fact)) == fact


# --- the timeline -----------------------------------------------------------------------------------------------------


def test_the_timeline_has_every_second_of_jobs_with_a_process(tmp_path: Path) -> None:
    path = tmp_path / "time?line #1%41.db"
    assert read_timeline(path) == ()
    timeline = Timeline(path)
    timeline.add(status(JOB, msgspec.structs.replace(JOB, job="b", state="waiting"), elapsed_s=1.0))
    timeline.add(status(msgspec.structs.replace(JOB, job="b", state="paused"), JOB, elapsed_s=2.0))
    timeline.add(status(msgspec.structs.replace(JOB, state="done"), elapsed_s=3.0))
    moments = read_timeline(path)  # while the dispatcher has it open
    assert [(one.elapsed_s, one.job, one.state) for one in moments] == [
        (1.0, "a", "running"),
        (2.0, "a", "running"),
        (2.0, "b", "paused"),
    ]
    assert moments[0] == Moment(1.0, "a", "running", 1.5, 7, 9, 0.0, 0.0, 2)
    timeline.close()
    again = Timeline(path)
    again.add(status(JOB, elapsed_s=4.0))
    again.close()
    assert len(read_timeline(path)) == 4, "the next dispatcher appends to the timeline"


def test_a_timeline_with_a_limit_keeps_its_newest_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastichost.dispatcher.timeline.FORGET_EVERY", 4)
    path = tmp_path / "timeline.db"
    for most_rows in (None, 3):
        timeline = Timeline(path, most_rows)
        for at_s in range(10):
            timeline.add(status(JOB, elapsed_s=float(at_s)))
            if most_rows is not None:
                assert len(read_timeline(path)) < most_rows + 4
        timeline.close()
        kept = [one.elapsed_s for one in read_timeline(path)]
        assert len(kept) == 10 if most_rows is None else kept[-3:] == [7.0, 8.0, 9.0], kept
