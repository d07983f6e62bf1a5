"""The watch over a real arena, whose PS is this test: who waits, who goes without a row, and when a job ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.host import arena_root, is_in_memory
from elastichost.arena.layout import plan_layout
from elastichost.config import load_job
from elastichost.errors import ExitCode, MemoryBudgetError
from elastichost.plan import Plan, ProcessSpec
from elastichost.ps.store import RowStore
from elastichost.sharding import BUCKETS_PER_TABLE, even_shard_map
from elastichost.specs import DenseSpec, EmbeddingSpec, ModelSpec, RowOptimizerSpec, TableSpec
from elastichost.supervisor.memory_watch import EXPECTED_BYTES, MemoryWatch, memory_of_host
from elastichost.supervisor.recording import Recorder

MB = 1 << 20
PRIVATE = 5 * MB
SUPERVISOR, FORK_SERVER = 1001, 1002
JOB = """
[model]
build = "elastichost.models:dlrm"
[data]
format = "synthetic"
[train]
mode = "{mode}"
epochs = 4
[tuner]
memory = "{memory}"
"""


def model(evict_after_samples: int = 0) -> ModelSpec:
    tables = (
        TableSpec("small", 0, ("f",), "int", rows=100),
        TableSpec("grows", 1, ("g",), "int", 0, evict_after_samples=evict_after_samples),
    )
    embeddings = tuple(
        EmbeddingSpec(f"e{t}", t, t, "m", "bag", ("f",), 32, "sum", RowOptimizerSpec("adagrad"), -1.0, 1.0)
        for t in (0, 1)
    )
    return ModelSpec(tables, embeddings, DenseSpec((), 8, 8), 0, 1)


class Scene:
    """One host, one PS, one worker that is planned. `said`: (kind, text) of what was noted."""

    def __init__(self, directory: Path, budget: int, memory: str, mode: str = "async", **of_model: int) -> None:
        self.arena = Arena.create(directory, plan_layout(model(**of_model), 7, 1 << 28))
        path = directory / "job.toml"
        path.write_text(JOB.format(memory=memory, mode=mode))
        servers = (ProcessSpec(role="server", index=0, cores=(), threads=1),)
        self.said: list[tuple[str, str]] = []
        self.now_s = 100.0
        fleet: Any = type("Fleet", (list,), {"live": lambda *_: (), "working": lambda *_: (), "named": lambda *_: None})
        run: Any = SimpleNamespace(
            job=load_job(path, environ={}),
            plan=Plan(servers, "direct", "a test"),
            fleet=fleet(),
            supervisor_pid=SUPERVISOR,
            launcher=SimpleNamespace(server_pid=FORK_SERVER),
            now_s=lambda: self.now_s,
            note=lambda kind, text, **_: self.said.append((kind, text)),
            recorder=Recorder(),
        )
        roster: Any = SimpleNamespace(
            hosts={0: 0},
            shard_map=even_shard_map(self.arena.model.tables, (0,), epoch=1),
            was_published=True,
            is_published=True,
            holdings=SimpleNamespace(is_handed_over=True),
        )
        self.ledger: Any = SimpleNamespace(samples_planned=4_000_000, samples_accounted=500_000)
        self.watch = MemoryWatch(run, (self.arena,), roster, EXPECTED_BYTES + 2 * PRIVATE + budget)
        self.arena.allowance = self.arena.board.allowance(0)
        self.store = RowStore(self.arena, 7)
        self.store.adopt([(0, 0), *((1, bucket) for bucket in range(BUCKETS_PER_TABLE))], initialise=True)
        self.key = 0

    def look(self, seconds: float = 0.1) -> None:
        self.now_s += seconds
        private = {SUPERVISOR: PRIVATE, FORK_SERVER: PRIVATE, 99: 10**12}
        self.watch.look(self.ledger, None, private, self.now_s)

    def see(self, count: int = 2000) -> int:
        """New ids; how many got a row."""
        keys = np.arange(self.key, self.key + count)
        self.key += count
        return int(np.count_nonzero(self.store.rows_for(1, keys, True, 0) >= 0))

    def train(self, turns: int) -> None:
        """New ids all the time; what is refused is asked for again. Raises what the watch raises."""
        for _ in range(turns):
            self.look()
            with contextlib.suppress(MemoryBudgetError):
                self.see()


@pytest.fixture
def scene(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Scene]:
    def make(*facts: Any, **more: Any) -> Scene:
        directory = tmp_path_factory.mktemp("arena")
        return Scene(directory, *facts, **more)

    return make


@pytest.fixture(autouse=True)
def files_are_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastichost.supervisor.memory_watch.is_in_memory", lambda path: True)


@pytest.mark.parametrize(("memory", "mode"), [("off", "async"), ("watch", "async"), ("act", "sync")])
def test_without_a_way_out_the_job_ends_and_names_what_grew(
    scene: Callable[..., Scene], memory: str, mode: str
) -> None:
    made = scene(60 * MB, memory, mode)
    with pytest.raises(MemoryBudgetError) as caught:
        made.train(1000)
    error = caught.value
    assert error.exit_code == ExitCode.JOB_FAILED
    assert "resources.memory allows" in error.message and "'grows' " in error.message
    assert "tables.grows.evict_after_samples" in error.hint
    assert ('tuner.memory = "act"' in error.hint) == (memory != "act")


def test_a_want_that_passes_ends_nothing(scene: Callable[..., Scene]) -> None:
    """What was refused once is granted at the next look."""
    made = scene(60 * MB, "off")
    made.look()
    words = made.arena.board.server(0)
    words.grant(words.taken, 0)
    with pytest.raises(MemoryBudgetError):
        made.see()
    made.look()
    assert made.see() == 2000
    for _ in range(100):
        made.look()
    assert made.said == []


def test_with_a_way_out_ids_go_without_a_row_until_some_is_free(scene: Callable[..., Scene]) -> None:
    made = scene(60 * MB, "act")
    made.train(100)
    assert [kind for kind, text in made.said if "all of the" in text] == ["warning"]
    assert made.arena.board.leaves_out
    assert made.see(500) < 500
    made.arena.board.set_horizon(1, 1)
    for bucket in range(BUCKETS_PER_TABLE):
        made.store.evict(1, bucket, 1 << 40)
    for _ in range(2):
        made.store.confirm_grace()
    assert made.see(500) == 500
    for _ in range(30):
        made.look()
    assert not made.arena.board.leaves_out
    (said,) = [text for kind, text in made.said if kind == "memory" and "get rows again" in text]
    assert f"{made.arena.board.server(0).left_out} sightings went without one" in said


def test_processes_that_are_to_come_and_those_that_were_measured_count(scene: Callable[..., Scene]) -> None:
    made = scene(60 * MB, "off")
    facts = made.watch._grant({SUPERVISOR: 3, FORK_SERVER: 4, 77: 10**9})
    assert facts[0].private_bytes == EXPECTED_BYTES + 7, "the planned PS, and nobody else's process"
    assert facts[0].left_bytes > 0


def test_new_ids_end_with_the_epoch_in_which_all_have_their_rows(scene: Callable[..., Scene]) -> None:
    made = scene(60 * MB, "act")
    assert made.watch._new_ids_until(made.ledger, 490_000) == 490_000 + 500_000
    made.ledger.samples_accounted = 1_500_000
    assert made.watch._new_ids_until(made.ledger, 1_490_000) == 1_490_000, "they have ended"
    aged = scene(60 * MB, "act", evict_after_samples=100_000)
    assert aged.watch._new_ids_until(aged.ledger, 490_000) == 0, "dropped ones come again"


def test_what_is_in_force_outlives_a_supervisor(scene: Callable[..., Scene]) -> None:
    made = scene(60 * MB, "act")
    board = made.arena.board
    board.set_horizon(1, 77_000)
    board.set_admit_after(1, 4)
    watch: Any = made.watch
    again = MemoryWatch(watch._run, (made.arena,), watch._roster, 1 << 30)
    assert (again._actor.horizon, again._actor.admit_after, again._actor.shortens_own) == (77_000, 4, False)


def test_fixed_tables_alone_are_not_watched(tmp_path: Path, scene: Callable[..., Scene]) -> None:
    made = scene(60 * MB, "act")
    only = ModelSpec(made.arena.model.tables[:1], made.arena.model.embeddings[:1], made.arena.model.dense, 0, 1)
    arena = Arena.create(tmp_path, plan_layout(only, 7, 1 << 28))
    watch: Any = made.watch
    quiet = MemoryWatch(watch._run, (arena,), watch._roster, 1)
    assert not quiet.is_active
    arena.board.allowance(0).require(1 << 50, "whatever it needs")
    quiet.look(made.ledger, None, {}, 1e9)


def test_emulated_hosts_share_this_machine() -> None:
    assert memory_of_host(1 << 20, 1) == memory_of_host(1 << 20, 4) == 1 << 20
    assert memory_of_host(1 << 60, 1) == 1 << 60
    assert memory_of_host(1 << 60, 4) < 1 << 50


def test_what_is_memory_and_what_is_a_disk() -> None:
    assert not is_in_memory(Path("/proc"))
    if arena_root() == Path("/dev/shm"):
        assert is_in_memory(arena_root())
