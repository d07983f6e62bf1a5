"""The death of the supervisor: its processes end, and `resume` continues in the kept arena, exactly once."""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from elastichost.arena.host import arena_root, hold, read_owner, stale_arenas
from elastichost.runs.events import (
    ArenaRejected,
    ArenaReused,
    CheckpointAbandoned,
    CheckpointWritten,
    Event,
    LeaseGranted,
    RunStarted,
    StartedFromCheckpoint,
)
from elastichost.wire.applied import read_applied
from elastichost.wire.crash import VARIABLE
from tests.system import test_sync
from tests.system.test_run import JOB, Supervised, folder

pytestmark = [pytest.mark.system, pytest.mark.thorough]

__all__ = ["folder"]

ROWS = 200_000
# Long enough for a busy machine; tests of the default set their own value.
KEPT = JOB.replace("[supervision]\n", "[supervision]\nkeep_arena_s = 60\n")
SYNC = KEPT.replace("[train]\n", '[train]\nmode = "sync"\n')
SERVED = KEPT.replace("[train]\n", '[train]\naccess = "served"\n')


def wait(is_true: Any, limit_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + limit_s
    while not is_true():
        assert time.monotonic() < deadline_s
        select.select([], [], [], 0.01)


def processes_of(run: Supervised) -> list[psutil.Process]:
    """All processes of a run except the supervisor; the fork server comes last."""
    server = run.fork_server()
    children = psutil.Process(run.process.pid).children(recursive=True)
    return sorted(children, key=lambda child: child.pid == server)


def kill(run: Supervised, *others: int) -> None:
    """Kills the supervisor and others at the same moment: all are stopped first."""
    for pid in (run.process.pid, *others):
        os.kill(pid, signal.SIGSTOP)
    for pid in (*others, run.process.pid):
        os.kill(pid, signal.SIGKILL)
    run.finish()


def wait_gone(processes: list[psutil.Process], limit_s: float = 10.0) -> None:
    gone, alive = psutil.wait_procs(processes, timeout=limit_s)
    assert not alive, f"{len(gone)} have ended"


def resumes(run: Supervised) -> list[Event]:
    """The events of each resume (its source, arenas that were not used), in order."""
    return run.events(ArenaReused, ArenaRejected, StartedFromCheckpoint)


def assert_all_once(run: Supervised, rows: int = ROWS, epochs: int = 1) -> None:
    """Checks by the result, the record of the PS, and the leases that every sample was trained once."""
    planned = rows * epochs
    assert run.result()["samples"] == {"planned": planned, "trained": planned, "skipped": 0, "quarantined": 0}
    applied = read_applied(run.run_dir)
    applied = np.sort(applied[applied["sequence"] > 0], order=("epoch", "unit", "start"))
    assert int(applied["samples"].sum()) == planned
    for epoch in range(epochs):
        of_epoch = applied[applied["epoch"] == epoch]
        for unit in np.unique(of_epoch["unit"]):
            of_unit = of_epoch[of_epoch["unit"] == unit]
            assert of_unit["start"].tolist() == [0, *of_unit["stop"][:-1].tolist()]
    batches = {(int(one["worker"]), int(one["incarnation"]), int(one["sequence"])) for one in applied}
    assert len(batches) == len(applied), "a batch of an incarnation must occur once"
    leased = [event.lease for event in run.events(LeaseGranted)]
    assert len(set(leased)) == len(leased)


def finish_well(run: Supervised) -> None:
    code, errors = run.finish()
    assert code == 0, errors


def resumed(folder: Path, template: str, rows: int = ROWS, **settings: Any) -> Supervised:
    """The run, resumed from its arena and trained to its end."""
    again = Supervised(folder, resume=True, template=template, rows=rows, **settings)
    finish_well(again)
    assert again.events(ArenaReused), resumes(again)
    return again


def arenas_of(folder: Path) -> list[Path]:
    return [path for path in arena_root().iterdir() if "elastichost-" in path.name]


# --- from the arena ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", [KEPT, SERVED, SYNC], ids=["direct", "served", "sync"])
def test_a_killed_supervisor_is_resumed_from_its_arena_and_nothing_is_lost(folder: Path, template: str) -> None:
    rows = 60_000 if template == SYNC else ROWS
    run = Supervised(folder, template=template, rows=rows)
    run.wait_trained(20_000)
    processes = processes_of(run)
    kill(run)
    wait_gone(processes[:-1])
    trained = int(read_applied(run.run_dir)["samples"].sum())
    assert trained >= 20_000
    again = resumed(folder, template, rows)
    (resume,) = resumes(again)
    assert isinstance(resume, ArenaReused)
    assert trained - 128 <= resume.trained <= trained  # the last record may belong to an uncommitted batch
    assert_all_once(again, rows)
    wait_gone(processes)  # the arena reaper has ended too


DEATHS = {
    "before any process": ("supervisor.journal.write:8", KEPT, 60),
    "served, PS ready": ("supervisor.journal.written:15", SERVED, 60),
    "a lease not written": ("supervisor.journal.write:22", KEPT, 60),
    "served, a lease not sent": ("supervisor.journal.written:24", SERVED, 60),
    "served, workers lost and settled": ("worker.batch.before_commit:3,supervisor.journal.write:29", SERVED, 60),
    "workers lost within batches": ("worker.batch.before_push:3,supervisor.journal.written:28", KEPT, 60),
    "between checkpoints": ("supervisor.journal.write:34", KEPT, 0.05),
    "served, between checkpoints": ("supervisor.journal.written:41", SERVED, 0.05),
}


@pytest.mark.parametrize("death", DEATHS)
def test_a_death_at_any_line_of_the_journal_loses_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, death: str
) -> None:
    crash_at, template, every_s = DEATHS[death]
    monkeypatch.setenv("ELASTICHOST_CRASH_AT", crash_at)
    rows = 60_000
    run = Supervised(folder, template=template, rows=rows, every_s=every_s)
    code, errors = run.finish()
    assert code == -signal.SIGKILL, errors
    assert_all_once(resumed(folder, template, rows), rows)  # crash points act only in first incarnations


