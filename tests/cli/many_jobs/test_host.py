"""The verbs host, submit, queue, cancel and top, and batches: their options, errors and screens."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from elastichost.cli.many_jobs.batch import exit_code_of
from elastichost.dispatcher.facts import HostStatus, JobState, JobStatus
from elastichost.errors import PreflightError
from elastichost.runs.directory import lock_directory
from elastichost.runs.liveness import LOCK_FILE
from elastichost.wire.commands import CancelMsg, Command, CommandServer, ReachedMsg, RefusedMsg, Reply, SubmitMsg
from tests.cli.conftest import Elastichost

JOBS = (
    JobStatus(job="ads", state="running", run_dir="/r/ads", kind="dense", workers=2, servers=1, samples_planned=100),
    JobStatus(job="shop", state="waiting", run_dir="/r/shop", why="needs 1,800 MB, 400 MB are free"),
    JobStatus(job="news", state="failed", run_dir="/r/news", why="ModelError: too few towers"),
    JobStatus(job="old", state="done", run_dir="/r/old", started_s=0.0, ended_s=2.0, test_auc=0.75),
)


def write(
    directory: Path, *jobs: JobStatus, pid: int = os.getpid(), state: str = "running", commands: str = ""
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    status = HostStatus(
        directory=str(directory), pid=pid, commands=commands, policy="fifo", state=state, cores=2, jobs=jobs
    )
    (directory / "host.json").write_bytes(msgspec.json.encode(status))
    return directory


def locked(directory: Path) -> int:
    """The lock that a dispatcher holds while it works in its directory."""
    return lock_directory(directory, "the dispatcher's directory", PreflightError("taken"))


@pytest.fixture
def killed_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that a killed host has left. Its status names this process: the pid was given to another one."""
    monkeypatch.setenv("ELASTICHOST_HOST_DIR", str(tmp_path / "host"))
    directory = write(tmp_path / "host", *JOBS)
    (directory / LOCK_FILE).touch(0o600)
    return directory


@pytest.fixture
def host_dir(killed_dir: Path) -> Iterator[Path]:
    """The same directory, with a host that works in it."""
    lock = locked(killed_dir)
    yield killed_dir
    os.close(lock)


# --- how a host is opened ---------------------------------------------------------------------------------------------

WRONG = [
    (("--policy", "complimentary"), 'did you mean "complementary"'),
    (("--policy", "best"), "policies: complementary, rmixer_type, fifo, random, exclusive"),
    (("--memory", "lots"), "'lots' is not an amount of memory"),
    (("--policy-set", "most_jobs"), "is not KEY=VALUE"),
    (("--policy-set", "most_job=3"), 'did you mean "most_jobs"'),
    (("--policy-set", "most_jobs=many"), "--policy-set: "),
    (("--policy-set", "least_gain=much"), "--policy-set: "),
    (("--policy-set", "feedback=perhaps"), "--policy-set: "),
    (("--policy-set", "policy=random"), "is not KEY=VALUE"),
    (("--policy-set", "=3"), "is not KEY=VALUE"),
]


@pytest.mark.parametrize(("options", "problem"), WRONG, ids=lambda one: " ".join(one) if isinstance(one, tuple) else "")
@pytest.mark.parametrize("verb", ["host", "run"])
def test_wrong_options_end_with_2_before_anything_is_made(
    elastichost: Elastichost, job_file: Path, tmp_path: Path, verb: str, options: tuple[str, ...], problem: str
) -> None:
    first = ("host", "--host-dir", "h") if verb == "host" else ("run", str(job_file), str(job_file), "--run-dir", "h")
    outcome = elastichost(*first, *options)
    assert outcome.code == 2
    assert problem in outcome.stderr
    assert not (tmp_path / "h").exists()


def test_policy_constants_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    from elastichost.cli.many_jobs.batch import host_parts

    settings = ("most_jobs=8", "seed=3", "feedback=false", "least_gain=0.5")
    options, found = host_parts(Path("h"), Path("."), "random", settings, "50%", own_sizes=False, ends_when_empty=True)
    assert (options.settings.policy, options.settings.most_jobs, options.settings.seed) == ("random", 8, 3)
    assert (options.settings.feedback, options.settings.least_gain) == (False, 0.5)
    assert options.memory_bytes == found.memory_bytes // 2
    assert not options.keeps_sizes
    alone, _ = host_parts(Path("h"), Path("."), "exclusive", (), "1GiB", own_sizes=False, ends_when_empty=True)
    assert alone.keeps_sizes, "with policy exclusive, each job keeps the size that it chooses alone"
    assert alone.memory_bytes == min(1 << 30, found.memory_bytes)


def test_all_job_files_are_checked_first(elastichost: Elastichost, job_file: Path, tmp_path: Path) -> None:
    outcome = elastichost("run", str(job_file), "missing.toml", "--run-dir", "h")
    assert outcome.code == 2
    assert "missing.toml" in outcome.stderr
    assert not (tmp_path / "h").exists()


