"""What the loop of the dispatcher does where the disk is full, and what it keeps of ended jobs."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastichost.dispatcher.core.effects import KillJob, NoteEvent
from elastichost.dispatcher.directory import HostDirectory
from elastichost.dispatcher.facts import HostStatus
from elastichost.dispatcher.loop import HostLoop
from elastichost.runs.events import JobFailed, JobWarned
from elastichost.wire.commands import RefusedMsg, SubmitMsg
from tests.dispatcher.jobs import running

JOB = '[model]\nbuild = "a:b"\n[data]\nformat = "synthetic"\n'


def failing(number: int) -> Any:
    def fail(*_: object) -> None:
        raise OSError(number, "cannot write")

    return fail


def test_a_full_disk_does_not_end_the_dispatcher_when_a_job_ends() -> None:
    """Its end would kill every job."""
    HostLoop._keep_queue(SimpleNamespace(_write_queue=failing(errno.ENOSPC)))  # type: ignore[arg-type]
    with pytest.raises(OSError, match="cannot write"):
        HostLoop._keep_queue(SimpleNamespace(_write_queue=failing(errno.EACCES)))  # type: ignore[arg-type]


def test_a_job_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    loop: Any = SimpleNamespace(_asked_to_stop=0, _directory=HostDirectory(tmp_path, -1), submit=failing(errno.ENOSPC))
    reply = HostLoop._submitted(loop, SubmitMsg(name="a", toml=JOB, working_directory="/", weight=1.0))
    assert isinstance(reply, RefusedMsg) and "cannot write" in reply.message and not reply.is_usage


@pytest.mark.parametrize("is_batch", [False, True])
def test_only_a_dispatcher_that_runs_for_ever_forgets_ended_jobs(
    is_batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch needs them in its report, and its resume must not run them again."""
    monkeypatch.setattr("elastichost.dispatcher.loop.MOST_ENDED", 1)
    host, written, forgotten = running("a", "b", "c", "d"), list[HostStatus](), list[str]()
    for at_s, job in enumerate(("a", "b", "c")):
        host.end(job, 0, 10.0 + at_s)
    loop: Any = SimpleNamespace(
        _options=SimpleNamespace(ends_when_empty=is_batch, settings=SimpleNamespace(policy="fifo")),
        _crew=SimpleNamespace(busy=lambda: {"a"}, forget=forgotten.extend),
        _core=host.core,
        _directory=SimpleNamespace(path="/host"),
        _commands=SimpleNamespace(address="ipc:///x"),
        _isolation=SimpleNamespace(sentences=()),
        _state="running",
        _earlier=(),
        _elapsed_s=lambda: 20.0,
        _write=written.append,
        _on_status=lambda status: None,
    )
    HostLoop._report(loop)
    (status,) = written
    jobs = [job.job for job in status.jobs]
    if is_batch:
        assert (jobs, status.left_out, forgotten) == (["a", "b", "c", "d"], {}, [])
    else:
        assert (jobs, status.left_out, forgotten) == (["a", "c", "d"], {"done": 1}, ["b"])


def test_a_cancelled_job_that_still_saves_is_over_for_the_next_dispatcher() -> None:
    """A search whose dispatcher is killed then would train the trial once more, from its start."""
    host = running("a", "b", "c")
    host.end("c", 0, 5.0)
    host.core.cancel("a", 6.0)
    loop: Any = SimpleNamespace(_earlier=(), _core=host.core)
    loop._kept = lambda: HostLoop._kept(loop)
    assert host.job("a").state == "stopping"
    assert [one.request.job for one in loop._kept()] == ["b"]
    assert [(job.job, job.state) for job in HostLoop._over(loop)] == [("a", "cancelled"), ("c", "done")]


def test_the_arena_of_a_job_is_held_until_it_starts_or_fails() -> None:
    """A job may fail long after its examination: the host is too small for it. Its arena would occupy memory for as
    long as the dispatcher runs."""
    noted, released = list[object](), list[str]()
    held: Any = {job: (SimpleNamespace(release=lambda job=job: released.append(job)),) for job in "abc"}
    loop: Any = SimpleNamespace(_held=held, _note=noted.append, _performer=SimpleNamespace(perform=lambda effect: ()))
    loop._let_go = lambda *jobs: HostLoop._let_go(loop, *jobs)
    HostLoop._do(loop, (NoteEvent(JobWarned("a", "slow")), NoteEvent(JobFailed("b", "can never run here"))))
    HostLoop._do(loop, (KillJob("c"),))
    assert (released, list(held)) == (["b", "c"], ["a"])
    assert len(noted) == 2


def test_the_room_for_arenas_is_what_they_hold_and_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(tmp_path))
    monkeypatch.setattr("elastichost.arena.host.free_bytes", lambda path: 1000)
    arena = tmp_path / "elastichost-1-another"
    arena.mkdir()
    (arena / "rows").write_bytes(bytes(1 << 20))
    host = running("a")
    loop: Any = SimpleNamespace(
        _core=host.core,
        _crew=SimpleNamespace(pids={}),
        _clock=SimpleNamespace(now_s=lambda: 0.0),
        _watch=SimpleNamespace(look=lambda *_: ()),
    )
    HostLoop._observe(loop, 1.0)
    assert host.core._room.arena_bytes == (1 << 20) + 1000