def test_a_death_at_the_end_and_within_the_last_checkpoint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 30_000
    monkeypatch.setenv(VARIABLE, "ps.snapshot.after_copy")  # delays the last checkpoint
    run = Supervised(folder, template=KEPT, rows=rows, epochs=2)
    run.wait_trained(1)
    run.wait_until(lambda: run.events(CheckpointAbandoned))
    kill(run)
    monkeypatch.delenv(VARIABLE)
    again = resumed(folder, KEPT, rows, epochs=2)
    assert_all_once(again, rows, 2)
    assert again.result()["test"]["auc"] > 0.5


def test_killed_twice_and_once_while_it_resumes(folder: Path) -> None:
    run = Supervised(folder, template=SERVED, rows=ROWS)
    run.wait_trained(10_000)
    kill(run)
    again = Supervised(folder, resume=True, template=SERVED, rows=ROWS)
    wait(lambda: len(run.events(RunStarted)) == 2)  # the resumed run holds the arena but has not taken it over yet
    kill(again)
    third = Supervised(folder, resume=True, template=SERVED, rows=ROWS)
    third.wait_trained(60_000)
    kill(third)
    last = resumed(folder, SERVED)
    assert_all_once(last)
    assert len(last.events(ArenaReused)) == 2


@pytest.mark.parametrize("template", [KEPT, SERVED], ids=["direct", "served"])
def test_killed_with_a_worker_and_a_ps(folder: Path, template: str) -> None:
    run = Supervised(folder, template=template, rows=ROWS)
    run.wait_trained(20_000)
    kill(run, run.pid("worker-0"), run.pid("server-0"))
    assert_all_once(resumed(folder, template))


def test_a_supervisor_killed_in_a_second_epoch_goes_on_in_it(folder: Path) -> None:
    rows = 60_000
    run = Supervised(folder, template=KEPT, rows=rows, epochs=6)
    run.wait_trained(70_000)
    kill(run)
    assert_all_once(resumed(folder, KEPT, rows, epochs=6), rows, 6)


def test_with_fewer_workers_and_more_ps_than_before(folder: Path) -> None:
    run = Supervised(folder, template=SERVED, rows=ROWS)
    run.wait_trained(20_000)
    kill(run)
    other = SERVED.replace("workers = 2\n", "workers = 1\nservers = 2\n")
    assert_all_once(resumed(folder, other))


