"""The memory watch over a real arena (the test acts as the PS): when requests wait, when new ids get no row, when a job
ends, and what is learnt about memory."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.arena.host import arena_root, is_in_memory
from elastichost.arena.layout import plan_layout
from elastichost.config.job import load_job
from elastichost.errors import ExitCode, MemoryBudgetError
from elastichost.history.features import Estimates
from elastichost.host.inventory import memory_of_host
from elastichost.plan import Plan, ProcessId, ProcessSpec
from elastichost.ps.rows.store import RowStore
from elastichost.runs.decisions import Recorder
from elastichost.runs.events import MemoryBudgetSet, MemoryForecastFailed, MemoryFreed, MemoryFull
from elastichost.sharding import BUCKETS_PER_TABLE, even_shard_map
from elastichost.specs import DenseSpec, EmbeddingSpec, ModelSpec, RowOptimizerSpec, TableSpec
from elastichost.supervisor.memory.gauge import MemoryGauge
from elastichost.supervisor.memory.monitor import MemoryWatch
from elastichost.supervisor.memory.process_memory import EXPECTED_BYTES
from elastichost.tuner.memory.growth import forecast
from tests.supervisor.noted import Noted

MB = 1 << 20
PRIVATE = 5 * MB
SUPERVISOR, FORK_SERVER, SERVER = 1001, 1002, 1003
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
    """A model with a table of fixed size and a dynamic one."""
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
    """One host with one PS. noted: events; are_measured: whether the private memory of the PS, EXPECTED_BYTES, is
    measured already."""

    def __init__(
        self,
        directory: Path,
        budget: int,
        memory: str,
        mode: str = "async",
        known: Estimates = Estimates(),  # noqa: B008, frozen
        **of_model: int,
    ) -> None:
        self.arena = Arena.create(directory, plan_layout(model(**of_model), 7, 1 << 28))
        path = directory / "job.toml"
        path.write_text(JOB.format(memory=memory, mode=mode))
        servers = (ProcessSpec(role="server", index=0, cores=(), threads=1),)
        self.noted = Noted()
        self.now_s, self.grant_takes_s = 100.0, 0.0
        kinds = {"live": lambda *_: (), "working": lambda *_: self.workers, "named": lambda *_: None}
        fleet: Any = type("Fleet", (list,), kinds)
        self.workers: list[Any] = []
        self.are_measured = True
        record = SimpleNamespace(process=ProcessId("server", 0, 1), spec=servers[0], is_live=True, pid=SERVER)
        run: Any = SimpleNamespace(
            job=load_job(path, environ={}),
            plan=Plan(servers, "direct", "a test"),
            fleet=fleet([record]),
            supervisor_pid=SUPERVISOR,
            machines=None,
            elsewhere={},
            launcher=SimpleNamespace(server_pid=FORK_SERVER),
            now_s=lambda: self.now_s + self.grant_takes_s,
            **self.noted.attributes,
            recorder=Recorder(),
        )
        sharding: Any = SimpleNamespace(
            hosts={0: 0},
            shard_map=even_shard_map(self.arena.model.tables, (0,), epoch=1),
            was_published=True,
            is_published=True,
            holdings=SimpleNamespace(is_handed_over=True),
            know_room=lambda left_bytes: None,
            may_take=lambda host: True,
        )
        self.changes: Any = SimpleNamespace(is_open=False)  # no plan may change yet
        self.ledger: Any = SimpleNamespace(samples_planned=4_000_000, samples_accounted=500_000)
        self.watch = MemoryWatch(
            run, (MemoryGauge(0, self.arena),), sharding, (EXPECTED_BYTES + 2 * PRIVATE + budget,), known
        )
        self.arena.allowance = self.arena.board.allowance(0)
        self.store = RowStore(self.arena, 7)
        self.store.adopt([(0, 0), *((1, bucket) for bucket in range(BUCKETS_PER_TABLE))], initialise=True)
        self.key = 0

    def look(self, seconds: float = 0.1) -> None:
        """The watch takes a look after this time."""
        self.now_s += seconds
        private = {SUPERVISOR: PRIVATE, FORK_SERVER: PRIVATE, 99: 10**12}
        private |= {SERVER: EXPECTED_BYTES} if self.are_measured else {}
        self.watch.look(self.ledger, self.changes, private, self.now_s)

    def see(self, count: int = 2000) -> int:
        """Looks up new ids. Returns how many got a row."""
        keys = np.arange(self.key, self.key + count)
        self.key += count
        return int(np.count_nonzero(self.store.rows_for(1, keys, True, 0) >= 0))

    def train(self, turns: int) -> None:
        """Looks up new ids in every turn, also after a refusal. Raises what the watch raises."""
        for _ in range(turns):
            self.look()
            with contextlib.suppress(MemoryBudgetError):
                self.see()


@pytest.fixture
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Scene]]:
    """Makes scenes; their arenas are closed at the end."""
    made: list[Scene] = []

    def make(*facts: Any, **more: Any) -> Scene:
        made.append(Scene(tmp_path_factory.mktemp("arena"), *facts, **more))
        return made[-1]

    yield make
    for one in made:
        one.arena.close()


@pytest.fixture(autouse=True)
def files_are_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arena's file system counts as memory, wherever the tests run."""
    monkeypatch.setattr("elastichost.supervisor.memory.gauge.is_in_memory", lambda path: True)


