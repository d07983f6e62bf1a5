"""Staged pushes are applied exactly once, however often and at whatever point their PS is killed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from elastichost.arena.arena import Arena
from elastichost.arena.layout import plan_layout
from elastichost.arena.recovery import undo
from elastichost.errors import ProtocolError
from elastichost.ps import applier as applier_module
from elastichost.ps.applier import RowApplier
from elastichost.ps.rows import row_lines
from elastichost.ps.rows.row_lines import RowLines
from elastichost.ps.rows.store import RowStore
from elastichost.specs import Precision
from tests.effort import examples
from tests.ps.rows.test_store import ALL, DYNAMIC, model_of

WORKERS = (0, 1, 5)
POINTS = (
    "ps.push.staged",
    "ps.apply.before_undo",
    "ps.apply.midway",
    "ps.apply.before_finish",
    "ps.apply.after_finish",
)


class KilledError(BaseException):
    """Stands for SIGKILL: the content of the mapped files stays."""


class Bench:
    """An arena whose PS is killed at named points, and a twin arena whose PS is never killed."""

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
        """Repeats the call in which the PS was killed, as the worker and the supervisor do."""
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
    """Restores the crash points that `Bench` replaces."""
    for module in (undo, applier_module, row_lines):
        monkeypatch.setattr(module, "crash_point", lambda name: None)


class Kills(RuleBasedStateMachine):
    """Workers that start and die, batches that are committed or not, a PS that is killed at any point. The rows are
    those of a PS that applied each committed batch once, in the order of the commits."""

    @initialize()
    def make(self) -> None:
        self.before = [(module, module.crash_point) for module in (undo, applier_module, row_lines)]  # type: ignore[attr-defined]
        self.directory = tempfile.TemporaryDirectory()
        self.bench = Bench(Path(self.directory.name))
        self.incarnations = dict.fromkeys(WORKERS, 1)
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
        incarnation, sequence = self.incarnations[worker], self.sequence[worker]

        def act() -> None:
            applier = self.bench.applier
            applier.settle(worker, incarnation, self.committed[worker])
            if not applier.knows(worker, incarnation, sequence, epoch):
                applier.stage(worker, incarnation, sequence, epoch, 0.5, rows, bounds, gradients)

        self.bench.surviving(act, armed)
        assert self.bench.applier.knows(worker, incarnation, sequence, epoch)
        assert (worker, incarnation, sequence) in self.bench.applier.waiting()

    @rule(worker=st.sampled_from(WORKERS), armed=st.sampled_from(("", *POINTS)))
    def commit(self, worker: int, armed: str) -> None:
        if worker not in self.waiting:
            return
        rows, bounds, gradients = self.bench.gradients(self.waiting.pop(worker))
        self.bench.twin.update(rows, bounds, gradients, 0.5)
        incarnation = self.incarnations[worker]
        self.committed[worker] = self.sequence[worker]
        self.bench.surviving(lambda: self.bench.applier.settle(worker, incarnation, self.committed[worker]), armed)
        assert self.bench.applier.incarnation_waiting(worker) == 0

    @rule(worker=st.sampled_from(WORKERS))
    def die(self, worker: int) -> None:
        """The worker dies; its push that is not committed is dropped; the settlement may come twice."""
        incarnation = self.incarnations[worker]
        for _ in range(2):
            self.bench.applier.settle(worker, incarnation, self.committed[worker], is_over=True)
        self.waiting.pop(worker, None)
        self.incarnations[worker] += 1
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


MICROS = (0, 1, 2)


class StepKills(RuleBasedStateMachine):
    """Sync mode: micro-batches that are staged, staged again under another shard map, or dropped; a dense owner that
    commits a step when all its rows are staged; a PS that is killed at any point. Every committed step is applied once,
    in order, as the sum of its micro-batches in the order of their numbers, and nothing else is applied."""

    @initialize()
    def make(self) -> None:
        self.before = [(module, module.crash_point) for module in (undo, applier_module, row_lines)]  # type: ignore[attr-defined]
        self.directory = tempfile.TemporaryDirectory()
        self.bench = Bench(Path(self.directory.name))
        self.step = 1  # the first step that is not committed
        self.epoch = 1
        self.staged: dict[int, int] = {}  # micro-batch of the open step -> seed
        self.unapplied: dict[int, dict[int, int]] = {}  # committed step -> its micro-batches, while the PS may not know
        self.seed = 0

    def plain(self, step: int, micros: dict[int, int]) -> None:
        """Applies a committed step to the twin."""
        sums: dict[tuple[int, int], np.ndarray] = {}
        for _, seed in sorted(micros.items()):
            for key, line in lines_of(*self.bench.gradients(seed)).items():
                sums[key] = sums.get(key, np.zeros(len(line), np.float32)) + line
        if sums:
            self.bench.twin.update(*frame_of(sums), 0.5, step)

    def learn(self, committed: int) -> None:
        """Applies to the twin the steps up to `committed`, as the PS does when it receives that number."""
        for step in sorted(step for step in self.unapplied if step <= committed):
            self.plain(step, self.unapplied.pop(step))

    @rule(micro=st.sampled_from(MICROS), armed=st.sampled_from(("", *POINTS)))
    def push(self, micro: int, armed: str) -> None:
        """A duplicate, and a micro-batch that is computed again, has the same bits."""
        if micro not in self.staged:
            self.seed += 1
        seed = self.staged.get(micro, self.seed)
        rows, bounds, gradients = self.bench.gradients(seed)
        step, epoch = self.step, self.epoch

        def act() -> None:
            self.bench.applier.stage_micro(micro, step, epoch, 0.5, rows, bounds, gradients)

        self.bench.surviving(act, armed)
        self.staged[micro] = seed
        self.learn(self.step - 1)

    @rule(micro=st.sampled_from(MICROS), back=st.integers(1, 3))
    def push_late(self, micro: int, back: int) -> None:
        """A push of a step that is over changes nothing, also after a kill."""
        if self.step - back < 1 or not self.staged:
            return
        self.bench.applier.stage_micro(micro, self.step - back, self.epoch, 0.5, *self.bench.gradients(99))

    @rule(told=st.booleans(), armed=st.sampled_from(("", *POINTS)))
    def commit(self, told: bool, armed: str) -> None:
        """The dense owner has all micro-batches and commits. This PS is notified at once, or by the next step only."""
        self.unapplied[self.step] = self.staged
        self.step, self.staged = self.step + 1, {}
        if told:
            self.bench.surviving(lambda: self.bench.applier.settle_steps(self.step - 1), armed)
            self.learn(self.step - 1)

    @rule(drops=st.booleans(), armed=st.sampled_from(("", *POINTS)))
    def shard_map_changes(self, drops: bool, armed: str) -> None:
        """A PS that loses buckets drops pushes that are not committed; others keep them until they are staged again."""
        self.epoch += 1
        self.bench.surviving(lambda: self.bench.applier.settle_steps(self.step - 1, is_over=drops), armed)
        self.learn(self.step - 1)
        if drops:
            self.staged = {}
            assert self.bench.applier.waiting() == ()

    @rule()
    def kill_between(self) -> None:
        self.bench.open()

    @invariant()
    def rows_are_those_of_the_steps(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.bench.assert_equal()
        waiting = {(step, micro) for micro, incarnation, step in self.bench.applier.waiting() if incarnation == 0}
        assert waiting == {
            (step, micro) for step, micros in {**self.unapplied, self.step: self.staged}.items() for micro in micros
        }

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.close()
            for module, point in self.before:
                module.crash_point = point  # type: ignore[attr-defined]
            self.directory.cleanup()


Lines = dict[tuple[int, int], np.ndarray]
EMBEDDINGS = ((0, 8), (1, 4), (1, 4))  # (table, padded dim) of test_store's model


def lines_of(rows: np.ndarray, bounds: np.ndarray, frame: np.ndarray) -> Lines:
    """(table, row) -> the concatenated lines of all embeddings of the row."""
    found: dict[tuple[int, int], list[np.ndarray]] = {}
    at = 0
    for table, dim in EMBEDDINGS:
        for row in rows[bounds[table] : bounds[table + 1]].tolist():
            found.setdefault((table, row), []).append(frame[at : at + dim])
            at += dim
    assert at == len(frame)
    return {key: np.concatenate(parts) for key, parts in found.items()}


def frame_of(lines: Lines) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The inverse of `lines_of`: rows int64, bounds, float32 lines."""
    keys = sorted(lines)
    rows = [[row for table, row in keys if table == wanted] for wanted in (0, 1)]
    bounds = np.array([0, len(rows[0]), len(keys)])
    offsets = {0: 0, 1: 0, 2: 4}
    parts = [
        lines[table, row][offsets[number] : offsets[number] + dim]
        for number, (table, dim) in enumerate(EMBEDDINGS)
        for row in rows[table]
    ]
    return np.array([*rows[0], *rows[1]], np.int64), bounds, np.concatenate(parts).astype(np.float32)