def test_a_resumed_sync_run_has_the_bits_of_an_undisturbed_run(folder: Path) -> None:
    """Resumed with the same number of PS, with more (which get buckets with staged pushes), and with fewer."""
    expected = test_sync.trained(folder, "plain")
    template = test_sync.TEMPLATE.replace("[supervision]\n", "[supervision]\nkeep_arena_s = 60\n")
    facts = {"micro_batches": 4, "rows": test_sync.SAMPLES, "every_s": 60}
    for number, servers in enumerate((2, 3, 1, 3)):
        place = folder / str(number)
        place.mkdir()
        run = Supervised(place, template=template, workers=2, servers=2, **facts)
        run.wait_trained(test_sync.SAMPLES // (3 + number))
        kill(run)
        again = Supervised(place, template=template, resume=True, workers=1, servers=servers, **facts)
        finish_well(again)
        assert again.events(ArenaReused)
        assert test_sync.outcome(again.run_dir) == expected


# --- the arena and the arena reaper ----------------------------------------------------------------------------


def test_killed_with_the_fork_server_the_processes_stop_and_the_arena_stays(folder: Path) -> None:
    run = Supervised(folder, template=KEPT, rows=ROWS)
    run.wait_trained(20_000)
    processes = processes_of(run)
    kill(run, run.fork_server())
    wait_gone(processes)
    stale = [found.path.parent for found in stale_arenas() if found.owner.run_dir == str(run.run_dir)]
    assert sorted(stale) == sorted([arena_root(), Path(os.environ["XDG_RUNTIME_DIR"])]), "arena and sockets are stale"
    assert_all_once(resumed(folder, KEPT))


@pytest.mark.parametrize("keep_s", [None, 0])
def test_without_a_resume_everything_is_removed(folder: Path, keep_s: int | None) -> None:
    template = JOB if keep_s is None else KEPT.replace("= 60\n", f"= {keep_s}\n", 1)
    run = Supervised(folder, template=template, rows=ROWS)
    run.wait_trained(1)
    (arena,) = arenas_of(folder)
    processes = processes_of(run)
    kill(run)
    if keep_s is None:
        wait_gone(processes[:-1])
        assert arena.exists(), "the arena must be kept at first"
    wait_gone(processes)
    assert not arena.exists()
    again = Supervised(folder, resume=True, template=template, rows=ROWS)
    code, errors = again.finish()
    assert code == 1
    assert "no checkpoint in " in errors and "and there is no arena" in errors
    assert "does not exist any more" in errors


def test_a_second_resume_is_refused_and_changes_nothing(folder: Path) -> None:
    run = Supervised(folder, template=KEPT, rows=ROWS)
    run.wait_trained(10_000)
    kill(run)
    first = Supervised(folder, resume=True, template=KEPT, rows=ROWS)
    wait(lambda: len(run.events(RunStarted)) == 2)
    second = Supervised(folder, resume=True, template=KEPT, rows=ROWS)
    code, errors = second.finish()
    assert code == 3
    assert "another supervisor works in" in errors
    finish_well(first)
    assert_all_once(first)


def test_a_resume_that_fails_early_gives_the_arena_back(folder: Path) -> None:
    run = Supervised(folder, template=KEPT, rows=ROWS)
    run.wait_trained(10_000)
    kill(run)
    (arena,) = arenas_of(folder)
    owner = read_owner(arena)
    broken = Supervised(folder, resume=True, template=KEPT, rows=ROWS, build="elastichost.models:no_such_model")
    code, errors = broken.finish()
    assert code == 3, errors
    assert read_owner(arena) == owner
    held = hold(arena)
    assert held is not None, "the failed resume must release the arena"
    held.release()
    assert_all_once(resumed(folder, KEPT))


def test_an_arena_that_does_not_fit_is_reported_and_the_checkpoint_used(folder: Path) -> None:
    run = Supervised(folder, template=KEPT, rows=ROWS, every_s=0.3)
    run.wait_trained(1)
    run.wait_until(lambda: run.events(CheckpointWritten))
    trained = run.events(CheckpointWritten)[0].samples
    run.wait_trained(trained + 10_000)
    kill(run)
    (run.run_dir / "checkpoints" / ".staging-9").mkdir()
    record = run.run_dir / "applied.bin"
    os.truncate(record, record.stat().st_size // 2)
    (before,) = arenas_of(folder)
    again = Supervised(folder, resume=True, template=KEPT, rows=ROWS)
    again.wait_until(lambda: len(resumes(again)) == 2)
    rejected, started = resumes(again)
    assert isinstance(rejected, ArenaRejected)
    assert "committed" in rejected.reason
    assert isinstance(started, StartedFromCheckpoint)
    assert started.checkpoint.startswith("step-")
    again.wait_until(lambda: not before.exists())  # it is removed after the checkpoint was verified
    finish_well(again)
    assert again.result()["samples"]["trained"] == ROWS
    assert not list((run.run_dir / "checkpoints").glob(".staging-*"))


# --- one supervisor a run -----------------------------------------------------------------------------------------


def test_a_stopped_supervisor_keeps_its_run_and_goes_on_with_what_died_meanwhile(folder: Path) -> None:
    run = Supervised(folder, template=KEPT, rows=400_000)
    run.wait_trained(1)
    workers = [run.pid("worker-0"), run.pid("worker-1")]
    os.kill(run.process.pid, signal.SIGSTOP)
    other = Supervised(folder, resume=True, template=KEPT, rows=400_000)
    code, errors = other.finish()
    assert code == 3
    assert "another supervisor works in" in errors
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    os.kill(run.process.pid, signal.SIGCONT)
    finish_well(run)
    assert_all_once(run, 400_000)
    assert {event.process.name for event in run.lost()} == {"worker-0", "worker-1"}
