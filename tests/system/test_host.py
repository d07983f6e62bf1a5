"""Many jobs on one host with real processes: kills, signals, wrong memory estimates, resumes.

Each test checks at its end that no process, arena or socket directory remains.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import zmq

from elastichost.arena.host import arena_root
from elastichost.checkpoint.format import latest
from elastichost.cli import run_command_line
from elastichost.dispatcher.facts import JobStatus, read_host
from elastichost.dispatcher.timeline import read_timeline
from elastichost.metrics import RunStatus
from elastichost.runs.events import (
    ArenaRejected,
    ArenaReused,
    CheckpointWritten,
    Event,
    HostStopping,
    JobDone,
    JobRequeued,
    JobShared,
    JobStarted,
    JobTended,
    MemoryBudgetLent,
    MessageRefused,
    PlanReached,
    ProcessLost,
    ProcessRepinned,
    ProcessStartFailed,
    ProposalGranted,
    RunStarted,
    StartedFromCheckpoint,
    TunerDecided,
)
from elastichost.runs.events.text import text_of
from elastichost.wire.commands import AcceptedMsg, CommandClient, LendMsg, ReachedMsg, RefusedMsg, Reply
from tests.system.hosting import (
    BROKEN,
    ENDLESS,
    FOREVER,
    LIAR,
    SLOW,
    Host,
    assert_all_trained,
    below,
    events,
    hurry,
    is_over,
    result,
    wait_gone,
    write_job,
)
from tests.system.test_run import LIMIT_S, folder, processes_of

pytestmark = pytest.mark.system

__all__ = ["folder"]


# --- a host with a queue, for most of the tests -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """One host for all tests that leave it without running and waiting jobs."""
    place = tmp_path_factory.mktemp("host")
    arenas, sockets = arena_root() / f"test-{os.getpid()}-host", Path(tempfile.mkdtemp(prefix="ehs-"))
    arenas.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ELASTICHOST_ARENA_DIR", str(arenas))
        patch.setenv("XDG_RUNTIME_DIR", str(sockets))
        host = Host.open(place)
    try:
        host.wait(host.status)
        yield host
        processes = below(host.process.pid)
        assert host.stop() in (0, 1)  # some jobs have failed
        wait_gone(processes, 5.0)
        assert os.listdir(arenas) == os.listdir(sockets) == []
        assert processes_of(arenas) == []
    finally:
        host.process.kill()
        shutil.rmtree(arenas)
        shutil.rmtree(sockets)


@pytest.fixture(autouse=True)
def quiet(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ends all jobs that a test has started or submitted, however the test ends."""
    Host.made.clear()
    if "folder" in request.fixturenames:
        request.getfixturevalue("folder")  # this fixture checks for leftovers after all jobs have ended
    yield
    if "host" not in request.fixturenames:
        for host in Host.made:
            host.process.kill()
            host.process.wait(LIMIT_S)
        return
    host = request.getfixturevalue("host")
    status = host.status()
    assert status is not None
    for job in status.jobs:
        if job.state not in ("done", "failed", "cancelled"):
            cancel(host, job.job)
            host.wait_over(job.job)
    wait_nothing_left(host)


def wait_nothing_left(host: Host) -> None:
    """Waits until no process of a job, no zombie and no socket remains."""

    def is_so() -> bool:
        children = psutil.Process(host.process.pid).children(recursive=True)
        return len(children) == 1 and len(os.listdir(host.sockets)) == 1  # the fork server, the command socket

    host.wait(is_so, 20.0)


def submit(host: Host, *files: str) -> None:
    assert run_command_line(["submit", *files, "--host-dir", str(host.directory)]) == 0


def cancel(host: Host, job: str) -> None:
    assert run_command_line(["cancel", job, "--host-dir", str(host.directory)]) == 0


