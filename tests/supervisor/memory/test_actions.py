"""Actions that save memory: which buckets move to a host with memory left, how actions are performed, and how their
effects are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.arena.arena import Arena
from elastichost.arena.layout import plan_layout
from elastichost.runs.events import MemoryActionMeasured, MemoryMoveRefused, Warned
from elastichost.sharding import ShardMap, even_shard_map, moved_buckets
from elastichost.specs import DenseSpec, EmbeddingSpec, ModelSpec, RowOptimizerSpec, TableSpec
from elastichost.supervisor.memory.actions import MemoryActor, relocated
from elastichost.tuner.cold_start import initial_plan
from elastichost.tuner.memory.facts import HostMemorySample, MemoryDecision, MemoryKind, MemorySample
from elastichost.tuner.memory.forecast import MemoryState, decide
from elastichost.wire.commands import ScaleMsg
from tests.supervisor.noted import Noted

TABLES = tuple(TableSpec(f"t{i}", i, (f"f{i}",), "int", rows=rows) for i, rows in enumerate((0, 0, 3000)))


@given(servers=st.integers(2, 8), hosts=st.integers(2, 3), share=st.floats(0, 1))
def test_the_same_share_of_every_table_moves_and_nothing_else_changes(servers: int, hosts: int, share: float) -> None:
    before = even_shard_map(TABLES, tuple(range(servers)), epoch=4)
    host_of = {server: server % min(hosts, servers) for server in range(servers)}
    after = relocated(before, host_of, 0, 1, share)
    assert (after.epoch, after.dense_owner) == (before.epoch, before.dense_owner)
    moved = all_held = 0
    for old_row, new_row in zip(before.owners, after.owners, strict=True):
        held = [old for old in old_row if host_of[old] == 0]
        gone = [(old, new) for old, new in zip(old_row, new_row, strict=True) if old != new]
        assert abs(len(gone) - share * len(held)) <= 1
        assert all(host_of[old] == 0 and host_of[new] == 1 for old, new in gone)
        moved, all_held = moved + len(gone), all_held + len(held)
    assert moved_buckets(before, after) == moved
    assert abs(moved - share * all_held) <= 0.5 + 1e-9


def test_buckets_are_divided_among_all_ps_of_the_target_host() -> None:
    before = even_shard_map(TABLES, (0,), epoch=1)
    after = relocated(before, {0: 0, 1: 1, 3: 1}, 0, 1, 1.0)
    counts = {server: sum(row.count(server) for row in after.owners) for server in (0, 1, 3)}
    assert counts[0] == 0
    assert abs(counts[1] - counts[3]) <= 1


def test_some_buckets_move_although_each_table_has_few() -> None:
    """A tenth of four buckets of a table is less than half of one."""
    before = even_shard_map(TABLES, (0, 1, 2, 3), epoch=1)
    after = relocated(before, {0: 0, 1: 1, 2: 2, 3: 3}, 0, 1, 0.1)
    assert moved_buckets(before, after) == round(0.1 * sum(row.count(0) for row in before.owners)) > 0


# --- actions ----------------------------------------------------------------------------------------------------------


def a_model() -> ModelSpec:
    """A model with a table of fixed size, a dynamic one, and a dynamic one with its own eviction."""
    tables = (
        TableSpec("small", 0, ("f",), "int", rows=100),
        TableSpec("grows", 1, ("g",), "int", 0),
        TableSpec("ages", 2, ("h",), "int", 0, evict_after_samples=5000, admit_after=3),
    )
    embeddings = tuple(
        EmbeddingSpec(f"e{t}", t, t, "m", "bag", ("f",), 8, "sum", RowOptimizerSpec(), -1.0, 1.0) for t in range(3)
    )
    return ModelSpec(tables, embeddings, DenseSpec((), 8, 8), 0, 1)


class Scene:
    """Two hosts with real arenas. noted: events; asked: plan changes; relocations: maps; refused: hosts without
    memory."""

    def __init__(self, directory: Path, hosts: dict[int, int] = {0: 0, 1: 1}, *, may_move: bool = True) -> None:  # noqa: B006
        self.arenas = []
        for host in range(2):
            (directory / str(host)).mkdir()
            self.arenas.append(Arena.create(directory / str(host), plan_layout(a_model(), 7, 1 << 26), whole=host == 0))
        self.noted = Noted()
        self.asked: list[tuple[ScaleMsg, str]] = []
        self.relocations: list[ShardMap] = []
        self.followed: list[Any] = []
        self.shard_map = even_shard_map(a_model().tables, tuple(sorted(hosts)), epoch=3)
        self.run: Any = SimpleNamespace(
            **self.noted.attributes,
            plan=initial_plan(cores=(0, 1), workers=3, servers=len(hosts)),
        )
        self.refused = set[int]()
        self.sharding: Any = SimpleNamespace(
            hosts=hosts, shard_map=self.shard_map, relocate=self._relocate, refuse=self._refuse
        )
        self.changes: Any = SimpleNamespace(
            plans=SimpleNamespace(resized=self._resized), apply=lambda plan, now_s: self.followed.append(plan)
        )
        self.may_move = may_move
        self.actor = self.again()

    def again(self) -> MemoryActor:
        """The actor of a supervisor that begins with these arenas."""
        return MemoryActor(self.run, self.sharding, [arena.board for arena in self.arenas], a_model().tables)

    def _refuse(self, host: int) -> bool:
        is_news = host not in self.refused
        self.refused.add(host)
        return is_news

    def _relocate(self, target: ShardMap, reason: str) -> bool:
        if self.may_move:
            self.relocations.append(target)
        return self.may_move

    def _resized(self, command: ScaleMsg, reason: str) -> tuple[str, tuple[str, ...]]:
        self.asked.append((command, reason))
        return f"plan of {command}", ("a warning",)

    def do(self, kind: MemoryKind, now_s: float = 10.0, *, used: int = 100, **facts: Any) -> None:
        """Performs a decision."""
        self.actor.perform(MemoryDecision(kind, "", **facts), look(used), MemoryState(), self.changes, now_s)


def look(used: int = 100, samples: int = 50_000) -> MemorySample:
    """A sample of both hosts; `used` bytes are used on host 0."""
    hosts = (HostMemorySample(0, 10**9, used, 0.0, 0.5), HostMemorySample(1, 10**9, 0, 0.0, 0.5))
    return MemorySample(samples, 10**6, 1e3, 0.0, 100.0, 0.0, 0.0, hosts, action_s=5.0)


@pytest.fixture
def scene_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Scene]]:
    """Makes scenes; their arenas are closed at the end."""
    made: list[Scene] = []

    def make(*facts: Any, **more: Any) -> Scene:
        made.append(Scene(tmp_path_factory.mktemp("arenas"), *facts, **more))
        return made[-1]

    yield make
    for arena in (arena for one in made for arena in one.arenas):
        arena.close()


@pytest.fixture
def scene(scene_of: Callable[..., Scene]) -> Scene:
    """A scene with a PS on each host."""
    return scene_of()


def horizons(scene: Scene) -> list[list[int]]:
    """The horizon of each table, on each host."""
    return [[arena.board.horizon(table) for table in range(3)] for arena in scene.arenas]


def test_a_horizon_is_set_on_all_hosts_and_for_tables_with_their_own_eviction_only_on_request(scene: Scene) -> None:
    scene.do("evict", horizon=4096)
    assert horizons(scene) == [[0, 4096, 0]] * 2
    scene.do("evict", horizon=2048, shortens_own=True)
    assert horizons(scene) == [[0, 2048, 2048]] * 2
    again = scene.again()
    assert (again.horizon, again.shortens_own) == (2048, True)
    scene.do("evict", horizon=9000)
    assert horizons(scene) == [[0, 9000, 0]] * 2


def test_ids_are_admitted_later_on_all_hosts(scene: Scene) -> None:
    scene.do("admit", admit_after=8)
    assert [arena.board.admit_after(table) for arena in scene.arenas for table in (1, 2)] == [8] * 4
    assert scene.again().admit_after == 8


def test_a_plan_with_one_worker_fewer_is_applied_and_its_warnings_are_reported(scene: Scene) -> None:
    scene.do("shrink", workers=2)
    assert scene.asked == [(ScaleMsg(workers=2), "one worker fewer, to save memory")]
    assert len(scene.followed) == 1
    assert Warned("a warning") in scene.noted.events


def test_buckets_move_to_ps_of_the_target_host_or_a_ps_is_started_there(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of()
    scene.do("move", host=0, target=1, share=0.5)
    (target,) = scene.relocations
    assert moved_buckets(scene.shard_map, target) == round(0.5 * sum(row.count(0) for row in scene.shard_map.owners))
    alone = scene_of({0: 0})
    alone.do("move", host=0, target=1, share=0.5)
    assert alone.relocations == []
    assert alone.asked[0][0] == ScaleMsg(servers=2)


def test_a_move_that_is_not_possible_is_reported(scene_of: Callable[..., Scene]) -> None:
    scene = scene_of(may_move=False)
    scene.do("move", host=0, target=1, share=0.5)
    assert scene.noted.events == [MemoryMoveRefused(0, too_few=False)]
    scene.do("move", host=0, target=1, share=0.0001)
    assert scene.noted.events[-1] == MemoryMoveRefused(0, too_few=True)
    assert scene.refused == {1}, "the host is not chosen again at once"
    scene.do("move", host=0, target=1, share=0.0001)
    assert len(scene.noted.events) == 2, "it is reported once"


def test_the_effect_of_an_action_is_measured_when_it_is_due(scene: Scene) -> None:
    """Each kind is measured once, although it was repeated meanwhile. Rows evicted by PS that have ended count."""
    scene.do("evict", horizon=4096, used=1000)
    scene.do("evict", 12.0, horizon=3000, used=2000)
    scene.do("admit", 12.0, admit_after=2, used=2000)
    assert scene.actor.is_busy
    scene.arenas[1].board.server(1).note_evicted(700)
    scene.arenas[0].board.server(5).note_evicted(30)
    scene.actor.measure(MemoryState(), look(1500), 20.0)
    assert scene.noted.events == []
    scene.sharding.hosts = {0: 0}
    scene.actor.measure(MemoryState(), look(1500, 60_000), 25.0)
    (event,) = scene.noted.of(MemoryActionMeasured)
    assert (event.action, event.grown_bytes, event.samples) == ("evict", 500, 10_000)
    assert (event.dropped_rows, event.rounds) == (730, 2)
    assert scene.actor.is_busy, "the effect of the other action is not measured yet"
    scene.actor.measure(MemoryState(), look(1500, 60_000), 27.0)
    assert scene.noted.of(MemoryActionMeasured)[1].action == "admit"
    assert not scene.actor.is_busy


def test_the_measured_growth_is_reported_with_the_growth_expected_without_the_action(scene: Scene) -> None:
    """Memory grew by 100 bytes a sample before the action, and does not grow after it."""
    state = MemoryState()
    for second in range(1, 40):
        before = msgspec.structs.replace(look(0, second * 1000), made_bytes=second * 1e5)
        state, _ = decide(state, before, float(second))
    scene.actor.perform(MemoryDecision("evict", "", horizon=100), before, state, scene.changes, 40.0)
    scene.actor.measure(state, msgspec.structs.replace(before, samples=59_000), 60.0)
    (event,) = scene.noted.of(MemoryActionMeasured)
    assert event.grown_bytes == 0
    assert event.expected_bytes == pytest.approx(2e6, rel=0.2)
