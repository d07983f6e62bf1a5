"""A bucket moves from one arena to another while it changes: it arrives with the same bits over any connection."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.arena.arena import Arena
from elastichost.arena.files import MappedFile
from elastichost.arena.index import table as index
from elastichost.arena.layout import plan_layout
from elastichost.errors import ArenaFullError, IllegalTransitionError, MemoryBudgetError, ProtocolError
from elastichost.plan import ProcessId
from elastichost.ps.frames import Outgoing
from elastichost.ps.rows.store import RowStore
from elastichost.ps.transfer import bucket_copy
from elastichost.ps.transfer.bucket_rows import BucketRows
from elastichost.ps.transfer.bucket_source import MAX_PART_BYTES, BucketSource
from elastichost.ps.transfer.changed_rows import ChangedRows
from elastichost.ps.transfer.mover import BucketReceiver
from elastichost.wire.codec import Envelope
from elastichost.wire.control import CopiedMsg
from elastichost.wire.data import BucketFetchMsg, BucketPartMsg, DataMessage, RetryMsg
from elastichost.wire.facts import BucketMove, ServerAddress
from tests.effort import examples
from tests.ps.rows.test_store import DYNAMIC, FIXED, model_of, update

MOVED = ((FIXED, 1), (FIXED, 2), (DYNAMIC, 3), (DYNAMIC, 8))
BUCKETS = [(FIXED, bucket) for bucket in range(3)] + [(DYNAMIC, bucket) for bucket in range(16)]
PLAIN = (0.0, 0.0, 0.0, 0.0)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every bucket consist of many parts."""
    monkeypatch.setattr(bucket_copy, "PART_BYTES", 4096)


class FaultyConnection:
    """A connection between the target and one incarnation of the source. It loses, repeats, delays and damages
    messages. faults: the probability of each."""

    def __init__(
        self, source: BucketSource, incarnation: int, sender: ProcessId, faults: Sequence[float], seed: int
    ) -> None:
        self.incarnation, self.sender, self.faults, self.random = incarnation, sender, faults, random.Random(seed)
        self.source: BucketSource | None = source
        self.asked: list[BucketFetchMsg] = []
        self.answers: list[Envelope[DataMessage]] = []
        self.damaged = self.ignored = 0

    def send(self, message: BucketFetchMsg) -> None:
        lost, twice, _, _ = self.faults
        if self.random.random() >= lost:
            self.asked += [message] * (1 + (self.random.random() < twice))

    def receive(self) -> Envelope[DataMessage] | None:
        """The source answers a request when the target looks for the answer."""
        late = self.faults[2]
        while self.asked and self.source is not None:
            message = self.asked.pop(self.random.randrange(len(self.asked)) if self.random.random() < late else 0)
            answers = self.source.handle(b"peer", self.sender, message)
            self.ignored += not answers
            for outgoing in answers:
                self._answer(outgoing)
        if not self.answers:
            return None
        return self.answers.pop(self.random.randrange(len(self.answers)) if self.random.random() < late else 0)

    def _answer(self, outgoing: Outgoing) -> None:
        lost, _, _, damaged = self.faults
        frames = [bytearray(np.ascontiguousarray(frame).tobytes()) for frame in outgoing.frames]
        if any(frames) and self.random.random() < damaged:
            frame = self.random.choice([frame for frame in frames if frame])
            frame[self.random.randrange(len(frame))] ^= 1 << self.random.randrange(8)
            self.damaged += 1
        if self.random.random() >= lost:
            views = tuple(map(memoryview, frames))
            self.answers.append(Envelope(ProcessId("server", 0, self.incarnation), 0, outgoing.message, views))

    def close(self) -> None:
        self.source = None


