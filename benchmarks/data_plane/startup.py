"""Starts the arms of a case, and stops each arm as soon as it trains."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.data_plane.lineup import Entry, Launcher
from benchmarks.data_plane.process_arm import ProcessArm
from benchmarks.data_plane.rounds import Progress
from benchmarks.harness.interleave import ArmFailedError

__all__ = ["Startup"]

READY_BATCHES = 5  # the first batches are slow, because they touch pages and choose algorithms
START_TIMEOUT_S = 180.0


class Startup:
    """Starts the arms of one case. `begun`: all arms that were started; the caller closes them, whatever happens."""

    def __init__(self, launcher: Launcher, batch_size: int, progress: Progress) -> None:
        self._launcher, self._batch_size, self._progress = launcher, batch_size, progress
        self.begun: list[ProcessArm] = []

    def start(self, arms: Mapping[str, Entry]) -> list[ProcessArm]:
        """Starts the arms and stops each as soon as it trains; returns the arms that train, in order.

        All arms start together, except arms with threads that spin while they wait for one another: these start last,
        one after another.
        """
        # a fork waits for the imports of the peer host, so arms without it start first
        together = sorted((name for name in arms if not arms[name].spins), key=lambda name: arms[name].kind == "forked")
        ready: list[ProcessArm] = []
        for names in (together, *([name] for name in arms if arms[name].spins)):
            begun: list[ProcessArm] = []
            for name in names:
                try:
                    begun.append(self._launcher.start(name, arms[name]))
                except (ArmFailedError, OSError) as error:
                    self._progress.failed(name, error)
            self.begun.extend(begun)
            ready.extend(self._wait_ready(begun))
        return [arm for name in arms for arm in ready if arm.name == name]

    def close(self) -> None:
        """Ends every process of every arm that was started."""
        for arm in self.begun:
            arm.close()

    def _wait_ready(self, arms: Sequence[ProcessArm]) -> Iterator[ProcessArm]:
        waiting = list(arms)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while waiting:
            for arm in list(waiting):
                try:
                    if not self._is_ready(arm, deadline_s):
                        continue
                    yield arm
                except ArmFailedError as error:
                    arm.close()
                    self._progress.failed(arm.name, error)
                waiting.remove(arm)
            time.sleep(0.02)

    def _is_ready(self, arm: ProcessArm, deadline_s: float) -> bool:
        """Whether the arm trains; if so, it is stopped. Raises ArmFailedError if the arm has failed or is too late."""
        arm.check()
        if arm.samples() < READY_BATCHES * self._batch_size:
            if time.monotonic() > deadline_s:
                raise ArmFailedError(f"the arm did not train within {START_TIMEOUT_S:.0f} s")
            return False
        arm.settle()
        arm.pause()
        self._progress.say(f"{arm.name} trains, after {sum(arm.cpu_s().values()):.1f} s of CPU time")
        return True