def test_submitted_shown_and_cancelled(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    long = write_job(host.place, "long", SLOW, **FOREVER)
    short = write_job(host.place, "short")
    capsys.readouterr()
    submit(host, long, short, long)
    assert capsys.readouterr().out.splitlines() == [
        "long is in the queue",
        "short is in the queue",
        "long-2 is in the queue",
    ]
    cancel(host, "long-2")  # it is being examined, or waits for that
    assert capsys.readouterr().out.splitlines() == ["long-2 is cancelled"]
    host.wait_trained("long", 1000)
    assert run_command_line(["queue", "--host-dir", str(host.directory), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert shown["running"] is True
    states = {job["job"]: job["state"] for job in shown["jobs"]}
    assert states["long-2"] == "cancelled"
    assert states["long"] in ("starting", "running")
    cancel(host, "long")
    said = capsys.readouterr().out
    assert said.startswith("long is being cancelled: it saves its progress and exits"), "it has not ended yet"
    done = host.wait_state("long", "cancelled")
    kept = latest(Path(done.run_dir) / "checkpoints")
    assert kept is not None and kept.manifest.samples_trained >= 1000, "the training must be saved"
    assert_all_trained(host.wait_state("short", "done"))
    assert run_command_line(["cancel", "short", "--host-dir", str(host.directory)]) == 2
    assert run_command_line(["cancel", "shrot", "--host-dir", str(host.directory)]) == 2
    assert 'did you mean "short"' in capsys.readouterr().err


@pytest.mark.thorough
def test_invalid_commands_do_not_fill_the_journal(host: Host) -> None:
    status = host.status()
    assert status is not None
    context = zmq.Context()
    with context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(status.commands)
        for _ in range(50):
            socket.send(b"nonsense")
            assert socket.poll(LIMIT_S * 1000)
            assert b"not a valid command" in socket.recv()
    context.term()
    assert len(host.events(MessageRefused)) <= 2


def test_cancelled_while_it_is_looked_at(host: Host) -> None:
    submit(host, write_job(host.place, "endless", ENDLESS))
    host.wait((host.place / "endless.begun").exists)
    cancel(host, "endless")
    assert host.wait_state("endless", "cancelled").starts == 0
    wait_nothing_left(host)


def test_a_model_that_cannot_be_built_is_its_own_fault(host: Host) -> None:
    submit(host, write_job(host.place, "broken", BROKEN), write_job(host.place, "sound"))
    broken = host.wait_state("broken", "failed")
    assert broken.why.startswith("ModelError: ")
    assert "too few towers" in broken.why
    assert_all_trained(host.wait_state("sound", "done"))
    assert not Path(broken.run_dir).exists(), "a job that never ran must leave no run directory"


def test_a_killed_worker_is_replaced_by_its_run(host: Host) -> None:
    submit(host, write_job(host.place, "mended", SLOW))
    host.wait_trained("mended")
    os.kill(host.pid("mended", "worker-0"), signal.SIGKILL)
    hurry(host.place, "mended")
    mended = host.wait_state("mended", "done", "failed", "waiting")
    assert_all_trained(mended)
    assert (mended.starts, mended.out_of_memory) == (1, 0)
    assert len(events(mended, ProcessLost, ProcessStartFailed)) == 1
    assert host.events(JobRequeued, "mended") == []


@pytest.mark.thorough
def test_a_killed_supervisor_is_taken_for_one_out_of_memory(host: Host) -> None:
    """The job continues alone from its arena; other jobs are not affected."""
    submit(host, write_job(host.place, "killed", SLOW, keep_s=60), write_job(host.place, "beside", SLOW))
    trained = host.wait_trained("killed", 5000)
    host.wait_trained("beside")
    processes = below(trained.supervisor_pid)
    os.kill(trained.supervisor_pid, signal.SIGKILL)
    waiting = host.wait(lambda: host.events(JobRequeued, "killed"))
    assert list(map(text_of, waiting)) == ["ran out of memory (signal 9 (SIGKILL)); it starts once more, alone"]
    hurry(host.place, "beside", "killed")
    assert_all_trained(host.wait_state("beside", "done"))
    killed = host.wait_state("killed", "done", "failed")
    assert_all_trained(killed)
    assert (killed.starts, killed.out_of_memory) == (2, 1)
    (resume,) = resumes(killed)
    assert isinstance(resume, ArenaReused)
    wait_gone(processes, 5.0)


@pytest.mark.thorough
def test_a_killed_job_of_which_nothing_is_left_begins_anew(host: Host) -> None:
    """The job's arena is kept for 0 s, and there is no checkpoint. The test stops the dispatcher until the arena is
    removed, because a resume at once could still find it."""
    submit(host, write_job(host.place, "anew", SLOW, keep_s=0))
    supervisor = host.wait_trained("anew").supervisor_pid
    processes = below(supervisor)
    os.kill(host.process.pid, signal.SIGSTOP)
    try:
        os.kill(supervisor, signal.SIGKILL)
        host.wait(lambda: all(map(is_over, processes)))
    finally:
        os.kill(host.process.pid, signal.SIGCONT)
    hurry(host.place, "anew")
    anew = host.wait_state("anew", "done", "failed")
    assert_all_trained(anew)
    assert Path(f"{anew.run_dir}.1").is_dir(), "the old run directory must be kept"


def test_a_killed_fork_server_is_replaced_and_no_job_notices(host: Host) -> None:
    submit(host, write_job(host.place, "before", SLOW))
    host.wait_trained("before")
    children = psutil.Process(host.process.pid).children()
    servers = [child for child in children if child.pid != host.wait_trained("before").supervisor_pid]
    for server in servers:
        server.kill()
    wait_gone(servers, 5.0)
    submit(host, write_job(host.place, "after", SLOW))
    hurry(host.place, "before", "after")
    for name in ("before", "after"):
        job = host.wait_state(name, "done", "failed")
        assert_all_trained(job)
        assert job.starts == 1


def resumes(job: JobStatus) -> list[Event]:
    """The events of each resume of the job's run (its source, arenas that were not used), in order."""
    return events(job, ArenaReused, ArenaRejected, StartedFromCheckpoint)


def replies_to(run: RunStatus, command: LendMsg) -> list[Reply]:
    """Sends a command to a run; returns all replies up to the final one."""
    client = CommandClient(run.commands)
    found: list[Reply] = []
    try:
        client.send(command)
        while not found or isinstance(found[-1], AcceptedMsg):
            reply = client.receive(LIMIT_S)
            assert reply is not None
            found.append(reply)
    finally:
        client.close()
    return found


def test_a_run_takes_what_it_is_lent_while_it_trains(host: Host) -> None:
    cores = tuple(sorted(os.sched_getaffinity(0)))
    submit(host, write_job(host.place, "lent", SLOW, **FOREVER))
    run = host.wait_trained("lent")
    assert run.plan.workers == 1
    grown = replies_to(run, LendMsg(cores=cores, workers=2))
    assert [type(one) for one in grown] == [AcceptedMsg, ReachedMsg]
    shrunk = replies_to(run, LendMsg(cores=cores[:1]))
    assert isinstance(shrunk[-1], ReachedMsg), shrunk
    status = host.wait(lambda: ((now := host.run("lent")) and now.plan.workers == 2 and now) or None)
    workers = [one for one in status.processes if one.role == "worker"]
    assert len(workers) == 2
    for worker in workers:
        assert os.sched_getaffinity(worker.pid) == {cores[0]}
    assert replies_to(run, LendMsg(cores=cores[:1])) == [ReachedMsg("the plan does not change")]
    lower = 900 << 20
    assert isinstance(replies_to(run, LendMsg(memory_bytes=lower))[-1], ReachedMsg)
    job = host.job("lent")
    assert len(events(job, PlanReached)) == (2 if len(cores) > 1 else 1)
    assert events(job, ProcessRepinned) or len(cores) == 1
    assert MemoryBudgetLent(lower) in events(job, MemoryBudgetLent), "the journal must have every decision"
    assert host.job("lent").starts == 1


def test_three_jobs_at_once_are_all_done(folder: Path) -> None:
    names = ("one", "two", "three")
    host = Host.batch(folder, *(write_job(folder, name, SLOW) for name in names))
    for name in names:
        host.wait_trained(name)  # all jobs train at one moment, because none is done so soon
    hurry(folder, *names)
    code, errors = host.finish()
    assert code == 0, errors
    status = host.status()
    assert status is not None and status.state == "ended"
    for name in names:
        job = host.job(name)
        assert_all_trained(job)
        assert job.test_auc is not None and job.test_auc > 0.55
        assert job.peak_bytes > 0
        assert result(job)["peak_workers"] == 1, "the size at its peak"
        assert (job.starts, job.out_of_memory, job.exit_code) == (1, 0, 0)
    assert status.charged_bytes == 0
    moments = read_timeline(host.directory / "timeline.db")
    assert {moment.job for moment in moments} == set(names)
    at_once = [{one.job for one in moments if one.elapsed_s == moment.elapsed_s} for moment in moments]
    assert set(names) in at_once
    assert json.loads((host.directory / "queue.json").read_text()) == []
    assert run_command_line(["top", "--once", str(host.directory)]) == 0


@pytest.mark.thorough
def test_ctrl_c_once_saves_all_and_resume_goes_on(folder: Path) -> None:
    jobs = [write_job(folder, name, SLOW) for name in ("one", "two")]
    waits = write_job(folder, "waits")
    host = Host(
        folder, "run", *jobs, waits, "--run-dir", "host", "--dashboard", "no", "--policy", "fifo",
        "--policy-set", "most_jobs=2",
    )  # fmt: skip
    for name in ("one", "two"):
        host.wait_trained(name, 5000)
    host.process.send_signal(signal.SIGINT)
    code, errors = host.finish()
    assert code == 75, errors
    stopped = {job.job: job for job in read_host(host.directory).jobs}
    assert {job.state for job in stopped.values()} == {"stopped"}
    for name in ("one", "two"):
        kept = latest(Path(stopped[name].run_dir) / "checkpoints")
        assert kept is not None and kept.manifest.samples_trained == stopped[name].samples_trained >= 5000
    hurry(folder, "one", "two")
    again = Host.resumed(folder)
    code, errors = again.finish()
    assert code == 0, errors
    for name in ("one", "two", "waits"):
        assert_all_trained(again.job(name))
    assert len(events(again.job("one"), RunStarted)) == 2


@pytest.mark.thorough
def test_ctrl_c_twice_kills_and_resume_still_continues(folder: Path) -> None:
    host = Host.batch(folder, *(write_job(folder, name, SLOW) for name in ("one", "two")))
    for name in ("one", "two"):
        host.wait_trained(name, 1000)
    processes = below(host.process.pid)
    os.kill(host.pid("one", "worker-0"), signal.SIGSTOP)  # it will not drain
    host.process.send_signal(signal.SIGTERM)
    host.wait(lambda: host.events(HostStopping))
    host.process.send_signal(signal.SIGINT)
    code, errors = host.finish()
    assert code == 75, errors
    wait_gone(processes, 8.0)
    hurry(folder, "one", "two")
    again = Host.resumed(folder)
    code, errors = again.finish()
    assert code == 0, errors
    for name in ("one", "two"):
        assert_all_trained(again.job(name))


@pytest.mark.thorough
def test_a_killed_dispatcher_takes_all_with_it_and_resume_goes_on(folder: Path) -> None:
    """One job still has its arena, one has only a checkpoint, one has neither, one was never started, one is done."""
    jobs = [
        write_job(folder, "arena", SLOW, rows=80_000, keep_s=60),
        write_job(folder, "saved", SLOW, rows=80_000, keep_s=0, every_s=0.5),
        write_job(folder, "bare", SLOW, rows=80_000, keep_s=0),
        write_job(folder, "done", rows=8192),
        write_job(folder, "broken", BROKEN),
    ]
    host = Host.batch(folder, *jobs)
    host.wait_state("done", "done")
    host.wait_state("broken", "failed")
    host.wait(lambda: json.loads((host.directory / "queue.json").read_text())[-1]["request"]["job"] == "bare")
    for name in ("arena", "saved", "bare"):
        host.wait_trained(name, 5000)
    host.wait(lambda: events(host.job("saved"), CheckpointWritten))
    run = host.wait_trained("arena")
    known = {one.pid for one in run.processes}
    reapers = [child for child in psutil.Process(run.supervisor_pid).children() if child.pid not in known]
    processes = below(host.process.pid)
    host.process.kill()
    host.finish()
    wait_gone([one for one in processes if one not in reapers], 5.0)
    assert [one.is_running() for one in reapers] == [True], "the arena reaper keeps the arena for a resume"
    hurry(folder, "arena", "saved", "bare")
    again = Host.resumed(folder)
    code, errors = again.finish()
    assert code == 1, errors  # one job has failed before
    assert_all_trained(again.job("done"), 8192)
    assert "too few towers" in again.job("broken").why
    assert run_command_line(["report", str(host.directory)]) == 0
    for name in ("arena", "saved", "bare"):
        assert_all_trained(again.job(name), 80_000)
    assert isinstance(resumes(again.job("arena"))[0], ArenaReused)
    assert any(event.checkpoint.startswith("step-") for event in events(again.job("saved"), StartedFromCheckpoint))
    assert events(again.job("bare"), ArenaReused, StartedFromCheckpoint) == []
    wait_gone(reapers, 5.0)


# Two workers of this emulated job wait for their single PS; its tuner proposes more PS, which need no more cores.
SERVED = """
[job]
name = "served"
seed = 7
[model]
build = "elastichost.models:dlrm"
[data]
format = "synthetic"
synthetic = {{ rows = 8192, test_rows = 1, tables = 1, unit_rows = 4096 }}
[train]
batch_size = 2048
epochs = {epochs}
[resources]
workers = [2, 4]
servers = [1, 4]
[tuner]
block_s = 1.0
[supervision]
keep_arena_s = 60
[emulate]
enabled = true
scenario = "server_bound"
"""


def served(place: Path, epochs: int) -> str:
    path = place / "served.toml"
    path.write_text(SERVED.format(epochs=epochs))
    return str(path)


def granted(host: Host) -> ProposalGranted:
    """Waits until the dispatcher has granted what the job's own tuner proposed, and the run has carried it out."""
    host.wait(lambda: (job := host.find("served")) and job.run_dir and Path(job.run_dir, "journal.jsonl").exists())
    job = host.job("served")
    (grant, *_) = host.wait(lambda: events(job, ProposalGranted))
    assert grant.configuration.servers > 1
    host.wait(lambda: (run := host.run("served")) is not None and run.plan.servers == grant.configuration.servers)
    return grant


def test_a_job_s_own_tuner_proposes_and_the_dispatcher_grants(host: Host) -> None:
    submit(host, served(host.place, 100_000))
    grant = granted(host)
    shared = [event for event in host.events(JobShared, "served") if event.size == str(grant.configuration)]
    assert shared and "its own tuner proposes it" in shared[0].reason
    host.wait(lambda: host.job("served").servers == grant.configuration.servers)
    assert any(event.is_proposal for event in events(host.job("served"), TunerDecided))
    stale = LendMsg(workers=2, servers=1, worker_cores=1, is_proposal=True)
    (refused,) = replies_to(host.wait_trained("served"), stale)
    assert isinstance(refused, RefusedMsg) and "does not propose" in refused.message
    assert host.job("served").state == "running"


@pytest.mark.thorough
@pytest.mark.timeout(240)
@pytest.mark.parametrize("victim", ["dispatcher", "job"])
def test_a_kill_after_a_grant_loses_no_sample(folder: Path, victim: str) -> None:
    epochs = 700  # a minute and more with one PS: long enough that the tuner proposes more, on a noisy machine too
    host = Host.batch(folder, served(folder, epochs), write_job(folder, "other", rows=8192))
    granted(host)
    run = host.wait_trained("served")
    processes = below(host.process.pid)
    os.kill(host.process.pid if victim == "dispatcher" else run.supervisor_pid, signal.SIGKILL)
    if victim == "dispatcher":
        host.finish()
        host = Host.resumed(folder)
    code, errors = host.finish()
    assert code == 0, errors
    assert_all_trained(read_job(host, "served"), epochs * 8192)
    wait_gone(processes, 70.0)


def read_job(host: Host, name: str) -> JobStatus:
    """The last status of a job of a dispatcher that has ended."""
    return next(job for job in read_host(host.directory).jobs if job.job == name)


@pytest.mark.thorough
def test_a_paused_job_ends_with_the_dispatcher(folder: Path) -> None:
    """The job is paused as by feedback: all its processes are stopped when the dispatcher is killed."""
    host = Host.batch(folder, write_job(folder, "still", SLOW, **FOREVER), write_job(folder, "other", SLOW, **FOREVER))
    run = host.wait_trained("still")
    host.wait_trained("other")
    processes = below(host.process.pid)
    for one in below(run.supervisor_pid):
        one.suspend()
    host.process.kill()
    host.finish()
    wait_gone(processes, 10.0)


@pytest.mark.thorough
def test_a_job_with_a_wrong_memory_estimate_is_contained(folder: Path) -> None:
    """The job is evicted or killed, runs again alone, and fails with the reason; the other job is done."""
    host = Host.batch(
        folder,
        # On a busy machine it allocates its memory for seconds within one batch.
        write_job(folder, "liar", LIAR, keep_s=0, hang_timeout_s=60),
        write_job(folder, "honest", SLOW, rows=100_000),
        memory="1200MiB",
    )
    host.wait(lambda: host.events(JobRequeued, "liar"))
    hurry(folder, "honest")
    code, errors = host.finish()
    assert code == 1, errors
    liar, honest = host.job("liar"), host.job("honest")
    assert_all_trained(honest, 100_000)
    assert (honest.starts, honest.out_of_memory) == (1, 0)
    assert not {"pause", "evict"} & {event.action for event in host.events(JobTended, "honest")}
    assert (liar.state, liar.out_of_memory) == ("failed", 2)
    assert "though it ran alone" in liar.why
    (done,) = host.lines(JobDone)
    assert done.event.subject == "honest"
    starts = [line.monotonic_s for line in host.lines(JobStarted) if line.event.subject == "liar"]
    assert starts[0] < done.monotonic_s < starts[1], "the second start must be after the other job"
