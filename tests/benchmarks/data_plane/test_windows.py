"""Windows of real processes that are resumed and stopped in turn."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.data_plane import windows
from benchmarks.data_plane.figures import MeasuredWindow
from benchmarks.data_plane.process_arm import ProcessArm
from benchmarks.data_plane.windows import WindowSettings, least_disturbed_window
from benchmarks.harness.interleave import Measurement, Rounds, interleave
from benchmarks.harness.processes import is_running, tree_of
from benchmarks.peers.common import Counter, PeerMode

ROOT = Path(__file__).parents[3]
Start = Callable[..., ProcessArm]
BRIEF = WindowSettings(window_s=0.1, settle_s=0.02, repeats=0)
TWO_ROUNDS = Rounds(2, is_shuffled=True)


def measured_rounds(
    arms: Sequence[ProcessArm], rounds: Rounds = TWO_ROUNDS, settings: WindowSettings = BRIEF
) -> list[Measurement[MeasuredWindow]]:
    def window_of(arm: ProcessArm) -> Callable[[int], MeasuredWindow]:
        return lambda number: least_disturbed_window(arm, number, settings)

    return list(interleave({arm.name: window_of(arm) for arm in arms}, rounds))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A function that starts a counting process, waits until it counts, and stops it."""
    arms: list[ProcessArm] = []

    def begin(name: str, batch: int, fails_after: int = -1) -> ProcessArm:
        counter = Counter.create(tmp_path / name, PeerMode(1))
        log = tmp_path / f"{name}.log"
        command = [
            sys.executable,
            "-m",
            "tests.benchmarks.data_plane.counting_process",
            str(tmp_path / name),
            str(batch),
        ]
        with log.open("wb") as output:
            child = subprocess.Popen([*command, str(fails_after)], cwd=ROOT, stdout=output, stderr=output)
        arm = ProcessArm(name, child.pid, counter.total, log, child=child)
        arms.append(arm)
        while counter.total() < 2 * batch:
            arm.check()
            time.sleep(0.005)
        arm.settle()
        arm.pause()
        return arm

    yield begin
    for arm in arms:
        arm.close()
    assert not [process for process in tree_of(os.getpid()) if process.name == "worker-0"]


def test_every_arm_has_a_window_in_every_round_and_is_stopped_in_between(start: Start) -> None:
    arms = [start("slow", 10), start("fast", 1000)]
    measured = measured_rounds(arms)
    assert sorted((one.arm, one.round) for one in measured) == [("fast", 0), ("fast", 1), ("slow", 0), ("slow", 1)]
    windows = {one.arm: one.found.window for one in measured if one.found is not None}
    assert set(windows) == {"slow", "fast"}
    assert windows["fast"].samples % 1000 == 0
    assert windows["fast"].seconds >= BRIEF.window_s
    assert windows["fast"].samples_per_s > 5 * windows["slow"].samples_per_s
    assert set(windows["fast"].cpu_s) == {"worker"}
    deadline_s = time.monotonic() + 10.0  # a signal takes effect when its process gets a core
    while (states := {process.state for arm in arms for process in tree_of(arm.root)}) != {"T"}:
        assert time.monotonic() < deadline_s, states
        time.sleep(0.005)


def test_an_arm_that_dies_is_reported_with_its_last_lines_and_the_others_continue(start: Start) -> None:
    arms = [start("mortal", 10, fails_after=8), start("other", 10)]
    measured = measured_rounds(arms)
    failures = [one for one in measured if one.found is None]
    assert [one.arm for one in failures] == ["mortal"]
    assert "no more of this" in failures[0].failure
    assert [one.round for one in measured if one.arm == "other"] == [0, 1]


def test_a_disturbed_window_is_measured_again_a_few_times(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    # simulates other processes that use ten cores all the time
    monkeypatch.setattr(windows, "busy_s", lambda: 10 * time.monotonic())
    (measured,) = measured_rounds([start("only", 10)], Rounds(1), WindowSettings(0.02, settle_s=0.0, repeats=2))
    assert measured.found is not None
    assert measured.found.rejected == 2
    assert measured.found.window.is_disturbed


def test_a_round_that_would_end_too_late_does_not_begin(start: Start) -> None:
    rounds, brief = Rounds(5, deadline_s=time.monotonic(), least=2), WindowSettings(0.02, settle_s=0.0, repeats=0)
    assert [one.round for one in measured_rounds([start("only", 10)], rounds, brief)] == [0, 1]


def test_closing_ends_stopped_processes(start: Start) -> None:
    arm = start("only", 10)
    arm.close()
    assert not is_running(arm.root)
