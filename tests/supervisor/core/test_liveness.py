"""When a silent process counts as hung: the rule, its inputs, and the kernel states of real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.plan import ProcessId, ProcessSpec
from elastichost.supervisor.controllers.liveness import SilenceWatch
from elastichost.supervisor.core.fleet import Fleet, ProcessRecord
from elastichost.supervisor.core.lifecycle import LifecycleEvent
from elastichost.supervisor.core.liveness import IDLE_S, SILENCE_S, Signs, hang_reason
from elastichost.wire.control import HeartbeatMsg
from elastichost.wire.facts import StepSample

TIMEOUT_S = 10.0
WORKED = Signs(has_worked=True, longest_s=0.5)


def test_a_process_stopped_by_a_signal_counts_as_hung_soon() -> None:
    for has_worked in (False, True):
        signs = Signs(state="T", has_worked=has_worked)
        assert "stopped by a signal" in hang_reason(SILENCE_S + 0.1, signs, TIMEOUT_S)
        assert hang_reason(SILENCE_S - 0.1, signs, TIMEOUT_S) == ""


def test_a_sleeping_process_that_has_worked_counts_as_hung_soon() -> None:
    asleep = Signs("S", idle_s=IDLE_S, longest_s=0.5, has_worked=True)
    assert "sleeps" in hang_reason(SILENCE_S + 0.1, asleep, TIMEOUT_S)
    assert hang_reason(SILENCE_S - 0.1, asleep, TIMEOUT_S) == ""


@pytest.mark.parametrize(
    "signs",
    [
        Signs("R", idle_s=0.0, longest_s=0.5, has_worked=True),  # computes
        Signs("D", idle_s=5.0, longest_s=0.5, has_worked=True),  # it reads a page from the disk
        Signs("S", idle_s=0.2, longest_s=0.5, has_worked=True),  # another of its threads computes
        Signs("S", idle_s=5.0, longest_s=2.0, has_worked=True),  # its batches take this long
        Signs("S", idle_s=5.0, longest_s=0.0, has_worked=False),  # its first batch compiles in other processes
        Signs("t", idle_s=5.0, longest_s=0.5, has_worked=True),  # a user inspects it in a debugger
    ],
)
def test_a_process_that_may_be_at_work_is_not_hung_before_the_timeout(signs: Signs) -> None:
    assert hang_reason(TIMEOUT_S - 0.1, signs, TIMEOUT_S) == "" or signs.longest_s == 2.0
    assert hang_reason(6.0, signs, TIMEOUT_S) == ""


def test_the_timeout_applies_to_every_process_and_grows_with_its_longest_batch() -> None:
    assert hang_reason(10.1, WORKED, TIMEOUT_S)
    slow = Signs("R", longest_s=6.0, has_worked=True)
    assert hang_reason(23.9, slow, TIMEOUT_S) == ""
    assert hang_reason(24.1, slow, TIMEOUT_S)
    first = Signs("R")
    assert hang_reason(29.9, first, TIMEOUT_S) == ""
    assert hang_reason(30.1, first, TIMEOUT_S)


@given(
    st.builds(Signs, st.sampled_from(["", "R", "S", "D", "T", "t"]), *[st.floats(0, 100)] * 2, st.booleans()),
    st.floats(0, 1000),
    st.floats(0.5, 100),
)
def test_a_longer_silence_stays_a_hang_and_a_short_one_is_not(signs: Signs, silent_s: float, timeout_s: float) -> None:
    reason = hang_reason(silent_s, signs, timeout_s)
    if silent_s <= min(SILENCE_S, timeout_s):
        assert reason == ""
    if reason:
        assert hang_reason(silent_s + 1.0, signs, timeout_s)
    if silent_s > max(3 * timeout_s, 4 * signs.longest_s):
        assert reason


def beat(progress: int, steps: int = 0) -> HeartbeatMsg:
    """A heartbeat."""
    return HeartbeatMsg(progress, StepSample(steps=steps))


def test_the_longest_silence_is_counted_from_the_first_work_on() -> None:
    fleet = Fleet()
    record = fleet.request(ProcessId("worker", 0, 1), ProcessSpec("worker", 0, (0,), 1), 0.0)
    fleet.heartbeat(record, beat(1), 5.0)
    assert record.signs == Signs()
    fleet.heartbeat(record, beat(2, steps=1), 20.0)  # the first batch: compiled, touched every page
    assert record.signs == Signs(has_worked=True)
    fleet.heartbeat(record, beat(3, steps=9), 20.5)
    fleet.heartbeat(record, beat(4, steps=1), 23.0)
    fleet.heartbeat(record, beat(5, steps=9), 23.5)
    assert record.signs == Signs(has_worked=True, longest_s=2.5)
    fleet.extend_deadlines(7.0)  # the supervisor itself was stopped
    fleet.heartbeat(record, beat(6, steps=9), 31.0)
    assert record.signs.longest_s == 2.5


# --- states of the kernel -----------------------------------------------------------------------------------------

Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts Python processes that run the given code; they are killed at the end."""
    children: list[subprocess.Popen[bytes]] = []

    def begin(code: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen([sys.executable, "-c", f"print(1, flush=True); {code}"], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        children.append(child)
        return child

    yield begin
    for child in children:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def record_of(fleet: Fleet, pid: int, gpu: int | None = None) -> ProcessRecord:
    """The record of a worker with this pid, in the fleet."""
    spec = ProcessSpec("worker", 0, (0,), 1, gpu)
    record = fleet.request(ProcessId("worker", 0, 1), spec, 0.0)
    record.pid = pid
    fleet.apply(record, LifecycleEvent.SPAWNED, 0.0)
    return record


def watch_until(record: ProcessRecord, fleet: Fleet, is_it: Callable[[Signs], bool]) -> Signs:
    """Reads the kernel state of the processes until `is_it` is true for the record's signs. Returns the signs."""
    watch, deadline_s = SilenceWatch(), time.monotonic() + 20.0
    began_s = time.monotonic()
    while not is_it(record.signs):
        assert time.monotonic() < deadline_s, record.signs
        watch.look(fleet, 10.0 + time.monotonic() - began_s)
        time.sleep(0.01)
    return record.signs


def test_sleeping_busy_and_stopped_processes_are_distinguished(start: Start) -> None:
    fleet = Fleet()
    asleep = watch_until(record_of(fleet, start("import time; time.sleep(60)").pid), fleet, lambda s: s.idle_s > 0.5)
    assert asleep.state == "S"
    busy = start("\nwhile True: pass")
    record = record_of(fleet, busy.pid)
    for _ in range(3):
        watch_until(record, fleet, lambda s: s.state == "R")
    os.kill(busy.pid, signal.SIGSTOP)
    assert watch_until(record, fleet, lambda s: s.state == "T").state == "T"


def test_a_sleeping_process_with_a_gpu_may_be_at_work(start: Start) -> None:
    fleet = Fleet()
    record = record_of(fleet, start("import time; time.sleep(60)").pid, gpu=0)
    assert watch_until(record, fleet, lambda s: s.idle_s > 0.5).state == "D"


def test_no_signs_are_read_of_processes_that_make_progress_or_have_ended(start: Start) -> None:
    fleet, watch = Fleet(), SilenceWatch()
    child = start("import time; time.sleep(60)")
    record = record_of(fleet, child.pid)
    watch.look(fleet, 0.9)
    assert record.signs == Signs()
    child.kill()
    child.wait()
    watch.look(fleet, 5.0)
    assert record.signs == Signs()
