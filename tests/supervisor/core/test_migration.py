"""One round of buckets that move to another host: the requests to each PS, their order, and their repetition after a
death."""

from __future__ import annotations

import itertools

import pytest

from elastichost.errors import IllegalTransitionError
from elastichost.plan import ProcessId
from elastichost.supervisor.core.migration import (
    MOST_DEATHS,
    ROUND_BYTES,
    CallBack,
    Copy,
    Forget,
    Keep,
    Measure,
    Migration,
    MigrationState,
    Move,
)

MOVES = (Move(0, 1, 0, 1), Move(0, 2, 0, 1), Move(1, 0, 2, 3))
KEYS_OF_0, KEY_OF_2 = ((0, 1), (0, 2)), ((1, 0),)


def server(index: int, incarnation: int = 1) -> ProcessId:
    return ProcessId("server", index, incarnation)


def worker(index: int, incarnation: int = 1) -> ProcessId:
    return ProcessId("worker", index, incarnation)


def planned(*, are_mapped: bool = False) -> Migration:
    """A round in state `planned`."""
    return Migration(MOVES, [server(index) for index in range(4)], itertools.count(1), are_mapped=are_mapped)


def unmapping() -> Migration:
    """A round in state `unmapping`."""
    made = planned(are_mapped=True)
    made.begin()
    made.measured(server(0), 1, (1000, 1000))
    assert made.measured(server(2), 2, (1000,)) == ()
    assert made.has_to_be_served and made.buckets == (*KEYS_OF_0, *KEY_OF_2)
    return made


def copying(size: int = 1000) -> Migration:
    """A round in state `copying`: requests 1 and 2 were for sizes, 3 and 4 are Copy."""
    made = planned()
    assert made.begin() == (Measure(server(0), 1, KEYS_OF_0), Measure(server(2), 2, KEY_OF_2))
    assert made.measured(server(0), 1, (size, size)) == ()
    first, second = made.measured(server(2), 2, (size,))
    assert first == Copy(server(1), 3, ((MOVES[0], server(0)), (MOVES[1], server(0))))
    assert second == Copy(server(3), 4, ((MOVES[2], server(2)),))
    return made


def draining() -> Migration:
    """A round in state `draining`."""
    made = copying()
    made.copied(server(1), 3, 500)
    assert not made.is_copied
    made.copied(server(3), 4, 70)
    assert made.is_copied
    made.drain()
    return made


def test_a_round_is_planned_copied_drained_committed_and_released() -> None:
    made = draining()
    assert made.needed == {0, 1, 2, 3}
    made.adopted()
    assert (made.state, made.bytes) == (MigrationState.COMMITTED, 570)
    assert made.published() == (Forget(server(0), 5, KEYS_OF_0), Forget(server(2), 6, KEY_OF_2))
    assert made.needed == {0, 2}
    made.forgotten(server(0), 4)
    made.forgotten(server(0), 5)
    assert not made.is_over
    made.forgotten(server(2), 6)
    assert (made.state, made.is_over, made.needed) == (MigrationState.RELEASED, True, frozenset())


