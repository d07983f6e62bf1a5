"""The nice values of threads and of their session, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from elastichost.host.priority import give_way

needs_autogroup = pytest.mark.skipif(
    not Path("/proc/self/autogroup").exists(), reason="this kernel does not group processes by session"
)


@contextmanager
def a_session() -> Iterator[int]:
    """A process that leads a session of its own and waits."""
    ready, is_ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.write(is_ready, b"r")
        signal.pause()
        os._exit(0)
    os.close(is_ready)
    try:
        assert os.read(ready, 1) == b"r"
        yield pid
    finally:
        os.close(ready)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def group_of(pid: int) -> str:
    return Path(f"/proc/{pid}/autogroup").read_text(encoding="ascii").split()[-1]


def until_given(pid: int, nice: int) -> None:
    """Sets the nice value, and tries again while the kernel refuses another write."""
    while not give_way(pid, nice):
        pass


@needs_autogroup
def test_a_process_and_its_session_get_the_nice_value() -> None:
    with a_session() as pid:
        until_given(pid, 7)
        assert (os.getpriority(os.PRIO_PROCESS, pid), group_of(pid)) == (7, "7")


@needs_autogroup
def test_the_nice_value_of_a_session_can_be_lowered_again() -> None:
    with a_session() as pid:
        until_given(pid, 7)
        until_given(pid, 3)
        assert group_of(pid) == "3"


CHILD_OF_A_SESSION = """
import os
from elastichost.host.priority import begin_session, give_way_oneself

os.setsid()
give_way_oneself(4)
child = os.fork()
if not child:
    begin_session()
    print(os.getsid(0) == os.getpid(), open("/proc/self/autogroup").read().split()[-1], flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@needs_autogroup
def test_a_new_session_has_the_nice_value_of_the_old_one() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD_OF_A_SESSION], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "4"]


def test_a_process_that_has_ended_is_not_tried_again() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert give_way(pid, 5)