@pytest.mark.thorough
def test_a_dry_run_of_several_jobs_checks_one_after_another(elastichost: Elastichost, job_file: Path) -> None:
    outcome = elastichost("run", str(job_file), str(job_file), "--dry-run")
    assert outcome.code == 0
    assert outcome.stdout.count("cold start: ") == 2


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_the_queue_shows_every_job_and_why(elastichost: Elastichost, host_dir: Path) -> None:
    outcome = elastichost("queue")
    assert outcome.code == 0
    lines = outcome.stdout.splitlines()
    assert "1 running" in lines[0] and "1 waiting" in lines[0] and "1 failed" in lines[0]
    order = [line.split()[0] for line in lines[2:]]
    assert order == ["ads", "shop", "news", "old"]
    assert "needs 1,800 MB" in outcome.stdout and "too few towers" in outcome.stdout and "0.7500" in outcome.stdout
    facts = json.loads(elastichost("queue", "--json").last_line)
    assert facts["running"] is True
    assert [job["state"] for job in facts["jobs"]] == ["running", "waiting", "failed", "done"]


def assert_not_running(elastichost: Elastichost) -> None:
    assert elastichost("queue").stdout.startswith("not running; ")
    assert json.loads(elastichost("queue", "--json").last_line)["running"] is False


def test_a_host_that_has_ended_is_shown_as_not_running(elastichost: Elastichost, host_dir: Path) -> None:
    """Its last status says so, a moment before it lets go of its directory."""
    write(host_dir, *JOBS, state="ended")
    assert_not_running(elastichost)


@pytest.mark.usefixtures("killed_dir")
def test_another_process_with_the_pid_of_a_killed_host_is_not_taken_for_it(elastichost: Elastichost) -> None:
    assert_not_running(elastichost)
    outcome = elastichost("cancel", "ads")
    assert outcome.code == 3
    assert "is not running" in outcome.stderr and "start one with" in outcome.stderr


def test_a_host_in_another_container_is_running(elastichost: Elastichost, host_dir: Path) -> None:
    write(host_dir, *JOBS, pid=4_000_000)  # there is no such process here
    assert json.loads(elastichost("queue", "--json").last_line)["running"] is True


@pytest.mark.timeout(30)
def test_top_of_a_killed_host_ends(elastichost: Elastichost, killed_dir: Path) -> None:
    assert "shop" in elastichost("top", str(killed_dir)).stdout


@pytest.mark.parametrize("verb", [("submit", "job.toml"), ("cancel", "ads")])
def test_commands_without_a_running_host_fail(
    elastichost: Elastichost, job_file: Path, tmp_path: Path, verb: tuple[str, ...]
) -> None:
    for problem in ("no dispatcher has written its status here", "is not running"):
        outcome = elastichost(*verb, "--host-dir", "h")
        assert outcome.code == 3
        assert problem in outcome.stderr and "start one with" in outcome.stderr
        write(tmp_path / "h")
    assert elastichost("queue", "--host-dir", "other").code == 3


def test_top_shows_the_host_or_a_run(elastichost: Elastichost, host_dir: Path, run_directory: Path) -> None:
    assert "shop" in elastichost("top", "--once", str(host_dir)).stdout
    assert "1 running" in elastichost("top", "--once", str(host_dir)).stdout
    run = elastichost("top", "--once", run_directory.name)
    assert run.code == 0 and "worker-0" in run.stdout
    assert elastichost("top", "--once", "nonsense").code == 2


# --- commands ---------------------------------------------------------------------------------------------------------


class Answering:
    """A host that gives one reply to each command."""

    def __init__(self, directory: Path) -> None:
        self.server = CommandServer("ipc://commands")
        self.got: list[Command] = []
        self._thread = threading.Thread()
        write(directory, *JOBS, commands=self.server.address)

    def answer(self, *replies: Reply) -> None:
        def work() -> None:
            for reply in replies:
                assert self.server.socket.poll(20_000)
                received = self.server.receive()
                assert received is not None
                self.got.append(received[1])
                self.server.reply(received[0], reply)

        self._thread = threading.Thread(target=work)
        self._thread.start()

    def close(self) -> None:
        if self._thread.ident is not None:
            self._thread.join()
        self.server.close()


@pytest.fixture
def answering(elastichost: Elastichost, host_dir: Path) -> Iterator[Answering]:
    made = Answering(host_dir)
    yield made
    made.close()


def test_submit_sends_whole_jobs_and_prints_their_names(
    elastichost: Elastichost, answering: Answering, job_file: Path, tmp_path: Path
) -> None:
    answering.answer(ReachedMsg("job is in the queue", {"job": "job"}), ReachedMsg("again", {"job": "job-2"}))
    outcome = elastichost("submit", str(job_file), str(job_file), "--weight", "2", "--set", "train.epochs=3", "--json")
    assert outcome.code == 0
    assert json.loads(outcome.last_line)["jobs"] == ["job", "job-2"]
    for command in answering.got:
        assert isinstance(command, SubmitMsg)
        assert (command.name, command.weight, command.working_directory) == ("job", 2.0, str(tmp_path))
        assert "epochs = 3" in command.toml