@pytest.mark.parametrize(("memory", "mode"), [("off", "async"), ("watch", "async"), ("act", "sync")])
def test_a_job_that_cannot_free_memory_ends_and_names_the_table_that_grew(
    scene: Callable[..., Scene], memory: str, mode: str
) -> None:
    made = scene(60 * MB, memory, mode)
    with pytest.raises(MemoryBudgetError) as caught:
        made.train(1000)
    error = caught.value
    assert error.exit_code == ExitCode.JOB_FAILED
    assert "resources.memory allows" in error.message and "'grows' " in error.message
    assert "set evict_after_samples or admit_after of tables.grows" in error.hint
    assert ('tuner.memory = "act"' in error.hint) == (memory != "act")


def test_a_request_that_is_refused_once_does_not_end_the_job(scene: Callable[..., Scene]) -> None:
    """It is granted at the next look."""
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
    assert made.noted.kinds == ["memory_budget_set"]


def test_new_ids_get_no_row_until_memory_is_free(scene: Callable[..., Scene]) -> None:
    made = scene(60 * MB, "act")
    made.train(100)
    (full,) = made.noted.of(MemoryFull)
    assert not full.is_files, "all of the budget is used"
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
    (freed,) = made.noted.of(MemoryFreed)
    assert freed.left_out == made.arena.board.server(0).left_out


def test_planned_processes_count_with_an_expected_size_until_they_are_measured(scene: Callable[..., Scene]) -> None:
    made = scene(60 * MB, "off")
    facts = made.watch._grant({SUPERVISOR: 3, FORK_SERVER: 4, 77: 10**9})
    assert facts[0].private_bytes == EXPECTED_BYTES + 7, "the planned PS counts, and no process of another run"
    assert facts[0].left_bytes > 0
    facts = made.watch._grant({SUPERVISOR: 3, FORK_SERVER: 4, SERVER: 5})
    assert facts[0].private_bytes == 12


def test_the_budget_is_reported_once_when_all_processes_are_measured(scene: Callable[..., Scene]) -> None:
    made = scene(60 * MB, "watch")
    made.are_measured = False
    for _ in range(30):
        made.look()
    assert made.noted.events == []
    made.are_measured = True
    for _ in range(30):
        made.look()
    (event,) = made.noted.of(MemoryBudgetSet)
    assert made.noted.events == [event]
    assert event.budget_bytes == EXPECTED_BYTES + 2 * PRIVATE + 60 * MB
    assert event.private_bytes == EXPECTED_BYTES + 2 * PRIVATE
    assert event.forecast_bytes is None, "the history has no similar job"


def test_no_job_ends_before_its_processes_are_measured(scene: Callable[..., Scene]) -> None:
    """Until then they count with an expected size, which may be larger than their real size."""
    made = scene(20 * MB, "off")
    made.are_measured = False
    made.train(60)
    assert made.watch._shortage._full_s is not None, "some requests could not be granted"
    made.are_measured = True
    with pytest.raises(MemoryBudgetError):
        made.train(20)


