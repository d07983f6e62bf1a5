"""When a run may be rolled back, and what a resumed run has of earlier roll-backs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from elastichost.errors import SampleRange
from elastichost.plan import ProcessId, ProcessSpec
from elastichost.runs.events import AnyEvent, ArenaOpened, JournalLine, RolledBack, ShardMapPublished
from elastichost.runs.journal_replay import replay
from elastichost.runs.result import RollBack
from elastichost.supervisor.core.fleet import Fleet
from elastichost.supervisor.remote.keyring import Keyring
from elastichost.supervisor.rollback import MAX_ROLL_BACKS, _end_processes, refusal, refusal_after_loss
from elastichost.supervisor.startup.resume_source import barred


def back(start: int, epoch: int = 0, unit: int = 0) -> RollBack:
    """An earlier roll-back that left out the 10 positions from `start`."""
    return RollBack(epoch, unit, start, start + 10, "step-100", 5, "the loss is nan")


def test_a_run_is_not_rolled_back_for_the_same_positions_or_too_often() -> None:
    failed = SampleRange(0, 0, 5, 15)
    assert refusal(failed, ()) == ""
    assert refusal(failed, [back(15), back(0, epoch=1), back(0, unit=1)][:2]) == ""
    assert "already left out after" in refusal(failed, [back(14)])
    assert "already rolled back 3 times" in refusal(failed, [back(100 * number) for number in range(1, 4)])
    assert "is not recorded" in refusal(None, ())
    assert MAX_ROLL_BACKS == 3


def test_a_run_that_loses_its_model_goes_back_three_times_to_the_same_checkpoint() -> None:
    lost = RollBack(0, 0, 0, 0, "step-100", 5, "no process holds the model")
    assert refusal_after_loss("step-100", [lost, lost]) == ""
    assert "lost its model 3 times since that checkpoint" in refusal_after_loss("step-100", [lost, lost, lost])
    assert refusal_after_loss("step-200", [lost, lost, lost]) == ""
    assert refusal_after_loss("step-100", [lost, lost, back(7)]) == ""  # that one was for another reason


def test_a_roll_back_revokes_the_keys_of_the_processes_that_it_ends() -> None:
    """On a machine that was cut off they may still run, and try to connect."""
    keyring, fleet = Keyring(), Fleet()
    process = ProcessId("server", 1, 3)
    fleet.request(process, ProcessSpec(role="server", index=1, cores=(), threads=1), 0.0)
    keyring.issue(process, is_elsewhere=True)
    run: Any = SimpleNamespace(
        launcher=SimpleNamespace(end_children=lambda: None, events=list),
        control=SimpleNamespace(receive=lambda: None),
        machines=None,
        keyring=keyring,
        fleet=fleet,
        deaths=[],
        now_s=lambda: 0.0,
    )
    _end_processes(run)
    assert keyring.public(process) == ""
    assert not keyring.message().keys


def test_the_journal_keeps_roll_backs_across_arenas() -> None:
    happened: list[AnyEvent] = [
        ArenaOpened("/a", ("/a",), 0),
        ShardMapPublished(1, ("server-0.1",), 0, 0.0),
        RolledBack(back(7), 1, MAX_ROLL_BACKS),
        ArenaOpened("/a", ("/a",), 0, "checkpoint"),
    ]
    known = replay(JournalLine("", 0.0, event) for event in happened)
    assert known.roll_backs == (back(7),)
    assert barred(known.roll_backs) == (SampleRange(0, 0, 7, 17),)
    assert not known.is_whole
