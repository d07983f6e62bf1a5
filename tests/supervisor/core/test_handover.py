"""Hand-overs of buckets: every bucket has at most one owner, also when PS die in any step."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elastichost.errors import IllegalTransitionError
from elastichost.plan import ProcessId
from elastichost.sharding import ShardMap, rebalanced_shard_map
from elastichost.supervisor.core.handover import HandOver, HandOverEffect, HandOverState, Publish, SendMap
from elastichost.wire.facts import CommittedBatch
from tests.effort import examples

COMMITTED = (CommittedBatch(0, 1, 17), CommittedBatch(1, 2, 5))
FIRST = ShardMap(0, ((0, 1, 0, 1), (1, 0)), 0)


def server(index: int, incarnation: int = 1) -> ProcessId:
    return ProcessId("server", index, incarnation)


def settled() -> HandOver:
    """Two PS have the first map, epoch 1."""
    hand_over = HandOver(FIRST)
    hand_over.connected(server(0), 0.0)
    hand_over.connected(server(1), 0.0)
    assert hand_over.ready(server(0), 1) == ()
    (published,) = hand_over.ready(server(1), 1)
    assert isinstance(published, Publish)
    assert (published.shard_map.epoch, published.moved) == (1, 0)
    return hand_over


def sent_map(effects: tuple[HandOverEffect, ...]) -> SendMap:
    """The only effect, which sends a map."""
    (effect,) = effects
    assert isinstance(effect, SendMap)
    return effect


def test_at_the_start_every_ps_gets_its_map_when_it_connects() -> None:
    hand_over = HandOver(FIRST)
    assert sent_map(hand_over.connected(server(1), 0.0)).servers == (server(1),)
    assert sent_map(hand_over.connected(server(0), 0.0)).shard_map.epoch == 1
    assert hand_over.state == HandOverState.ADOPTING


def test_a_hand_over_freezes_releases_adopts_and_publishes() -> None:
    hand_over = settled()
    newcomer = sent_map(hand_over.connected(server(2), 1.0))
    assert newcomer.shard_map == hand_over.present, "a PS without buckets can answer Ready"
    target = rebalanced_shard_map(hand_over.present, (0, 1, 2))
    freeze = sent_map(hand_over.begin(target, 2.0))
    assert (freeze.servers, freeze.shard_map.owners, freeze.shard_map.epoch) == ((server(0),), FIRST.owners, 2)
    assert hand_over.owners == {0, 1, 2}
    assert hand_over.ready(server(2), 1) == ()
    release = sent_map(hand_over.ready(server(0), 2, COMMITTED))
    assert (release.servers, release.committed) == ((server(0), server(1)), COMMITTED)
    assert release.shard_map.buckets_of(2) == ()
    assert hand_over.ready(server(0), 3) == ()
    adopt = sent_map(hand_over.ready(server(1), 3))
    assert adopt.servers == (server(0), server(1), server(2))
    assert (adopt.shard_map.owners, adopt.committed) == (target.owners, COMMITTED)
    for index in (0, 1):
        assert hand_over.ready(server(index), 4) == ()
    (published,) = hand_over.ready(server(2), 4)
    assert published == Publish(adopt.shard_map, (server(0), server(1), server(2)), 2, 2.0)


def test_a_ps_that_leaves_is_an_owner_until_it_has_released_its_buckets() -> None:
    hand_over = settled()
    hand_over.begin(rebalanced_shard_map(hand_over.present, (1,)), 2.0)
    assert hand_over.owners == {0, 1}
    release = sent_map(hand_over.ready(server(0), 2, COMMITTED))
    assert release.servers == (server(0),)
    assert release.shard_map.dense_owner not in (0, 1), "no PS may commit between the old dense owner and the new one"
    assert sent_map(hand_over.ready(server(0), 3)).servers == (server(1),)
    assert hand_over.owners == {1}
    late = sent_map(hand_over.connected(server(0, 2), 3.0))
    assert late.shard_map.buckets_of(0) == ()


def test_a_replaced_ps_is_a_hand_over_without_moves() -> None:
    hand_over = settled()
    hand_over.lost(server(1))
    assert sent_map(hand_over.connected(server(1, 2), 5.0)).servers == (server(0),)
    adopt = sent_map(hand_over.ready(server(0), 2, COMMITTED))
    assert (adopt.servers, adopt.committed) == ((server(0), server(1, 2)), COMMITTED)
    hand_over.ready(server(1, 2), 3)
    (published,) = hand_over.ready(server(0), 3)
    assert isinstance(published, Publish)
    assert (published.moved, published.incarnations) == (0, (server(0), server(1, 2)))


def test_the_successor_of_a_releasing_ps_first_gets_the_map_in_which_it_owns_the_buckets() -> None:
    hand_over = settled()
    hand_over.begin(rebalanced_shard_map(hand_over.present, (0,)), 2.0)
    hand_over.ready(server(0), 2, COMMITTED)
    hand_over.lost(server(1))
    before, release = hand_over.connected(server(1, 2), 3.0)
    assert isinstance(before, SendMap) and isinstance(release, SendMap)
    assert (before.shard_map.owners, before.shard_map.epoch) == (FIRST.owners, 2)
    assert release.shard_map.buckets_of(1) == ()
    assert hand_over.ready(server(1, 2), 2) == ()
    assert sent_map(hand_over.ready(server(1, 2), 3)).shard_map.epoch == 4


def test_answers_to_older_epochs_and_of_older_incarnations_have_no_effect() -> None:
    hand_over = settled()
    hand_over.begin(rebalanced_shard_map(hand_over.present, (0,)), 2.0)
    assert hand_over.ready(server(0), 1) == ()
    hand_over.lost(server(0))
    sent_map(hand_over.connected(server(0, 2), 3.0))
    assert hand_over.ready(server(0), 2) == ()
    assert sent_map(hand_over.ready(server(0, 2), 2)).shard_map.epoch == 3


def test_one_hand_over_at_a_time() -> None:
    hand_over = settled()
    hand_over.begin(hand_over.present, 2.0)
    with pytest.raises(IllegalTransitionError, match="the shard map: event 'begin' is not allowed in state 'freezing'"):
        hand_over.begin(hand_over.present, 3.0)


def moving() -> tuple[HandOver, ShardMap]:
    """A hand-over in which a third PS gets two buckets of another host."""
    hand_over = settled()
    hand_over.connected(server(2), 1.0)
    target = rebalanced_shard_map(hand_over.present, (0, 1, 2))
    hand_over.begin(target, 2.0, target.buckets_of(2))
    return hand_over, target


def test_only_adopting_ps_are_sent_the_buckets_of_another_host() -> None:
    hand_over, target = moving()
    release = sent_map(hand_over.ready(server(0), 2, COMMITTED))
    hand_over.ready(server(0), 3)
    adopt = sent_map(hand_over.ready(server(1), 3))
    assert (release.moved, adopt.moved) == ((), target.buckets_of(2))


def test_a_hand_over_is_called_back_before_the_committed_batches_are_reported() -> None:
    hand_over, _ = moving()
    assert hand_over.call_back() == ()
    back = sent_map(hand_over.ready(server(0), 2, COMMITTED))
    assert (back.servers, back.committed, back.moved) == ((server(0), server(1)), COMMITTED, ())
    assert back.shard_map.owners == FIRST.owners


def test_a_hand_over_is_called_back_while_the_new_owners_adopt() -> None:
    hand_over, _ = moving()
    hand_over.ready(server(0), 2, COMMITTED)
    hand_over.ready(server(0), 3)
    hand_over.ready(server(1), 3)
    hand_over.ready(server(2), 4)
    release = sent_map(hand_over.call_back())
    assert set(release.servers) >= {server(2)}
    assert (release.shard_map.buckets_of(2), release.committed) == ((), COMMITTED)
    assert set(hand_over.owners) >= {2}, "PS 2 may have adopted buckets, so it has to release them"
    hand_over.lost(server(0))
    (fresh,) = hand_over.connected(server(0, 2), 3.0)
    assert isinstance(fresh, SendMap)
    assert fresh.shard_map == release.shard_map, "other PS may own the buckets of the incarnation before"
    hand_over.ready(server(2), 5)
    hand_over.ready(server(1), 5)
    back = sent_map(hand_over.ready(server(0, 2), 5))
    assert (back.shard_map.owners, back.moved) == (FIRST.owners, ())
    hand_over.ready(server(0, 2), 6)
    (published,) = hand_over.ready(server(1), 6)
    assert isinstance(published, Publish)
    assert published.moved == 0


def test_a_settled_hand_over_cannot_be_called_back() -> None:
    with pytest.raises(IllegalTransitionError):
        settled().call_back()


def test_a_served_mark_is_published_and_removed_by_the_next_move() -> None:
    hand_over, served = settled(), ((0, 1), (1, 0))
    freeze = sent_map(hand_over.begin(msgspec.structs.replace(hand_over.present, served=served), 2.0))
    assert freeze.shard_map.served == ()
    adopt = sent_map(hand_over.ready(server(0), 2, COMMITTED))
    assert (adopt.servers, adopt.shard_map.served) == ((server(0), server(1)), served), "no PS has to release buckets"
    hand_over.ready(server(1), 3)
    (published,) = hand_over.ready(server(0), 3)
    assert isinstance(published, Publish)
    assert (published.shard_map.served, published.shard_map.owners, published.moved) == (served, FIRST.owners, 0)
    hand_over.connected(server(2), 3.0)
    target = rebalanced_shard_map(hand_over.present, (0, 1, 2))
    assert target.served == ()
    hand_over.begin(target, 4.0, target.buckets_of(2))
    hand_over.ready(server(0), 4, COMMITTED)
    release = sent_map(hand_over.call_back())
    for index in (0, 1):
        assert hand_over.ready(server(index), release.shard_map.epoch) == ()
    back = sent_map(hand_over.ready(server(2), release.shard_map.epoch))
    for index in (0, 1):
        hand_over.ready(server(index), back.shard_map.epoch)
    assert hand_over.is_settled and hand_over.present.served == served, "buckets that go back are still served"


def test_the_replacement_of_a_ps_keeps_the_served_mark() -> None:
    hand_over, served = settled(), ((0, 0),)
    hand_over.begin(msgspec.structs.replace(hand_over.present, served=served), 2.0)
    hand_over.lost(server(1))
    hand_over.ready(server(0), 2, COMMITTED)
    hand_over.connected(server(1, 2), 3.0)
    hand_over.ready(server(0), 3)
    (published,) = hand_over.ready(server(1, 2), 3)
    assert isinstance(published, Publish) and published.shard_map.served == served
    hand_over.lost(server(1, 2))
    hand_over.connected(server(1, 3), 4.0)
    hand_over.ready(server(0), 4, COMMITTED)
    hand_over.ready(server(0), 5)
    (again,) = hand_over.ready(server(1, 3), 5)
    assert isinstance(again, Publish) and again.shard_map.served == served


def test_buckets_of_a_lost_host_are_rebuilt_by_other_ps() -> None:
    hand_over = settled()
    hand_over.connected(server(2), 1.0)
    freeze = sent_map(hand_over.gone(frozenset({1}), [0, 2], 5.0))
    assert (freeze.servers, freeze.remade) == ((server(0),), ())
    adopt = sent_map(hand_over.ready(server(0), 2, COMMITTED))
    assert (adopt.servers, adopt.remade) == ((server(0), server(2)), FIRST.buckets_of(1))
    assert adopt.shard_map.owners == ((0, 0, 0, 2), (0, 0))
    hand_over.ready(server(0), 3)
    (published,) = hand_over.ready(server(2), 3)
    assert isinstance(published, Publish)
    assert (published.remade, published.moved) == (FIRST.buckets_of(1), 3)
    hand_over.lost(server(2))
    again = sent_map(hand_over.connected(server(2, 2), 6.0))
    assert again.remade == (), "its rows are rebuilt already"


def test_buckets_on_their_way_from_a_lost_host_are_rebuilt_too() -> None:
    hand_over = settled()
    hand_over.connected(server(2), 1.0)
    hand_over.begin(rebalanced_shard_map(hand_over.present, (0, 2)), 2.0, FIRST.buckets_of(1))
    hand_over.ready(server(0), 2, COMMITTED)
    hand_over.ready(server(1), 3)
    assert hand_over.state == HandOverState.ADOPTING
    hand_over.ready(server(2), 4)
    release = sent_map(hand_over.gone(frozenset({1}), [0], 5.0))
    assert (release.servers, release.shard_map.buckets_of(2)) == ((server(2),), ()), (
        "PS 2 may have a part of the rows already"
    )
    adopt = sent_map(hand_over.ready(server(2), 5))
    assert (adopt.servers, adopt.remade, adopt.moved) == ((server(0),), FIRST.buckets_of(1), ())


def test_a_host_lost_before_the_first_map_owns_no_bucket_of_it() -> None:
    hand_over = HandOver(FIRST)
    assert hand_over.gone(frozenset({1}), [0], 0.0) == ()
    first = sent_map(hand_over.connected(server(0), 1.0))
    assert (first.shard_map.servers(), first.remade) == ({0}, ())


# --- PS that die at any moment --------------------------------------------------------------------------------------


@dataclass
class Server:
    """The behaviour of a PS: it takes maps in order, releases buckets, then adopts others. Some answers are still on
    their way."""

    process: ProcessId
    epoch: int = 0
    owned: frozenset[tuple[int, int]] = frozenset()
    is_dense_owner: bool = False
    maps: list[SendMap] = field(default_factory=list)
    answers: list[tuple[int, tuple[CommittedBatch, ...]]] = field(default_factory=list)


class HandOversUnderFire(RuleBasedStateMachine):
    """PS connect, answer and die in any order. pushes: committed pushes that dead PS left; only their successors apply
    them."""

    @initialize(servers=st.integers(1, 4), tables=st.integers(1, 3))
    def start(self, servers: int, tables: int) -> None:
        owners = tuple(tuple((t + b) % servers for b in range(6)) for t in range(tables))
        self.hand_over = HandOver(ShardMap(0, owners, 0))
        self.incarnations: dict[int, int] = {}
        self.servers: dict[int, Server] = {}
        self.wanted = set(range(servers))
        self.published: ShardMap | None = None
        self.held: dict[int, frozenset[tuple[int, int]]] = {}  # PS index -> buckets that its last incarnation owned
        self.marked: tuple[tuple[int, int], ...] = ()  # buckets marked as served in the last hand-over that began
        self.lost: set[tuple[int, int]] = set()  # buckets without rows on any host
        self.now_s = 0.0

    # --- effects --------------------------------------------------------------------------------------------

    def perform(self, effects: tuple[HandOverEffect, ...]) -> None:
        for effect in effects:
            if isinstance(effect, SendMap):
                assert effect.servers
                for process in effect.servers:
                    living = self.servers.get(process.index)
                    if living is not None and living.process == process:
                        living.maps.append(effect)
            else:
                assert {process.index for process in effect.incarnations} == effect.shard_map.servers()
                assert self.published is None or effect.shard_map.epoch > self.published.epoch
                assert not self.lost, "workers would pull rows that no PS has"
                self.published = effect.shard_map

    def wanting(self) -> set[int]:
        """PS that must run."""
        return self.wanted | set(self.hand_over.owners)

    def buckets(self) -> set[tuple[int, int]]:
        return {(t, b) for t, row in enumerate(self.hand_over.present.owners) for b in range(len(row))}

    # --- rules ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.wanting() - set(self.servers))
    @rule(data=st.data())
    def a_ps_comes(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(self.wanting() - set(self.servers))))
        self.incarnations[index] = self.incarnations.get(index, 0) + 1
        process = server(index, self.incarnations[index])
        self.servers[index] = Server(process)
        self.now_s += 1
        self.perform(self.hand_over.connected(process, self.now_s))

    @precondition(lambda self: any(s.maps for s in self.servers.values()))
    @rule(data=st.data())
    def a_ps_takes_a_map(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(i for i, s in self.servers.items() if s.maps)))
        living = self.servers[index]
        ask = living.maps.pop(0)
        assert ask.shard_map.epoch > living.epoch, "a PS ignores older maps and would never answer"
        owned = frozenset(ask.shard_map.buckets_of(index))
        known = self.published.buckets_of(index) if self.published is not None else ()
        left = self.held.get(index, frozenset()) & set(known)  # workers push to the owners in their map
        if (
            living.epoch == 0
        ):  # it owns the buckets of the incarnation before, and applies its pushes before it releases any
            assert left <= owned
        living.epoch, living.owned = ask.shard_map.epoch, owned
        living.is_dense_owner = ask.shard_map.dense_owner == index
        self.held[index] = owned
        self.lost -= owned & set(ask.remade)
        living.answers.append((living.epoch, COMMITTED if living.is_dense_owner else ()))

    @precondition(lambda self: any(s.answers for s in self.servers.values()))
    @rule(data=st.data())
    def an_answer_comes(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(i for i, s in self.servers.items() if s.answers)))
        living = self.servers[index]
        epoch, committed = living.answers.pop(0)
        self.perform(self.hand_over.ready(living.process, epoch, committed))

    @precondition(lambda self: self.servers)
    @rule(data=st.data())
    def a_ps_dies(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(sorted(self.servers)))
        self.hand_over.lost(self.servers.pop(index).process)

    @precondition(lambda self: self.hand_over.is_settled)
    @rule(servers=st.sets(st.integers(0, 5), min_size=1, max_size=5))
    def the_plan_changes(self, servers: set[int]) -> None:
        self.wanted, self.marked = servers, ()
        self.perform(self.hand_over.begin(rebalanced_shard_map(self.hand_over.present, sorted(servers)), self.now_s))

    @precondition(lambda self: self.hand_over.is_settled)
    @rule(data=st.data())
    def other_buckets_are_marked_as_served(self, data: st.DataObject) -> None:
        """Marks buckets as served, or removes the mark."""
        served = tuple(sorted(data.draw(st.sets(st.sampled_from(sorted(self.buckets()))))))
        self.marked = served
        self.perform(self.hand_over.begin(msgspec.structs.replace(self.hand_over.present, served=served), self.now_s))

    @rule(data=st.data())
    def a_host_is_lost(self, data: st.DataObject) -> None:
        keepers = {self.hand_over.present.dense_owner, self.hand_over._target.dense_owner}
        able = sorted((self.wanting() | set(self.servers)) - keepers)
        gone = frozenset(data.draw(st.sets(st.sampled_from(able)))) if able else frozenset()
        self.wanted = (self.wanted | {self.hand_over.present.dense_owner}) - gone
        if self.hand_over.state != HandOverState.NEW:
            self.lost |= {bucket for index in gone for bucket in self.hand_over.present.buckets_of(index)}
        for index in gone:
            self.servers.pop(index, None)
            self.held.pop(index, None)
        self.perform(self.hand_over.gone(gone, sorted(self.wanted), self.now_s))
        self.marked = self.hand_over.present.served  # a hand-over under way is called back

    @precondition(lambda self: set(self.servers) - self.wanting())
    @rule()
    def ps_that_are_not_needed_are_stopped(self) -> None:
        for index in set(self.servers) - self.wanting():
            assert not self.servers[index].owned
            assert not self.servers[index].is_dense_owner
            self.hand_over.lost(self.servers.pop(index).process)

    # --- invariants -----------------------------------------------------------------------------------------

    @invariant()
    def every_bucket_has_at_most_one_owner(self) -> None:
        if not hasattr(self, "servers"):
            return
        owned = [bucket for living in self.servers.values() for bucket in living.owned]
        assert len(owned) == len(set(owned))
        assert sum(living.is_dense_owner for living in self.servers.values()) <= 1

    @invariant()
    def every_ps_has_the_published_map(self) -> None:
        if not hasattr(self, "servers") or not self.hand_over.is_settled:
            return
        assert self.published == self.hand_over.present
        assert self.published.served == self.marked, "the replacement of a PS must not change the mark"
        for index in self.published.servers() & set(self.servers):
            living = self.servers[index]
            assert living.epoch == self.published.epoch
            assert living.owned == frozenset(self.published.buckets_of(index))

    def teardown(self) -> None:
        """When no PS dies any more, the hand-over ends."""
        if not hasattr(self, "servers"):
            return
        for _ in range(500):
            missing = self.wanting() - set(self.servers)
            if missing:
                index = min(missing)
                self.incarnations[index] = self.incarnations.get(index, 0) + 1
                self.servers[index] = Server(server(index, self.incarnations[index]))
                self.perform(self.hand_over.connected(self.servers[index].process, self.now_s))
            for index, living in sorted(self.servers.items()):
                while living.maps:
                    ask = living.maps.pop(0)
                    living.epoch = ask.shard_map.epoch
                    living.owned = frozenset(ask.shard_map.buckets_of(index))
                    self.lost -= living.owned & set(ask.remade)
                    living.answers.append((living.epoch, COMMITTED))
                while living.answers:
                    self.perform(self.hand_over.ready(living.process, *living.answers.pop(0)))
        assert self.hand_over.is_settled
        owned = {bucket for living in self.servers.values() for bucket in living.owned}
        assert owned == self.buckets()


HandOversUnderFire.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=60, deadline=None)
TestHandOversUnderFire = HandOversUnderFire.TestCase