StepKills.TestCase.settings = settings(max_examples=examples(25), stateful_step_count=25, deadline=None)
TestStepKills = StepKills.TestCase

Kills.TestCase.settings = settings(max_examples=examples(25), stateful_step_count=25, deadline=None)
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
def test_an_invalid_push_is_refused_and_the_waiting_one_stays(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    rows, bounds, gradients = bench.gradients(1)
    bench.applier.stage(0, 1, 1, 1, 1.0, rows, bounds, gradients)
    with pytest.raises(ProtocolError, match="batch 2 while the rows of batch 1"):
        bench.applier.stage(0, 1, 2, 1, 1.0, rows, bounds, gradients)
    with pytest.raises(ProtocolError, match="no row"):
        bench.applier.stage(1, 1, 1, 1, 1.0, rows + 5000, bounds, gradients)
    with pytest.raises(ProtocolError, match="floats"):
        bench.applier.stage(1, 1, 1, 1, 1.0, rows, bounds, gradients[1:])
    assert bench.applier.waiting() == ((0, 1, 1),)
    bench.applier.settle(0, 2, 9)  # the settlement of another incarnation changes nothing
    assert bench.applier.incarnation_waiting(0) == 1
    bench.close()


@pytest.mark.usefixtures("_own_points")
def test_rows_staged_under_a_newer_shard_map_replace_the_older_ones(tmp_path: Path) -> None:
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


@pytest.mark.usefixtures("_own_points")
def test_a_step_is_one_update_with_the_sum_of_its_micro_batches(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    pushes = [bench.gradients(seed) for seed in (1, 2)]
    for micro in (1, 0):
        bench.applier.stage_micro(micro, 7, 1, 0.5, *pushes[micro])
    assert bench.applier.waiting() == ((0, 0, 7), (1, 0, 7))
    assert not bench.applier.step_is_over(7)
    bench.applier.settle_steps(6)
    bench.assert_equal()
    bench.applier.settle_steps(7)
    first, second = (lines_of(*push) for push in pushes)
    sums = {key: first.get(key, 0) + second.get(key, 0) for key in first.keys() | second.keys()}
    bench.twin.update(*frame_of(sums), 0.5, 7)
    bench.assert_equal()
    assert bench.applier.step_is_over(7) and bench.applier.waiting() == ()
    bench.close()


@pytest.mark.usefixtures("_own_points")
def test_a_stale_step_is_ignored_also_by_a_successor(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    push = bench.gradients(1)
    bench.applier.stage_micro(0, 7, 1, 0.5, *push)
    bench.applier.settle_steps(7)
    bench.twin.update(*push, 0.5, 7)
    for _ in range(2):
        assert bench.applier.step_is_over(7) and not bench.applier.step_is_over(8)
        bench.applier.stage_micro(0, 7, 2, 0.5, *bench.gradients(2))
        bench.applier.stage_micro(1, 6, 2, 0.5, *bench.gradients(3))
        bench.applier.settle_steps(7, is_over=True)
        bench.assert_equal()
        bench.open()
    bench.close()


@pytest.mark.usefixtures("_own_points")
def test_a_ps_that_gives_buckets_up_applies_committed_pushes_and_drops_the_rest(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.applier.stage_micro(0, 7, 1, 0.5, *bench.gradients(1))
    bench.applier.settle_steps(6, is_over=True)
    assert bench.applier.waiting() == ()
    bench.assert_equal()
    push = bench.gradients(2)
    bench.applier.stage_micro(0, 7, 2, 0.5, *push)
    bench.applier.settle_steps(7, is_over=True)
    bench.twin.update(*push, 0.5, 7)
    bench.assert_equal()
    bench.close()


@pytest.mark.usefixtures("_own_points")
def test_the_same_micro_batch_under_a_newer_shard_map_replaces_the_older_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    whole, cut = bench.gradients(1), bench.gradients(2)
    bench.applier.stage_micro(0, 7, 1, 0.5, *whole)
    bench.applier.stage_micro(0, 7, 1, 0.5, *cut)  # ignored as a duplicate: a real one has the same bits
    bench.applier.stage_micro(1, 7, 1, 0.5, *whole)
    bench.applier.stage_micro(1, 7, 2, 0.5, *cut)
    bench.applier.settle_steps(7)
    first, second = lines_of(*whole), lines_of(*cut)
    sums = {key: first.get(key, 0) + second.get(key, 0) for key in first.keys() | second.keys()}
    bench.twin.update(*frame_of(sums), 0.5, 7)
    bench.assert_equal()
    bench.close()


@pytest.mark.usefixtures("_own_points")
def test_a_micro_batch_that_is_left_out_loses_rows_that_were_staged_before(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    other, left_out = bench.gradients(1), bench.gradients(2)
    nothing = np.zeros(0, np.int64), np.zeros(3, np.int64), np.zeros(0, np.float32)
    bench.applier.stage_micro(0, 7, 1, 0.5, *other)
    bench.applier.stage_micro(1, 7, 1, 0.5, *left_out)
    bench.applier.stage_micro(1, 7, 1, 1.0, *nothing)
    bench.applier.stage_micro(1, 7, 1, 0.5, *left_out)  # a late push of a worker that is dead now
    assert bench.applier.waiting() == ((0, 0, 7),)
    bench.applier.settle_steps(7)
    bench.twin.update(*other, 0.5, 7)
    bench.assert_equal()
    bench.applier.stage_micro(1, 8, 1, 0.5, *left_out)
    assert bench.applier.waiting() == ((1, 0, 8),), "a micro-batch is left out of its own step only"
    bench.close()


@pytest.mark.usefixtures("_own_points")
@pytest.mark.parametrize("point", POINTS[1:])
def test_a_kill_at_any_point_of_an_application_applies_it_once(tmp_path: Path, point: str) -> None:
    bench = Bench(tmp_path)
    rows, bounds, gradients = bench.gradients(1)
    bench.applier.stage(0, 1, 1, 1, 1.0, rows, bounds, gradients)
    bench.surviving(lambda: bench.applier.settle(0, 1, 1), point)
    assert bench.armed == "", "the PS did not reach the point"
    bench.twin.update(rows, bounds, gradients, 1.0)
    bench.assert_equal()
    assert bench.applier.waiting() == ()
    bench.close()
