"""One checkpoint, step by step: late answers have no effect, and deaths abort it."""

from __future__ import annotations

import pytest

from elastichost.errors import IllegalTransitionError
from elastichost.plan import ProcessId
from elastichost.supervisor.core.checkpoint_cut import (
    Abandon,
    Commit,
    Cut,
    CutState,
    SendPause,
    SendProceed,
    TakeCopies,
)

WORKERS = (ProcessId("worker", 0, 1), ProcessId("worker", 1, 1))
SERVERS = (ProcessId("server", 0, 1), ProcessId("server", 1, 1))


def begun() -> Cut:
    """A cut in state `pausing`."""
    cut = Cut(4)
    assert cut.begin(WORKERS, SERVERS, 10.0) == (SendPause(4, WORKERS),)
    return cut


def copying() -> Cut:
    """A cut in state `copying`."""
    cut = begun()
    assert cut.paused(WORKERS[1], 4, 11.0) == ()
    assert cut.paused(WORKERS[0], 4, 11.0) == (TakeCopies(4, SERVERS),)
    return cut


def writing() -> Cut:
    """A cut in state `writing`."""
    cut = copying()
    assert cut.copied(SERVERS[0], 4, 5, 100, 12.0) == ()
    assert cut.copied(SERVERS[1], 4, 6, 200, 13.0) == (SendProceed(4, WORKERS),)
    return cut


def test_a_cut_pauses_copies_proceeds_writes_and_commits() -> None:
    cut = writing()
    assert cut.written(SERVERS[0], 4, 77) == ()
    assert cut.written(SERVERS[1], 4, 0) == (Commit(4, 77),)
    assert cut.state == CutState.COMMITTED
    assert (cut.rows, cut.bytes, cut.paused_s, cut.proceeded_s) == (11, 300, 11.0, 13.0)


def test_without_workers_the_copies_are_taken_at_once() -> None:
    assert Cut(1).begin((), SERVERS, 0.0) == (TakeCopies(1, SERVERS),)


def test_workers_are_held_until_proceed() -> None:
    assert begun().holds_workers
    assert copying().holds_workers
    assert not writing().holds_workers


def test_a_death_while_workers_are_held_aborts_the_cut_and_lets_the_others_proceed() -> None:
    for cut in (begun(), copying()):
        effects = cut.lost(WORKERS[0])
        assert effects[0] == SendProceed(4, WORKERS[1:])
        assert isinstance(effects[1], Abandon)
        assert "worker-0.1" in effects[1].reason


def test_while_copies_are_written_only_the_death_of_a_ps_aborts_the_cut() -> None:
    cut = writing()
    assert cut.lost(WORKERS[0]) == ()
    (effect,) = cut.lost(SERVERS[1])
    assert isinstance(effect, Abandon)
    assert cut.lost(SERVERS[0]) == ()


def test_a_pause_for_an_older_cut_does_not_count_for_this_one() -> None:
    """The worker trains on. If its late Paused counted, the copies would be of different moments."""
    cut = begun()
    for worker in WORKERS:
        assert cut.paused(worker, 3, 11.0) == ()
    assert cut.state == CutState.PAUSING
    assert cut.paused(WORKERS[0], 4, 11.0) == ()
    assert cut.paused(WORKERS[1], 4, 11.0) == (TakeCopies(4, SERVERS),)


def test_answers_to_an_older_cut_and_repeated_answers_have_no_effect() -> None:
    cut = copying()
    assert cut.paused(WORKERS[0], 4, 12.0) == ()
    assert cut.copied(SERVERS[0], 3, 1, 1, 12.0) == ()
    assert cut.copied(SERVERS[0], 4, 1, 1, 12.0) == ()
    assert cut.copied(SERVERS[0], 4, 1, 1, 12.0) == ()
    assert cut.rows == 1


def test_a_cut_begins_once() -> None:
    with pytest.raises(IllegalTransitionError, match="checkpoint 4"):
        begun().begin(WORKERS, SERVERS, 1.0)


def test_a_ps_may_have_written_before_another_has_copied() -> None:
    cut = copying()
    assert cut.copied(SERVERS[0], 4, 5, 100, 12.0) == ()
    assert cut.written(SERVERS[1], 4, 0) == ()  # the file of a PS counts only after its copy
    assert cut.written(SERVERS[0], 4, 77) == ()
    assert cut.written(SERVERS[0], 4, 77) == ()
    assert cut.copied(SERVERS[1], 4, 6, 200, 13.0) == (SendProceed(4, WORKERS),)
    assert cut.written(SERVERS[1], 4, 0) == (Commit(4, 77),)
