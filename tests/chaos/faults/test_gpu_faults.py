"""The fault of the process that keeps a model in memory of a GPU."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from elastichost.chaos.driver import ALL_FAULTS
from elastichost.chaos.faults.gpu_faults import KillHolder
from elastichost.chaos.faults.process_faults import Target
from elastichost.chaos.scene import Scene


class Run:
    """A run whose holder has these pids, one look after another."""

    def __init__(self, *pids: int | None) -> None:
        self.scene, self.applied = Scene(), SimpleNamespace(newest_s=0.0)
        self._pids: Iterator[int | None] = iter(pids)
        self.hits: list[tuple[int, int]] = []

    def now_s(self) -> float:
        return 7.0

    def memory_holder(self) -> int | None:
        return next(self._pids)

    def hit(self, pid: int, number: signal.Signals) -> bool:
        self.hits.append((pid, number))
        return True


def test_it_is_over_when_another_process_keeps_the_memory() -> None:
    run: Any = Run(11, 11, None, 12)
    struck = KillHolder(1).strike(cast(Target, run), 0)
    assert struck is not None
    assert run.hits == [(11, signal.SIGKILL)]
    assert struck.recovered(run) is None
    assert struck.recovered(run) is None
    recovered = struck.recovered(run)
    assert recovered is not None
    assert (recovered.kind, recovered.words) == ("memory holder", "another process keeps the memory")


def test_a_run_without_it_is_not_hit() -> None:
    run: Any = Run(None)
    assert KillHolder(1).strike(cast(Target, run), 0) is None
    assert run.hits == []


def test_it_is_one_of_the_faults() -> None:
    assert "kill-memory-holder" in [fault.name for fault in ALL_FAULTS]