def test_a_round_moves_at_most_its_limit_of_bytes_and_at_least_one_bucket() -> None:
    made = planned()
    made.begin()
    made.measured(server(0), 1, (ROUND_BYTES // 2, ROUND_BYTES // 2))
    (copy,) = made.measured(server(2), 2, (1,))
    assert isinstance(copy, Copy) and copy.server == server(1)
    assert (made.moves, made.needed) == (MOVES[:2], {0, 1})
    huge = planned()
    huge.begin()
    huge.measured(server(2), 2, (2 * ROUND_BYTES,))
    huge.measured(server(0), 1, (2 * ROUND_BYTES, 1))
    assert huge.moves == MOVES[:1]


def test_requests_to_a_ps_that_died_are_sent_to_its_new_incarnation() -> None:
    made = copying()
    made.copied(server(1), 3, 500)
    made.copied(server(3), 4, 70)
    assert made.lost(server(0)) == ()
    assert not made.is_copied
    made.copied(server(1), 3, 500)  # this answer was sent before the death of PS 0
    assert not made.is_copied
    assert made.lost(server(0)) == (), "this incarnation is lost already"
    (again,) = made.connected(server(0, 2))
    assert again == Copy(server(1), 5, ((MOVES[0], server(0, 2)), (MOVES[1], server(0, 2))))
    made.copied(server(1), 5, 500)
    assert made.is_copied
    made.lost(server(3))
    assert made.connected(server(3, 2)) == (Copy(server(3, 2), 6, ((MOVES[2], server(2)),)),)


def test_nothing_is_copied_from_an_incarnation_that_is_not_connected() -> None:
    made = copying()
    made.lost(server(0))
    made.lost(server(1))
    assert made.connected(server(1, 2)) == ()
    (copy,) = made.connected(server(0, 2))
    assert isinstance(copy, Copy) and copy.server == server(1, 2)


def test_a_new_incarnation_is_asked_for_sizes_and_known_sizes_are_used() -> None:
    made = planned()
    made.begin()
    made.measured(server(0), 1, (1, 1))
    made.lost(server(0))
    assert made.connected(server(0, 2)) == (Measure(server(0, 2), 3, KEYS_OF_0),)
    assert len(made.measured(server(2), 2, (1,))) == 2, "the sizes are known"
    assert made.measured(server(0, 2), 3, (1, 1)) == ()


def test_nothing_is_copied_before_every_worker_has_unmapped_the_buckets() -> None:
    made = unmapping()
    assert made.unmapped(worker(0), 6) == (), "the map that marks the buckets was not sent yet"
    assert made.served(7, [worker(0), worker(1), worker(2)]) == ()
    assert not made.has_to_be_served and made.served(8, []) == ()
    assert made.unmapped(worker(0), 6) == (), "a worker with an older map uses the buckets in place"
    assert made.unmapped(worker(0), 7) == ()
    assert made.unmapped(worker(0), 7) == ()
    assert made.worker_lost(worker(2, 2)) == ()
    assert made.worker_lost(worker(2)) == ()
    assert (made.state, made.needed) == (MigrationState.UNMAPPING, {0, 1, 2, 3})
    first, second = made.unmapped(worker(1), 9)
    assert isinstance(first, Copy) and isinstance(second, Copy)
    assert made.state == MigrationState.COPYING
    assert made.unmapped(worker(1), 10) == made.worker_lost(worker(1)) == ()


def test_without_workers_that_map_the_buckets_they_are_copied_at_once() -> None:
    assert [type(effect) for effect in unmapping().served(7, [])] == [Copy, Copy]


def test_a_ps_that_dies_while_workers_unmap_is_asked_for_copies_when_it_is_back() -> None:
    made = unmapping()
    made.served(7, [worker(0)])
    assert made.lost(server(1)) == ()
    (copy,) = made.unmapped(worker(0), 7)
    assert copy == Copy(server(3), 3, ((MOVES[2], server(2)),))
    (late,) = made.connected(server(1, 2))
    assert isinstance(late, Copy) and late.server == server(1, 2)


@pytest.mark.parametrize("state", ["planned", "unmapping", "copying", "draining"])
def test_a_round_is_aborted_before_it_is_committed(state: str) -> None:
    made = {"planned": planned, "unmapping": unmapping, "copying": copying, "draining": draining}[state]()
    effects = made.abort("the plan has changed")
    if state in ("planned", "unmapping"):
        assert (effects, made.is_over) == ((), True)
        return
    back = [effect for effect in effects if isinstance(effect, CallBack)]
    assert len(back) == (state == "draining")
    keeps = [effect for effect in effects if isinstance(effect, Keep)]
    assert keeps == [Keep(server(0), KEYS_OF_0), Keep(server(2), KEY_OF_2)]
    forgets = [effect for effect in effects if isinstance(effect, Forget)]
    assert forgets == [Forget(server(1), 5, KEYS_OF_0), Forget(server(3), 6, KEY_OF_2)]
    assert (made.needed, made.is_over) == ({1, 3}, False)
    made.forgotten(server(1), 5)
    made.lost(server(3))
    (again,) = made.connected(server(3, 2))
    assert isinstance(again, Forget)
    made.forgotten(server(3, 2), again.request)
    assert (made.state, made.is_over) == (MigrationState.ABORTED, True)


def test_a_committed_round_cannot_be_aborted() -> None:
    made = draining()
    made.adopted()
    with pytest.raises(IllegalTransitionError, match="a round of moves: event 'abort' is not allowed in state 'commit"):
        made.abort("too late")
    assert made.copied(server(1), 3, 0, "no room") == ()
    made.published()
    made.lost(server(0))
    (again,) = made.connected(server(0, 2))
    assert isinstance(again, Forget) and again.buckets == KEYS_OF_0


def test_lack_of_memory_or_too_many_deaths_abort_a_round() -> None:
    made = draining()
    assert made.copied(server(1), 2, 0, "of another round") == ()
    effects = made.copied(server(1), 3, 0, "no room")
    assert isinstance(effects[0], CallBack) and "server-1.1 cannot take its buckets: no room" in made.reason
    mortal = copying()
    for incarnation in range(1, MOST_DEATHS + 1):
        assert mortal.lost(server(1, incarnation)) == ()
        assert mortal.connected(server(1, incarnation + 1))
    assert mortal.lost(server(1, MOST_DEATHS + 1)) != ()
    assert mortal.state == MigrationState.ABORTED


def test_a_round_is_aborted_when_the_host_of_its_source_or_target_is_lost() -> None:
    for source_or_target in (2, 3):
        made = draining()
        effects = made.gone(frozenset({source_or_target}), "its host is lost")
        assert made.state == MigrationState.ABORTED
        assert isinstance(effects[0], CallBack)
        asked = {effect.server.index for effect in effects if not isinstance(effect, CallBack)}
        assert source_or_target not in asked
        for index in made.needed:
            request = next(e.request for e in effects if isinstance(e, Forget) and e.server.index == index)
            made.forgotten(server(index), request)
        assert made.is_over, "the round does not wait for a lost PS"


def test_a_committed_round_does_not_wait_for_a_lost_host_to_free_memory() -> None:
    made = draining()
    made.adopted()
    first, second = made.published()
    assert isinstance(first, Forget) and isinstance(second, Forget)
    made.forgotten(server(0), first.request)
    assert not made.is_over
    assert made.gone(frozenset({2}), "its host is lost") == ()
    assert made.is_over


def test_the_loss_of_another_host_aborts_only_a_round_that_drains() -> None:
    """A round that only copies goes on. The loss of any PS calls a hand-over back, and aborts the round with it."""
    made = copying()
    assert made.gone(frozenset({7}), "its host is lost") == ()
    assert made.state == MigrationState.COPYING
    made = unmapping()
    assert made.gone(frozenset({7}), "its host is lost") == ()
    assert made.has_to_be_served
    assert made.gone(frozenset({1}), "its host is lost") == () and made.is_over
    made = draining()
    back, *_ = made.gone(frozenset({7}), "its host is lost")
    assert isinstance(back, CallBack) and made.state == MigrationState.ABORTED
