"""Lost workers in all modes but sync mode: which PS the controller waits for, and what it counts once the arena's files
are removed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elastichost.arena.watermarks import FILE_NAME, Watermarks
from elastichost.plan import ProcessId, ProcessSpec
from elastichost.supervisor.controllers.leases import HostWatermarks, LeaseController
from elastichost.supervisor.controllers.processes import Holdings, ProcessController
from elastichost.supervisor.core.fleet import Fleet, ProcessRecord
from elastichost.supervisor.core.lifecycle import State
from elastichost.supervisor.launch.events import StartFailed
from elastichost.supervisor.ledger.ledger import Ledger, LedgerSettings
from elastichost.wire.control import FencedMsg, SettledMsg, SettleMsg
from elastichost.wire.facts import AppliedBatch
from tests.supervisor.noted import Noted

HERE, LOST_HOST = 0, 1


class Stage:
    """A run of served access on two machines, the second of which is lost; PS 0 owns all buckets."""

    def __init__(self) -> None:
        self.sent: list[tuple[ProcessId, Any]] = []
        self.noted, self.fleet = Noted(), Fleet()
        self.run: Any = SimpleNamespace(
            now_s=lambda: 0.0,
            fleet=self.fleet,
            plan=SimpleNamespace(access="served"),
            uses=lambda host: host == HERE,
            keyring=None,
            kernel_state=lambda pid: "",
            deaths=[],
            torn_batches=0,
            send=lambda process, message: self.sent.append((process, message)),
            send_all=lambda processes, message: self.sent.extend((process, message) for process in tuple(processes)),
            **self.noted.attributes,
        )
        ledger = Ledger(LedgerSettings(units=(100,), epochs=1, batch_size=10))
        self.leases = LeaseController(self.run, ledger, lambda: True, lambda worker, incarnation: 0)
        self.processes = ProcessController(self.run, self.ended, Holdings, lambda lost: None)

    def ended(self, record: ProcessRecord, *, asked: bool) -> None:
        self.leases.server_gone(record.process)

    def add(self, role: str, index: int, state: State, host: int = HERE) -> ProcessId:
        process = ProcessId(role, index, 1)
        spec = ProcessSpec(role=role, index=index, cores=(), threads=1, host=host)  # type: ignore[arg-type]
        self.fleet.request(process, spec, 0.0).state = state
        return process


@pytest.mark.parametrize("host", [HERE, LOST_HOST])
def test_a_ps_whose_start_failed_is_not_waited_for(host: int) -> None:
    """It was asked to settle a lost worker while its start was under way, and it can never answer."""
    stage = Stage()
    here, failing = stage.add("server", 0, State.RUNNING), stage.add("server", 2, State.REQUESTED, host)
    lost = stage.add("worker", 3, State.FAILED, host)
    stage.leases.lost(lost)
    stage.leases.fenced(FencedMsg(3, 1, AppliedBatch(0, 0, 0, 0, 0)))
    assert [process for process, message in stage.sent if isinstance(message, SettleMsg)] == [here, failing]
    stage.leases.rows_settled(here, SettledMsg(3, 1))
    assert stage.leases.unsettled == 1
    stage.processes.launch_event(StartFailed(failing, "the host is lost"))
    assert stage.leases.unsettled == 0
    assert len(stage.run.deaths) == (host == HERE), "the loss of a host does not count against the restart budget"


def test_a_ps_that_ended_before_its_machine_was_lost_is_not_waited_for() -> None:
    """It owned buckets, so its successor was to settle the lost worker; there is none now."""
    stage = Stage()
    here, there = stage.add("server", 0, State.RUNNING), stage.add("server", 2, State.RUNNING, LOST_HOST)
    stage.leases.lost(stage.add("worker", 3, State.FAILED, LOST_HOST))
    stage.leases.fenced(FencedMsg(3, 1, AppliedBatch(0, 0, 0, 0, 0)))
    record = stage.fleet.find(there)
    assert record is not None
    record.state = State.FAILED
    stage.leases.host_lost(LOST_HOST)
    assert stage.leases.unsettled == 1, "the PS on this machine still has to answer"
    stage.leases.rows_settled(here, SettledMsg(3, 1))
    assert stage.leases.unsettled == 0


def test_a_worker_whose_start_failed_holds_nothing() -> None:
    stage = Stage()
    stage.processes.launch_event(StartFailed(stage.add("worker", 0, State.REQUESTED), "no memory"))
    assert stage.leases.unsettled == 0
    assert not stage.sent


def test_workers_that_wait_at_the_end_of_an_epoch_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message of the others leads to such a look, and hundreds of workers may wait."""
    stage = Stage()
    ledger = stage.leases.ledger
    processes = [stage.add("worker", index, State.RUNNING) for index in range(3)]
    for _ in range(20):
        for process in processes:
            record = stage.fleet.find(process)
            assert record is not None
            stage.leases.requested(record, 0.0, 4)
    assert not ledger.has_pending and ledger.has_outstanding
    granted = len(stage.sent)
    monkeypatch.setattr(ledger, "request", lambda *_: pytest.fail("asked the ledger, which has nothing to give"))
    stage.leases.serve()
    monkeypatch.undo()
    ledger.give_back(processes[0])
    stage.leases.serve()
    assert len(stage.sent) > granted, "what a worker gives back is granted to one that waits"


def test_watermarks_are_read_after_the_arenas_files_were_removed(tmp_path: Path) -> None:
    """The supervisor saves a run whose arena was removed: the death of a worker meanwhile must not end the run."""
    here, there, late = (tmp_path / name for name in ("here", "there", "late"))
    for worker, directory in enumerate((here, there, late)):
        directory.mkdir()
        Watermarks.create(directory)
        Watermarks(directory).note_begun(worker, 1, 7)
    run: Any = SimpleNamespace(arena=here, other_arenas={1: there}, uses=lambda host: True)
    known = HostWatermarks(run)
    run.other_arenas[2] = late  # a machine that joins
    for directory in (here, there, late):
        (directory / FILE_NAME).unlink()
    assert [known.begun(worker, 1) for worker in (0, 1, 2)] == [7, 7, 0]
