"""Fork servers that are forked instead of started. They behave like a `Popen`; a parent with threads never forks."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from elastichost.supervisor.launch import servers
from elastichost.supervisor.launch.servers import ForkedServer, begin_anew, end_with, fork_or_start


def forked(run: Callable[[], object]) -> ForkedServer:
    """A forked child that calls `run` and ends."""
    pid = os.fork()
    if pid == 0:
        end_with(run)
    return ForkedServer(pid)


def leave(code: object) -> None:
    """Ends the process, as `sys.exit` does."""
    raise SystemExit(code)


@pytest.mark.parametrize(
    ("run", "code"),
    [
        (lambda: None, 0),
        (lambda: 7, 0),
        (lambda: leave(5), 5),
        (lambda: leave(None), 0),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), -signal.SIGTERM),
    ],
)
def test_wait_returns_the_exit_code_of_the_child(run: Callable[[], object], code: int) -> None:
    server = forked(run)
    assert server.wait(20.0) == code
    assert server.wait() == code, "a second poll must give the same code"
    server.kill()  # another process may have its pid by now


def test_an_exception_ends_the_child_with_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    assert forked(lambda: [][1]).wait(20.0) == 1
    assert "IndexError" in capfd.readouterr().err


def test_waiting_has_a_timeout_and_the_child_can_be_killed() -> None:
    server = forked(signal.pause)
    with pytest.raises(subprocess.TimeoutExpired):
        server.wait(0.01)
    server.kill()
    assert server.wait(20.0) == -signal.SIGKILL


def test_a_child_has_no_signal_handlers_and_descriptors_of_its_parent(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    other = os.open(os.devnull, os.O_RDONLY)

    def look() -> None:
        begin_anew(keep=(writing,), stderr=os.open(tmp_path / "stderr", os.O_CREAT | os.O_WRONLY))
        facts = (
            signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
            signal.getsignal(signal.SIGINT) is signal.default_int_handler,
            Path(f"/proc/self/fd/{writing}").exists(),
            not Path(f"/proc/self/fd/{other}").exists(),
            os.readlink("/proc/self/fd/1") == os.devnull,
            os.readlink("/proc/self/fd/2") == str(tmp_path / "stderr"),
        )
        os.write(writing, bytes(facts))

    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        assert forked(look).wait(20.0) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert os.read(reading, 10) == bytes([1] * 6)
    for descriptor in (reading, writing, other):
        os.close(descriptor)


def test_a_parent_with_several_threads_starts_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "fork_a_server", lambda *_: "forked")
    monkeypatch.setattr(servers, "start_fork_server", lambda *_: "started")

    def way() -> int:
        """Exit code 10 for a fork, 20 for a start."""
        made = fork_or_start(None, None)  # type: ignore[arg-type]
        return 10 if made == "forked" else 20  # type: ignore[comparison-overlap]

    assert forked(lambda: leave(way())).wait(20.0) == 10, "a forked process has one thread"

    def with_second_thread() -> None:
        end = threading.Event()
        thread = threading.Thread(target=end.wait)
        thread.start()
        code = way()
        end.set()
        thread.join()
        leave(code)

    assert forked(with_second_thread).wait(20.0) == 20
