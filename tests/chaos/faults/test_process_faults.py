"""The faults of processes: what a fault counts when not all of its victims could be hit."""

from __future__ import annotations

import signal
from typing import Any, cast

import pytest

from elastichost.chaos.faults.process_faults import KillPair, Kind, Target
from elastichost.chaos.scene import Scene
from elastichost.plan import ProcessId
from elastichost.runs.events import ForkServerReady, JournalLine, PlanChanged, ProcessReady, ProcessStarted, RunStarted

WORKER, SERVER = ProcessId("worker", 0, 1), ProcessId("server", 0, 1)
PIDS = {WORKER: 11, SERVER: 10}


class Run:
    """A run with one worker and one PS, of which only `there` have not ended."""

    def __init__(self, *there: ProcessId) -> None:
        self.scene = Scene()
        for event in (
            RunStarted("ab", "x"),
            ForkServerReady(3.0),
            PlanChanged(1, 1, 1, ("worker-0", "server-0"), "served", "cold start"),
            *(ProcessStarted(process, pid) for process, pid in PIDS.items()),
            *(ProcessReady(process) for process in PIDS),
        ):
            self.scene.take(JournalLine("", 1.0, event))
        self.pids = {PIDS[process] for process in there}
        self.hits: list[tuple[int, int]] = []

    def now_s(self) -> float:
        return 7.0

    def hit(self, pid: int, number: signal.Signals) -> bool:
        self.hits.append((pid, number))
        return pid in self.pids


@pytest.mark.parametrize(("there", "kind"), [((WORKER, SERVER), "pair"), ((WORKER,), "worker"), ((SERVER,), "server")])
def test_a_pair_counts_the_victims_that_were_hit(there: tuple[ProcessId, ...], kind: Kind) -> None:
    run: Any = Run(*there)
    struck = KillPair(1).strike(cast(Target, run), 0)
    assert struck is not None
    assert (struck.fault, struck.kind, struck.kills, struck.struck_s) == ("kill-pair", kind, len(there), 7.0)
    assert {incarnation.process for incarnation in struck.incarnations} == set(there)
    assert struck.hit == ", ".join(map(str, there))
    assert run.hits == [(11, signal.SIGKILL), (10, signal.SIGKILL)]


def test_a_pair_that_has_ended_is_no_fault() -> None:
    run: Any = Run()
    assert KillPair(1).strike(cast(Target, run), 0) is None
