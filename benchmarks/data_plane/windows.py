"""Measures windows of one arm's training while all other arms are stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from benchmarks.data_plane.figures import MeasuredWindow, Window, least_disturbed
from benchmarks.harness.interleave import ArmFailedError
from benchmarks.harness.processes import busy_s

__all__ = ["Arm", "WindowSettings", "least_disturbed_window", "measure_window", "window_of"]

POLL_S = 0.005
POLLS_PER_CHECK = 40  # a check of all processes costs more than reading a counter
STUCK_S = 60.0


class Arm(Protocol):
    """A tree of processes that trains and can be stopped and resumed."""

    @property
    def name(self) -> str: ...

    def resume(self) -> None:
        """Resumes all processes. Raises ArmFailedError if one of them has ended."""

    def pause(self) -> None: ...

    def samples(self) -> int:
        """Samples trained so far, read from shared memory."""

    def cpu_s(self) -> Mapping[str, float]:
        """CPU seconds so far, by role."""

    def check(self) -> None:
        """Raises ArmFailedError if one of its processes has ended."""


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """A window of `window_s` seconds begins `settle_s` after the arm is resumed. `repeats`: of a disturbed window."""

    window_s: float
    settle_s: float = 0.3
    repeats: int = 3


def least_disturbed_window(arm: Arm, number: int, settings: WindowSettings) -> MeasuredWindow:
    """Measures the window of round `number`, again if it is disturbed. Raises ArmFailedError."""
    windows: list[Window] = []
    while len(windows) <= settings.repeats:
        windows.append(measure_window(arm, number, settings.window_s, settings.settle_s))
        if not windows[-1].is_disturbed:
            break
    return MeasuredWindow(least_disturbed(windows), len(windows) - 1)


def window_of(arm: Arm, settings: WindowSettings) -> Callable[[int], MeasuredWindow]:
    """The function that measures the window of a round, for `interleave`."""
    return lambda number: least_disturbed_window(arm, number, settings)


def measure_window(arm: Arm, number: int, window_s: float, settle_s: float) -> Window:
    """Measures from one change of the arm's counter to the first change at least `window_s` later, so that no batch is
    cut. Raises ArmFailedError."""
    try:
        arm.resume()
        _sleep_until(time.monotonic() + settle_s, arm)
        first = _next_change(arm)
        _sleep_until(first.now_s + window_s, arm)
        last = _next_change(arm)
    finally:
        arm.pause()
    seconds = last.now_s - first.now_s
    cpu_s = {role: spent - first.cpu_s.get(role, 0.0) for role, spent in last.cpu_s.items()}
    foreign_s = last.busy_s - first.busy_s - sum(cpu_s.values()) - (last.own_s - first.own_s)
    share = max(0.0, foreign_s) / (seconds * (os.cpu_count() or 1))
    return Window(arm.name, number, last.samples - first.samples, seconds, cpu_s, share)


@dataclass(frozen=True, slots=True)
class _Instant:
    now_s: float
    samples: int
    cpu_s: Mapping[str, float]
    busy_s: float
    own_s: float


def _next_change(arm: Arm) -> _Instant:
    before, polls = arm.samples(), 0
    deadline_s = time.monotonic() + STUCK_S
    while (samples := arm.samples()) == before:
        polls += 1
        if polls % POLLS_PER_CHECK == 0:
            arm.check()
            if time.monotonic() > deadline_s:
                raise ArmFailedError(f"no sample was trained in {STUCK_S:.0f} s")
        time.sleep(POLL_S)
    now_s = time.monotonic()
    return _Instant(now_s, samples, arm.cpu_s(), busy_s(), time.process_time())


def _sleep_until(deadline_s: float, arm: Arm) -> None:
    while (left_s := deadline_s - time.monotonic()) > 0:
        time.sleep(min(left_s, POLL_S * POLLS_PER_CHECK))
        arm.check()
