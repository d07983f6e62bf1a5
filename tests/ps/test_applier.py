"""Staged pushes: applied exactly once whenever and however often their PS is killed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from elastichost.arena import undo
from elastichost.arena.arena import Arena
from elastichost.arena.layout import plan_layout
from elastichost.errors import ProtocolError
from elastichost.ps import applier as applier_module
from elastichost.ps import row_lines
from elastichost.ps.applier import RowApplier
from elastichost.ps.row_lines import RowLines
from elastichost.ps.store import RowStore
from elastichost.specs import Precision
from tests.ps.test_store import ALL, DYNAMIC, model_of

WORKERS = (0, 1, 5)
POINTS = (
    "ps.push.staged",
    "ps.apply.before_undo",
    "ps.apply.midway",
    "ps.apply.before_finish",
    "ps.apply.after_finish",
)


class KilledError(BaseException):
    """Stands for SIGKILL: whatever is in the mapped files stays."""


class Bench:
    """An arena whose PS is killed at named points, and a twin that nothing ever happens to."""

    def __init__(self, directory: Path, precision: Precision = "float32") -> None:
        self.arenas: list[Arena] = []
        for name in ("killed", "twin"):
            (directory / name).mkdir()
            self.arenas.append(Arena.create(directory / name, plan_layout(model_of(precision=precision), 7, 1 << 24)))
        keys = np.arange(400, dtype=np.int64) * 7919
        for arena in self.arenas:
            store = RowStore(arena, 7)
            store.adopt(ALL, initialise=True)
            self.dynamic_rows = store.rows_for(DYNAMIC, keys, True, 0)
        self.twin = RowLines(self.arenas[1])
        self.armed = ""
        self.took_back = 0
        for module in (undo, applier_module, row_lines):
            module.crash_point = self.point  # type: ignore[attr-defined]
        self.open()

    def open(self) -> None:
        self.applier = RowApplier(self.arenas[0].directory, 3, 2, RowLines(self.arenas[0]))
        self.took_back += self.applier.took_back

    def point(self, name: str) -> None:
        if name == self.armed:
            self.armed = ""
            raise KilledError

    def gradients(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        draw = np.random.default_rng(seed)
        fixed = draw.choice(2500, 40, replace=False)
        dynamic = draw.choice(self.dynamic_rows, 30, replace=False)
        bounds = np.array([0, len(fixed), len(fixed) + len(dynamic)])
        floats = self.twin.floats(bounds)
        return np.concatenate([fixed, dynamic]), bounds, draw.normal(size=floats).astype(np.float32)

    def surviving(self, act: Callable[[], None], armed: str) -> None:
        """Repeats what was killed, as the worker and the supervisor do."""
        self.armed = armed
        while True:
            try:
                act()
            except KilledError:
                self.open()
                continue
            self.armed = ""
            return

    def assert_equal(self) -> None:
        killed, twin = (
            [a.files.rows.array(np.uint8, 0, 1 << 16), a.files.state.array(np.uint8, 0, 1 << 14)] for a in self.arenas
        )
        for mine, other in zip(killed, twin, strict=True):
            assert np.array_equal(mine, other)
        for e in range(3):
            rows = np.arange(2500) if e == 0 else self.dynamic_rows
            assert np.array_equal(self.arenas[0].rows_view(e)[rows], self.arenas[1].rows_view(e)[rows])
            states = [arena.state_view(e) for arena in self.arenas]
            if states[0] is not None and states[1] is not None:
                assert np.array_equal(states[0][rows], states[1][rows])

    def close(self) -> None:
        self.applier.close()
        for arena in self.arenas:
            arena.close()


@pytest.fixture
def _own_points(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (undo, applier_module, row_lines):
        monkeypatch.setattr(module, "crash_point", lambda name: None)


class Kills(RuleBasedStateMachine):
    """Workers that live and die, batches that are committed or not, a PS killed anywhere: the rows are those of a PS
    that applied each committed batch once, in the order of the commits."""

    @initialize()
    def make(self) -> None:
        self.before = [(module, module.crash_point) for module in (undo, applier_module, row_lines)]  # type: ignore[attr-defined]
        self.directory = tempfile.TemporaryDirectory()
        self.bench = Bench(Path(self.directory.name))
        self.lives = dict.fromkeys(WORKERS, 1)
        self.sequence = dict.fromkeys(WORKERS, 0)
        self.committed = dict.fromkeys(WORKERS, 0)
        self.waiting: dict[int, int] = {}  # worker -> seed of the push that waits
        self.seed = 0

    @rule(worker=st.sampled_from(WORKERS), armed=st.sampled_from(("", *POINTS)), epoch=st.integers(1, 3))
    def push(self, worker: int, armed: str, epoch: int) -> None:
        if worker in self.waiting:
            return
        self.seed += 1
        self.sequence[worker] += 1
        self.waiting[worker] = self.seed
        rows, bounds, gradients = self.bench.gradients(self.seed)
        life, sequence = self.lives[worker], self.sequence[worker]

        def act() -> None:
            applier = self.bench.applier
            applier.settle(worker, life, self.committed[worker])
            if not applier.knows(worker, life, sequence, epoch):
                applier.stage(worker, life, sequence, epoch, 0.5, rows, bounds, gradients)

        self.bench.surviving(act, armed)
        assert self.bench.applier.knows(worker, life, sequence, epoch)
        assert (worker, life, sequence) in self.bench.applier.waiting()

    @rule(worker=st.sampled_from(WORKERS), armed=st.sampled_from(("", *POINTS)))
    def commit(self, worker: int, armed: str) -> None:
        if worker not in self.waiting:
            return
        rows, bounds, gradients = self.bench.gradients(self.waiting.pop(worker))
        self.bench.twin.update(rows, bounds, gradients, 0.5)
        life = self.lives[worker]
        self.committed[worker] = self.sequence[worker]
        self.bench.surviving(lambda: self.bench.applier.settle(worker, life, self.committed[worker]), armed)
        assert self.bench.applier.life_waiting(worker) == 0

    @rule(worker=st.sampled_from(WORKERS))
    def die(self, worker: int) -> None:
        """The worker dies; what it had not committed is dropped; a settlement may come twice."""
        life = self.lives[worker]
        for _ in range(2):
            self.bench.applier.settle(worker, life, self.committed[worker], is_over=True)
        self.waiting.pop(worker, None)
        self.lives[worker] += 1
        self.sequence[worker] = self.committed[worker] = 0

    @rule()
    def kill_between(self) -> None:
        self.bench.open()

    @invariant()
    def rows_are_those_of_the_commits(self) -> None:
        if hasattr(self, "bench"):
            self.bench.assert_equal()
            assert {entry[0] for entry in self.bench.applier.waiting()} == set(self.waiting)

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.close()
            for module, point in self.before:
                module.crash_point = point  # type: ignore[attr-defined]
            self.directory.cleanup()


Kills.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestKills = Kills.TestCase


@pytest.mark.usefixtures("_own_points")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_half_an_application_is_taken_back(tmp_path: Path, precision: Precision) -> None:
    bench = Bench(tmp_path, precision)
    rows, bounds, gradients = bench.gradients(1)
    bench.applier.stage(0, 1, 1, 1, 1.0, rows, bounds, gradients)
    bench.armed = "ps.apply.midway"
    with pytest.raises(KilledError):
        bench.applier.settle(0, 1, 1)
    assert not np.array_equal(bench.arenas[0].rows_view(0)[:2500], bench.arenas[1].rows_view(0)[:2500])
    bench.open()
    assert bench.took_back == 1
    bench.assert_equal()
    assert bench.applier.waiting() == ((0, 1, 1),)
    bench.close()


@pytest.mark.usefixtures("_own_points")
def test_what_cannot_be_staged_is_refused_and_what_waits_stays(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    rows, bounds, gradients = bench.gradients(1)
    bench.applier.stage(0, 1, 1, 1, 1.0, rows, bounds, gradients)
    with pytest.raises(ProtocolError, match="batch 2 while those of batch 1"):
        bench.applier.stage(0, 1, 2, 1, 1.0, rows, bounds, gradients)
    with pytest.raises(ProtocolError, match="no row"):
        bench.applier.stage(1, 1, 1, 1, 1.0, rows + 5000, bounds, gradients)
    with pytest.raises(ProtocolError, match="floats"):
        bench.applier.stage(1, 1, 1, 1, 1.0, rows, bounds, gradients[1:])
    assert bench.applier.waiting() == ((0, 1, 1),)
    bench.applier.settle(0, 2, 9)  # of another life
    assert bench.applier.life_waiting(0) == 1
    bench.close()


@pytest.mark.usefixtures("_own_points")
def test_a_newer_shard_map_replaces_the_cut(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    rows, bounds, gradients = bench.gradients(1)
    bench.applier.stage(0, 1, 1, 1, 1.0, rows, bounds, gradients)
    other = bench.gradients(2)
    assert not bench.applier.knows(0, 1, 1, 2)
    bench.applier.stage(0, 1, 1, 2, 1.0, *other)
    bench.applier.settle(0, 1, 1)
    bench.twin.update(*other, 1.0)
    bench.assert_equal()
    assert bench.applier.knows(0, 1, 1, 3)
    bench.close()
