"""The workshop of a benchmark: no process and no directory remains, however the benchmark ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.harness.processes import is_running
from benchmarks.harness.workshop import Workshop

ROOT = Path(__file__).parents[3]
# A benchmark that prints its directories and has a stopped process in another session.
PROGRAM = """
import os, signal, subprocess, time
from benchmarks.harness.workshop import Workshop
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process started in the background ignores SIGINT
with Workshop() as shop:
    child = subprocess.Popen(["sleep", "1000"], env=shop.environment(), start_new_session=True)
    os.kill(child.pid, signal.SIGSTOP)
    print(child.pid, shop.disk, shop.memory, flush=True)
    time.sleep(1000)
"""


def test_processes_and_directories_are_gone_after_the_workshop() -> None:
    with Workshop() as shop:
        child = subprocess.Popen(["sleep", "1000"], env=shop.environment(), start_new_session=True)
        Path(shop.environment()["ELASTICHOST_ARENA_DIR"], "rows").write_bytes(b"1")
        assert (shop.memory / "rows").exists()
    assert not is_running(child.pid)
    child.wait()
    assert not shop.disk.exists()
    assert not shop.memory.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_no_process_and_no_directory(number: signal.Signals) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, env=environment, text=True)
    assert program.stdout is not None
    pid, *directories = program.stdout.readline().split()
    program.send_signal(number)
    assert program.wait() != 0
    deadline_s = time.monotonic() + 10  # after SIGKILL the watcher cleans up a moment later
    while (is_running(int(pid)) or any(map(os.path.exists, directories))) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert not is_running(int(pid))
    assert not [directory for directory in directories if os.path.exists(directory)]