def test_a_wrong_job_is_not_sent(elastichost: Elastichost, answering: Answering, job_file: Path) -> None:
    outcome = elastichost("submit", str(job_file), "--set", "train.epoch=3")
    assert outcome.code == 2
    assert elastichost("submit", str(job_file), "--weight", "0").code == 2
    assert answering.got == []


@pytest.mark.parametrize(("is_usage", "code"), [(True, 2), (False, 3)])
def test_a_refusal_is_shown(elastichost: Elastichost, answering: Answering, is_usage: bool, code: int) -> None:
    answering.answer(RefusedMsg("ads is already done", "see the queue", is_usage))
    outcome = elastichost("cancel", "ads")
    assert outcome.code == code
    assert "ads is already done" in outcome.stderr and "see the queue" in outcome.stderr
    assert answering.got == [CancelMsg("ads")]


def test_a_command_to_a_killed_host_does_not_wait_for_the_next_one_to_answer(
    elastichost: Elastichost, answering: Answering, host_dir: Path
) -> None:
    """The next host holds the lock before it writes its first status; the status was still that of the killed one."""

    def replace_it() -> None:
        answering.server.wait(60.0)
        write(host_dir, *JOBS, commands="ipc://next", pid=1)

    replacing = threading.Thread(target=replace_it)
    replacing.start()
    outcome = elastichost("cancel", "ads")
    replacing.join()
    assert outcome.code == 3
    assert f"the dispatcher ({os.getpid()}) in {host_dir} has ended, and has not answered" in outcome.stderr
    assert "queue" in outcome.stderr, "the hint says what to do"
    assert answering.got == []


def test_cancel_prints_the_reply(elastichost: Elastichost, answering: Answering) -> None:
    answering.answer(ReachedMsg("ads is cancelled"), ReachedMsg("ads is cancelled"))
    assert elastichost("cancel", "ads").last_line == "ads is cancelled"
    assert json.loads(elastichost("cancel", "ads", "--json").last_line)["job"] == "ads"


# --- batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("states", "code"),
    [
        (("done", "done"), 0),
        (("done", "cancelled"), 0),
        (("done", "stopped"), 75),
        (("failed", "stopped"), 1),
        ((), 0),
    ],
)
def test_the_exit_code_of_a_batch(states: tuple[JobState, ...], code: int) -> None:
    jobs = tuple(JobStatus(job=str(at), state=state, run_dir="") for at, state in enumerate(states))
    assert exit_code_of(HostStatus(directory="", pid=1, commands="", policy="fifo", jobs=jobs)) == code


def test_a_failed_job_that_the_status_leaves_out_is_in_the_exit_code() -> None:
    status = HostStatus(directory="", pid=1, commands="", policy="fifo", left_out={"done": 9})
    assert exit_code_of(status) == 0
    assert exit_code_of(msgspec.structs.replace(status, left_out={"done": 9, "failed": 1})) == 1


def test_a_resumed_batch_keeps_its_options_unless_the_user_changes_them(host_dir: Path) -> None:
    from elastichost.cli.many_jobs.batch import host_parts, resumed_parts

    began, _ = host_parts(
        host_dir, Path("."), "random", ("seed=3", "most_jobs=2"), "50%", own_sizes=True, ends_when_empty=True
    )
    assert began.asked is not None
    (host_dir / "options.json").write_bytes(msgspec.json.encode(began.asked))
    again, _ = resumed_parts(host_dir, "", (), "", own_sizes=None)
    assert again.goes_on and not began.goes_on
    assert (again.settings, again.memory_bytes, again.keeps_sizes) == (
        began.settings,
        began.memory_bytes,
        began.keeps_sizes,
    )
    assert again.keeps_sizes and again.settings.seed == 3
    other, _ = resumed_parts(host_dir, "fifo", ("seed=4",), "1GiB", own_sizes=False)
    assert (other.settings.policy, other.settings.seed, other.settings.most_jobs) == ("fifo", 4, 2)
    assert other.memory_bytes == 1 << 30 and not other.keeps_sizes


def test_a_batch_without_saved_options_resumes_from_its_status(host_dir: Path) -> None:
    from elastichost.cli.many_jobs.batch import resumed_parts
    from elastichost.dispatcher.facts import read_host

    status = msgspec.structs.replace(read_host(host_dir), memory_bytes=1 << 30)
    (host_dir / "host.json").write_bytes(msgspec.json.encode(status))
    options, _ = resumed_parts(host_dir, "", (), "", own_sizes=None)
    assert (options.settings.policy, options.memory_bytes, options.keeps_sizes) == ("fifo", 1 << 30, False)


def test_overrides_are_refused_for_a_batch(elastichost: Elastichost, host_dir: Path) -> None:
    (host_dir / "queue.json").write_text("[]")
    outcome = elastichost("resume", str(host_dir), "--set", "train.epochs=3")
    assert outcome.code == 2
    assert "--set is not allowed for a batch" in outcome.stderr