def test_new_ids_are_expected_until_the_end_of_the_first_epoch(scene: Callable[..., Scene]) -> None:
    made = scene(60 * MB, "act")
    assert made.watch._new_ids_until(made.ledger, 490_000) == 490_000 + 500_000
    made.ledger.samples_accounted = 1_500_000
    assert made.watch._new_ids_until(made.ledger, 1_490_000) == 1_490_000, "after the first epoch there are none"
    aged = scene(60 * MB, "act", evict_after_samples=100_000)
    assert aged.watch._new_ids_until(aged.ledger, 490_000) == 0, "evicted ids come again as new ones"


def test_horizon_and_admission_stay_in_force_under_a_new_supervisor(scene: Callable[..., Scene]) -> None:
    made = scene(60 * MB, "act")
    board = made.arena.board
    board.set_horizon(1, 77_000)
    board.set_admit_after(1, 4)
    watch: Any = made.watch
    again = MemoryWatch(watch._run, (MemoryGauge(0, made.arena),), watch._sharding, (1 << 30,))
    assert (again._actor.horizon, again._actor.admit_after, again._actor.shortens_own) == (77_000, 4, False)


def test_a_new_supervisor_gives_ids_rows_again(scene: Callable[..., Scene]) -> None:
    made = scene(60 * MB, "act")
    made.train(100)
    assert made.arena.board.leaves_out
    watch: Any = made.watch
    MemoryWatch(watch._run, (MemoryGauge(0, made.arena),), watch._sharding, (1 << 40,))
    assert not made.arena.board.leaves_out