class Scene:
    """Two hosts: server-0 has all buckets, server-1 gets some of them."""

    def __init__(self, directory: Path, faults: Sequence[float] = PLAIN, seed: int = 1, **model: Any) -> None:
        self.faults, self.seed, self.now_s = faults, seed, 0.0
        self.random = np.random.default_rng(seed)
        layout = plan_layout(model_of(**model), 7, 1 << 24)
        self.arenas = []
        for name in ("has", "gets"):
            (directory / name).mkdir()
            self.arenas.append(Arena.create(directory / name, layout, whole=False))
        self.has, self.gets = RowStore(self.arenas[0], 7), RowStore(self.arenas[1], 7)
        self.has.adopt(BUCKETS, initialise=True)
        self.incarnation = 0
        self.connections: list[FaultyConnection] = []
        self.begin_incarnation()
        self.mover = BucketReceiver(BucketRows(self.arenas[1]), self.gets, self._connect)  # type: ignore[arg-type]
        self.numbers = 0

    def begin_incarnation(self) -> None:
        """Starts the next incarnation of the source, as after a kill."""
        owned = [bucket for bucket in BUCKETS if self.has.owns(*bucket)] if self.incarnation else BUCKETS
        self.incarnation += 1
        self.has = RowStore(self.arenas[0], 7)
        self.has.adopt(owned, initialise=True)
        self.changed = ChangedRows(self.arenas[0].layout)
        self.has.on_made = self.changed.made
        self.source = BucketSource(self.arenas[0], self.changed, self.has.owns)
        for connection in self.connections:
            connection.source = None

    def _connect(self, address: ServerAddress, channel: str) -> FaultyConnection:
        self.connections.append(
            FaultyConnection(
                self.source,
                address.incarnation,
                ProcessId("server", 1, 1),
                self.faults,
                self.seed + len(self.connections),
            )
        )
        return self.connections[-1]

    def copy(self, buckets: Sequence[tuple[int, int]] = MOVED) -> None:
        self.numbers += 1
        address = ServerAddress(0, self.incarnation, "ipc://there")
        self.mover.copy(self.numbers, [BucketMove(*bucket, address) for bucket in buckets])

    def _buckets(self, ids: np.ndarray) -> np.ndarray:
        return index.buckets_of(ids, self.arenas[0].index_place(DYNAMIC).shift)

    def train(self, keys: int = 300) -> None:
        """Makes rows for new ids, and updates rows of both tables."""
        ids = np.unique(self.random.integers(0, 20_000, keys))
        ids = ids[[self.has.owns(DYNAMIC, bucket) for bucket in self._buckets(ids)]]
        dynamic = self.has.rows_for(DYNAMIC, ids, True, 0)
        dynamic = dynamic[dynamic >= 0][::2]  # the other rows keep their initial weights
        fixed = np.unique(self.random.integers(0, 2500, 50))
        fixed = fixed[[self.has.owns(FIXED, bucket) for bucket in fixed // 834]]
        rows, bounds = np.concatenate([fixed, dynamic]), np.array([0, len(fixed), len(fixed) + len(dynamic)])
        update(self.has, rows, bounds, self.random.random(self.has.lines.floats(bounds), np.float32))
        self.changed.changed(rows, bounds)

    def turn(self) -> CopiedMsg | None:
        self.now_s += 0.5
        return self.mover.turn(self.now_s)

    def until_copied(self, train: int = 0) -> CopiedMsg:
        for _ in range(20_000):
            if (copied := self.turn()) is not None:
                return copied
            if train:
                self.train(train)
        raise AssertionError("the buckets were never copied")

    def hand_over(self, buckets: Sequence[tuple[int, int]] = MOVED) -> None:
        """Compares the buckets at the target after the move with those at the source before it."""
        expected = {bucket: self.has.snapshot_bucket(*bucket) for bucket in buckets}
        self.has.release(buckets)
        self.mover.freeze(buckets)
        self.until_whole(buckets)
        self.mended = sum(copy.mended for copy in self.mover._copies())
        self.mover.complete(buckets)
        for bucket, blocks in expected.items():
            arrived = self.gets.snapshot_bucket(*bucket)
            assert [block[:2] for block in arrived] == [block[:2] for block in blocks]
            for mine, its in zip(arrived, blocks, strict=True):
                assert mine.array.dtype == its.array.dtype and mine.array.tobytes() == its.array.tobytes()

    def until_whole(self, buckets: Sequence[tuple[int, int]] = MOVED) -> None:
        for _ in range(20_000):
            if self.mover.are_whole(buckets):
                return
            self.turn()
        raise AssertionError("the buckets were never whole")

    def close(self) -> None:
        for arena in self.arenas:
            arena.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def test_rows_that_change_during_the_copy_arrive_in_their_final_state(scene: Scene) -> None:
    scene.train()
    scene.copy()
    copied = scene.until_copied(train=20)
    assert copied.bytes > 0 and not copied.failure
    scene.train()
    scene.hand_over()
    keys = np.arange(20_000)
    before = scene.arenas[0].lookup(DYNAMIC, keys, rows := np.empty(len(keys), np.int64))
    after = scene.arenas[1].lookup(DYNAMIC, keys, there := np.empty(len(keys), np.int64))
    is_moved = np.isin(rows // scene.arenas[0].layout.bucket_capacity(DYNAMIC), (3, 8)) & (rows >= 0)
    assert before < after and np.array_equal(there[is_moved], rows[is_moved]), "ids keep their rows"
    assert scene.mended == 0
    made = scene.gets.rows_for(DYNAMIC, keys[is_moved], True, 0)
    assert np.array_equal(made, rows[is_moved])


def test_bfloat16_rows_and_rows_that_are_free_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, precision="bfloat16", optimizer="sgd", evict_after_samples=1000)
    scene.train()
    for bucket in (3, 8):
        assert scene.has.evict(DYNAMIC, bucket, 10**9)
    scene.copy()
    scene.until_copied()
    scene.hand_over()
    scene.close()


@pytest.mark.thorough
@settings(max_examples=examples(25), deadline=None)
@given(
    seed=st.integers(0, 10_000),
    faults=st.tuples(*[st.floats(0, 0.25)] * 3, st.sampled_from([0.0, 0.2])),
    deaths=st.lists(st.integers(1, 60), max_size=3),
)
def test_buckets_arrive_over_a_faulty_connection_from_a_ps_that_dies(
    seed: int, faults: tuple[float, ...], deaths: list[int]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        scene = Scene(Path(directory), faults, seed)
        scene.train()
        scene.copy()
        for turns in deaths:
            for _ in range(turns):
                scene.turn()
                scene.train(10)
            scene.begin_incarnation()
            scene.copy()
        scene.until_copied(train=5)
        scene.train()
        scene.hand_over()
        assert scene.mended == 0 or faults[3], "the source did not flag a changed row"
        scene.close()


def test_a_damaged_part_is_fetched_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path, (0.0, 0.0, 0.0, 0.3))
    scene.train()
    scene.copy()
    scene.until_copied()
    scene.hand_over()
    assert sum(connection.damaged for connection in scene.connections) > 10
    scene.close()


def test_a_part_that_differs_on_arrival_is_found_and_copied_again(scene: Scene) -> None:
    """A part differs, as after a memory fault at the target or a change that the source did not flag."""
    scene.train()
    scene.copy()
    scene.until_copied()
    row = scene.arenas[0].layout.bucket_first_row(DYNAMIC, 3)
    scene.arenas[1].rows_view(1)[row] += 1.0
    state = scene.arenas[0].state_view(0)
    assert state is not None
    state[scene.arenas[0].layout.bucket_first_row(FIXED, 1) + 5] += 1.0
    scene.hand_over()
    assert scene.mended == 2


def test_a_copy_goes_on_with_the_next_incarnation_of_a_source_that_has_released_the_buckets(scene: Scene) -> None:
    scene.train()
    scene.copy()
    scene.until_copied()
    scene.train()
    expected = scene.has.snapshot_bucket(*MOVED[0])
    scene.has.release(MOVED)
    scene.mover.freeze(MOVED)
    scene.turn()
    scene.begin_incarnation()
    scene.copy()
    scene.until_whole()
    scene.mover.complete(MOVED)
    assert scene.gets.snapshot_bucket(*MOVED[0])[0].array.tobytes() == expected[0].array.tobytes()


def test_the_checksum_of_an_owned_bucket_is_refused(scene: Scene) -> None:
    scene.copy()
    scene.until_copied()
    scene.mover.freeze(MOVED)
    for _ in range(200):
        scene.turn()
    assert not scene.mover.are_whole(MOVED[:1])
    scene.hand_over()


def test_forgotten_buckets_take_no_memory_and_can_be_adopted_again(scene: Scene) -> None:
    scene.train(5000)
    before = scene.arenas[0].touched_bytes()
    scene.copy()
    scene.until_copied()
    scene.hand_over()
    there = scene.arenas[1].touched_bytes()
    for bucket in MOVED:
        scene.has.forget(*bucket)
        scene.has.forget(*bucket)  # the order is repeated after a death
    assert scene.arenas[0].touched_bytes() < before
    assert all(scene.has.owns(*bucket) for bucket in BUCKETS if bucket not in MOVED)
    scene.train(0)
    with pytest.raises(ProtocolError, match="own"):
        scene.gets.forget(*MOVED[0])
    with pytest.raises(ProtocolError, match="own"):
        scene.gets.begin_move(*MOVED[0], 10)
    scene.gets.release(MOVED)
    for bucket in MOVED:
        scene.gets.forget(*bucket)
    assert scene.arenas[1].touched_bytes() < there
    scene.has.adopt(MOVED, initialise=True)
    assert len(scene.has.snapshot_bucket(DYNAMIC, 3)[0].array) == 0
    assert np.abs(scene.has.snapshot_bucket(FIXED, 1)[0].array).max() <= 0.5


def test_a_full_target_is_reported_and_the_copy_can_be_repeated(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.train()
    scene.copy()

    def full(*_: object) -> None:
        raise ArenaFullError("there is no room")

    monkeypatch.setattr(MappedFile, "allocate", full)
    with pytest.raises(ArenaFullError):
        scene.until_copied()
    copied = scene.mover.fail(MemoryBudgetError("no room"))
    assert (copied.copy, copied.failure, copied.is_full) == (1, "MemoryBudgetError: no room", True)
    assert not scene.mover.fail(ProtocolError("nonsense")).is_full
    assert scene.mover.clients == () and scene.turn() is None
    monkeypatch.undo()
    bucket_copy.PART_BYTES = 4096
    scene.mover.drop(MOVED)
    scene.copy()
    scene.until_copied()
    scene.hand_over()


def test_another_order_replaces_the_first(scene: Scene) -> None:
    scene.train()
    scene.copy(MOVED)
    for _ in range(5):
        scene.turn()
    scene.copy(MOVED[2:])
    scene.until_copied()
    scene.mover.copy(1, [])  # a late order, sent before the present one
    scene.hand_over(MOVED[2:])
    assert scene.mover.clients == ()


def test_one_round_after_the_other_from_the_same_ps(scene: Scene) -> None:
    for buckets in (MOVED[:1], MOVED[1:3], MOVED[3:]):
        scene.train()
        scene.copy(buckets)
        scene.until_copied(train=5)
        scene.hand_over(buckets)
        assert scene.mover.clients == ()
        scene.source.end(buckets)
        for bucket in buckets:
            scene.has.forget(*bucket)
    assert len(scene.connections) == 3 and not any(connection.ignored for connection in scene.connections)


# --- requests to the source -------------------------------------------------------------------------------------


def ask(scene: Scene, sender: ProcessId, **request: Any) -> list[BucketPartMsg | RetryMsg]:
    message = BucketFetchMsg(**{"request": 1, "table": FIXED, "bucket": 1, "what": "open", **request})
    return [outgoing.message for outgoing in scene.source.handle(b"", sender, message)]  # type: ignore[misc]


def test_impossible_requests_are_refused(scene: Scene) -> None:
    sender = ProcessId("server", 1, 2)
    with pytest.raises(ProtocolError):
        ask(scene, sender, bucket=3)
    with pytest.raises(ProtocolError):
        ask(scene, sender, table=7)
    (refused,) = ask(scene, sender, what="rows", stop=10)
    assert isinstance(refused, RetryMsg) and refused.final, "the copy was never opened"
    assert isinstance(ask(scene, sender, request=2)[0], BucketPartMsg)
    assert ask(scene, sender, request=2) == [], "a repeated request"
    assert ask(scene, ProcessId("server", 1, 1), request=9) == [], "a request of an older incarnation"
    with pytest.raises(ProtocolError):
        ask(scene, sender, request=3, what="rows", start=-1)
    (part,) = ask(scene, sender, request=4, what="rows", start=0, stop=10**9)
    assert isinstance(part, BucketPartMsg) and part.stop == part.rows == 834 < MAX_PART_BYTES
    (refused,) = ask(scene, ProcessId("server", 2, 1), what="rows", stop=10)
    assert isinstance(refused, RetryMsg) and refused.final, "another PS copies the bucket"


def test_a_copy_that_is_not_whole_is_not_taken_over(scene: Scene) -> None:
    copy = bucket_copy.BucketCopy(BucketRows(scene.arenas[1]), scene.gets, FIXED, 1)
    with pytest.raises(IllegalTransitionError):
        copy.complete()
