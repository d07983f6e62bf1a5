"""Which signals ask a process to stop, and which ask for the end at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from elastichost.errors import ExitCode
from elastichost.host.stop_signals import StopSignals

INTERRUPT, TERMINATION, QUIT = signal.SIGINT, signal.SIGTERM, signal.SIGQUIT


@pytest.mark.parametrize(
    ("sent", "count", "last"),
    [
        ((INTERRUPT,), 1, INTERRUPT),
        ((TERMINATION,), 1, TERMINATION),
        ((INTERRUPT, INTERRUPT), 2, INTERRUPT),
        ((TERMINATION, INTERRUPT), 2, INTERRUPT),
        ((TERMINATION, TERMINATION), 1, TERMINATION),
        ((INTERRUPT, TERMINATION), 1, INTERRUPT),
        ((QUIT,), 2, QUIT),
        ((QUIT, TERMINATION), 2, QUIT),
    ],
)
def test_another_interrupt_is_counted_and_a_quit_counts_twice(sent: tuple[int, ...], count: int, last: int) -> None:
    with StopSignals() as signals:
        for number in sent:
            signal.raise_signal(number)
        assert (signals.count, signals.last) == (count, last)


def test_the_handlers_from_before_come_back() -> None:
    numbers = (TERMINATION, INTERRUPT, QUIT)
    before = [signal.getsignal(number) for number in numbers]
    with StopSignals():
        assert not set(map(signal.getsignal, numbers)) & set(before)
    assert [signal.getsignal(number) for number in numbers] == before


def test_the_exit_code_tells_the_last_signal() -> None:
    with StopSignals() as signals:
        signal.raise_signal(TERMINATION)
        assert signals.exit_code == ExitCode.TERMINATED
        signal.raise_signal(INTERRUPT)
        assert signals.exit_code == ExitCode.INTERRUPTED


IGNORES = """
import os, signal, subprocess, sys, time
from elastichost.host.stop_signals import ignore_termination
ignore_termination()
os.kill(os.getpid(), signal.SIGTERM)
reading, writing = os.pipe()
pid = os.fork()
if pid == 0:
    os.write(writing, b"1")
    while True:
        time.sleep(0.1)
os.read(reading, 1)
os.kill(pid, signal.SIGTERM)
forked = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
waits = "import signal; print(flush=True); signal.pause()"
started = subprocess.Popen([sys.executable, "-c", waits], stdout=subprocess.PIPE)
started.stdout.readline()
started.terminate()
print(forked, started.wait())
"""


def test_a_process_ignores_termination_and_what_it_starts_does_not() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IGNORES], stdout=subprocess.PIPE, text=True, timeout=30, check=True, env=os.environ
    )
    assert done.stdout.split() == [str(-TERMINATION)] * 2