def test_a_bug_of_the_tuner_ends_the_forecast_and_not_the_run(
    scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("by nothing")

    made = scene(60 * MB, "act")
    monkeypatch.setattr("elastichost.supervisor.memory.monitor.decide", fails)
    made.train(100)
    assert made.noted.of(MemoryForecastFailed) == [MemoryForecastFailed("ZeroDivisionError", "by nothing")]
    assert made.arena.board.leaves_out, "memory is still granted within the budget"


@pytest.mark.parametrize(("takes_s", "least_s", "most_s"), [(0.0, 0.0, 0.1), (0.03, 0.9, 1.1), (0.5, 1.9, 2.1)])
def test_grants_use_a_small_part_of_the_supervisors_time(
    scene: Callable[..., Scene], takes_s: float, least_s: float, most_s: float
) -> None:
    made = scene(60 * MB, "off")
    made.grant_takes_s = takes_s
    watch: Any = made.watch
    granted, grant = list[float](), watch._grant
    watch._grant = lambda private: (granted.append(made.now_s), grant(private))[1]
    for _ in range(1000):
        made.look(0.01)
    between = np.diff(granted)
    assert least_s <= between.min() and between.max() <= most_s


def test_one_slow_grant_does_not_delay_the_next_ones(scene: Callable[..., Scene]) -> None:
    """On a busy machine the supervisor may not run for a quarter of a second."""
    made = scene(60 * MB, "off")
    watch: Any = made.watch
    for number in range(20):
        made.grant_takes_s = 0.25 if number == 15 else 0.001
        made.look()
    assert watch._grant_at_s - made.now_s <= 0.1


# --- what is learnt about the growth of memory ------------------------------------------------------------------------


def trained(made: Scene, until_s: int, *, since_s: int = 0, rate: int = 20_000) -> None:
    """Trains from second `since_s` to `until_s`; after n samples there are 6 n^0.75 rows."""
    made.workers = [SimpleNamespace(samples_per_s=float(rate), pid=SERVER)]
    dense = DenseStore(made.arena)
    for second in range(since_s + 1, until_s + 1):
        samples = made.ledger.samples_accounted = second * rate
        dense.load(np.zeros(8, np.float32), None, second, samples, 0)
        made.see(round(6 * samples**0.75) - made.key)
        for _ in range(10):
            made.look()


def test_the_forecast_of_a_job_uses_what_an_earlier_job_has_learnt(scene: Callable[..., Scene]) -> None:
    made = scene(600 * MB, "watch")
    trained(made, 40)
    found = made.watch.learnt(is_whole=True)
    assert math.exp(found.mean["beta"]) == pytest.approx(0.75, abs=0.05)
    live = made.watch._state.growth.points[-1][1]
    assert math.exp(found.mean["growth_bytes"]) == pytest.approx(live)
    assert math.exp(found.mean["rows_by_1e6_samples"]) == pytest.approx(6 * 1e6**0.75, rel=0.1)
    later = scene(600 * MB, "watch", known=found)
    trained(later, 2)
    (event,) = later.noted.of(MemoryBudgetSet)
    assert event.forecast_bytes is not None
    assert 0 < event.forecast_bytes[0] <= event.forecast_bytes[1]
    state: Any = later.watch._state
    foreseen = forecast(state.growth, 8e5)
    assert foreseen is not None
    assert foreseen.median == pytest.approx(6 * (8e5**0.75 - 4e4**0.75) * state.growth.row_bytes, rel=0.15)


def test_growth_is_learnt_only_until_the_first_action(scene: Callable[..., Scene]) -> None:
    made = scene(600 * MB, "watch")
    trained(made, 20)
    before = made.watch.learnt(is_whole=True)
    watch: Any = made.watch
    watch._actor.horizon = 9000
    trained(made, 25, since_s=20)
    after = made.watch.learnt(is_whole=True)
    assert set(before.mean) - set(after.mean) == {"growth_bytes"}
    assert after.mean["beta"] == before.mean["beta"]


def test_nothing_is_learnt_from_later_epochs(scene: Callable[..., Scene]) -> None:
    """An epoch has 1,000,000 samples; the next one has no new ids."""
    made = scene(600 * MB, "watch")
    trained(made, 50)
    first = made.watch.learnt(is_whole=True)
    more = made.ledger.samples_accounted
    for second in range(1, 20):
        made.ledger.samples_accounted = more + 20_000 * second
        DenseStore(made.arena).load(np.zeros(8, np.float32), None, 100 + second, more + 20_000 * second, 0)
        for _ in range(10):
            made.look()
    assert made.watch.learnt(is_whole=True) == first


def test_a_job_with_tables_of_fixed_size_only_is_not_watched(tmp_path: Path, scene: Callable[..., Scene]) -> None:
    made = scene(60 * MB, "act")
    only = ModelSpec(made.arena.model.tables[:1], made.arena.model.embeddings[:1], made.arena.model.dense, 0, 1)
    arena = Arena.create(tmp_path, plan_layout(only, 7, 1 << 28))
    watch: Any = made.watch
    quiet = MemoryWatch(watch._run, (MemoryGauge(0, arena),), watch._sharding, (1,))
    assert not quiet.is_active
    arena.board.allowance(0).require(1 << 50, "any size")
    quiet.look(made.ledger, None, {}, 1e9)


def test_the_memory_of_this_machine_is_divided_among_emulated_hosts() -> None:
    assert memory_of_host(1 << 20, 1) == memory_of_host(1 << 20, 4) == 1 << 20
    assert memory_of_host(1 << 60, 1) == 1 << 60
    assert memory_of_host(1 << 60, 4) < 1 << 50


def test_shared_memory_is_distinguished_from_a_disk() -> None:
    assert not is_in_memory(Path("/proc"))
    if arena_root() == Path("/dev/shm"):
        assert is_in_memory(arena_root())


@pytest.mark.parametrize(("servers", "may_start"), [("[1, 2]", True), ("[1, 1]", False), ("1", False)])
def test_buckets_move_to_a_host_without_a_ps_only_if_one_more_is_allowed(
    scene: Callable[..., Scene], servers: str, may_start: bool
) -> None:
    at = scene(1 << 26, "act")
    job = at.watch._run.job
    bounds = tuple(json.loads(servers)) if servers.startswith("[") else int(servers)
    resources = job.resources.model_copy(update={"servers": bounds})
    at.watch._run.job = job.model_copy(
        update={"resources": resources, "tuner": job.tuner.model_copy(update={"mode": "act"})}
    )
    at.watch._sharding.hosts = {}  # no PS serves on this host
    taken: list[bool] = []
    at.watch._granters = (SimpleNamespace(look=lambda fact, share, may_take: taken.append(may_take)),)
    at.watch._hosts([SimpleNamespace(host=0, reading=SimpleNamespace(live=np.zeros(2)))])
    assert taken == [may_start]
    at.watch._run.plan = msgspec.structs.replace(at.watch._run.plan, processes=at.watch._run.plan.processes * 2)
    at.watch._hosts([SimpleNamespace(host=0, reading=SimpleNamespace(live=np.zeros(2)))])
    assert taken == [may_start, False], "the run has as many PS as the job file allows"
