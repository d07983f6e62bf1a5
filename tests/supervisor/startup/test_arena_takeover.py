"""The takeover of a dead supervisor's arena: reasons to refuse it, and what is recovered from a real arena."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from elastichost.arena import host
from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseOptimizerSpec, DenseStore
from elastichost.arena.layout import plan_layout
from elastichost.arena.owner import Owner, owner_of
from elastichost.arena.recovery.device_residence import DeviceResidence, write_residence
from elastichost.arena.recovery.staging import StagingArea, stamp_of
from elastichost.arena.watermarks import Watermarks
from elastichost.plan import ProcessId
from elastichost.runs.events import AnyEvent, ArenaOpened, BatchTorn, JournalLine, LeaseGranted, RunStarted
from elastichost.runs.facts import ArenaOrigin, Lineage, TornBatches
from elastichost.specs import DenseSpec, EmbeddingSpec, ModelSpec, RowOptimizerSpec, TableSpec
from elastichost.supervisor.ledger.state import LedgerSettings
from elastichost.supervisor.startup.arena_takeover import (
    ArenaClaim,
    TakenOver,
    TakeoverRefusal,
    claim_arena,
    take_over_arena,
)
from elastichost.wire.applied import APPLIED_RECORD, applied_bytes, read_applied_content
from elastichost.wire.applied_fold import fold_records
from elastichost.wire.facts import CommittedBatch

SETTINGS = LedgerSettings(units=(40, 40), epochs=1, batch_size=4)
SEED = 7


def model_of(dim: int = 4) -> ModelSpec:
    """A model with one table."""
    table = TableSpec("t", 0, ("a",), "int", rows=100)
    optimizer = RowOptimizerSpec("sgd")
    embedding = EmbeddingSpec("e", 0, 0, "m", "bag", ("a",), dim, "sum", optimizer, -0.5, 0.5, "float32")
    return ModelSpec((table,), (embedding,), DenseSpec((), 4, 4), 1, 1)


@dataclass
class Left:
    """The remains of a dead supervisor: a run directory and an arena, after three batches of two workers."""

    run_dir: Path
    arena: Path
    owner: Owner

    def note(self, event: AnyEvent) -> None:
        """Appends a line to the journal."""
        line = JournalLine("2026-01-01T00:00:00.000Z", 0.0, event)
        with (self.run_dir / "journal.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")

    def take_over(
        self,
        model: ModelSpec | None = None,
        servers: tuple[int, ...] = (0,),
        seed: int = SEED,
        settings: LedgerSettings = SETTINGS,
        *,
        may_be_resident: bool = False,
    ) -> TakenOver | TakeoverRefusal:
        """Tries to take the arena over, for a job that may have changed."""
        claim = claim_arena(self.run_dir)
        try:
            facts = (model or model_of(), seed, settings, servers)
            more = {"in_place": True, "may_be_resident": may_be_resident}
            return take_over_arena(claim, self.run_dir, *facts, micros=1, **more)
        finally:
            claim.release()

    def refusal(self, **more: Any) -> str:
        """The reason why the takeover is refused; the arena keeps its owner."""
        found = self.take_over(**more)
        assert isinstance(found, TakeoverRefusal)
        assert not self.arena.exists() or host.read_owner(self.arena) == self.owner
        return found.reason


def arena_opened(arena: Path, origin: ArenaOrigin, lineage: Lineage | None = None) -> ArenaOpened:
    """The event of an arena of one host."""
    return ArenaOpened(str(arena), (str(arena),), 0, origin, lineage)


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Left:
    """The remains of a supervisor that was killed."""
    (tmp_path / "arenas").mkdir()
    monkeypatch.setenv("ELASTICHOST_ARENA_DIR", str(tmp_path / "arenas"))
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    owner = owner_of(child.pid, run_dir)
    child.kill()
    child.communicate()
    left = Left(run_dir, host.arena_directory("run"), owner)
    host.create_directory(left.arena, owner)
    arena = Arena.create(left.arena, plan_layout(model_of(), SEED, 1 << 24))
    dense = DenseStore(arena)
    dense.load(np.ones(4, np.float32), None, 1, 0, 0)
    left.note(RunStarted("run", "run"))
    left.note(arena_opened(left.arena, "new", Lineage(SETTINGS.data)))
    for number, (worker, incarnation) in enumerate(((0, 1), (1, 2))):
        process = ProcessId("worker", worker, incarnation)
        left.note(LeaseGranted(process, lease=number + 1, epoch=0, unit=number, start=0, stop=16))
    records = np.zeros(4, APPLIED_RECORD)
    for version, (worker, incarnation, sequence, unit, start) in enumerate(
        ((0, 1, 1, 0, 0), (1, 2, 1, 1, 0), (0, 1, 2, 0, 4)), 1
    ):
        for name, value in {
            "worker": worker, "incarnation": incarnation, "sequence": sequence, "lease_id": unit + 1, "unit": unit,
            "start": start, "stop": start + 4, "samples": 4,
        }.items():  # fmt: skip
            records[name][version] = value
        facts = {"lease_id": unit + 1, "stop": start + 4, "samples": 4, "skipped": 0}
        gradient = np.zeros(4, np.float32)
        dense.apply_gradient(
            gradient, DenseOptimizerSpec(), 1.0, worker=worker, incarnation=incarnation, sequence=sequence, **facts
        )
    (run_dir / "applied.bin").write_bytes(records.tobytes())
    arena.close()
    return left


def fold(run_dir: Path, first: int) -> None:
    """Folds the records of applied.bin before the record `first`."""
    content = read_applied_content(run_dir)
    found = fold_records(None, first, content.records[: first - 1])
    (run_dir / "applied.bin").write_bytes(applied_bytes(found, content.records[first - 1 :]))


@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_everything_is_recovered_and_the_arena_is_taken_over(left: Left, first: int) -> None:
    if first > 1:
        fold(left.run_dir, first)
    Watermarks(left.arena).note_begun(1, 2, 3)  # two batches had begun and were not committed
    left.note(BatchTorn(ProcessId("worker", 0, 1)))
    found = left.take_over()
    assert isinstance(found, TakenOver)
    assert (found.dense.version(), found.ledger.trained, found.ledger.samples_accounted) == (4, 12, 12)
    assert found.committed == {(0, 1): 2, (1, 1): 0, (1, 2): 1}
    assert found.torn == (TornBatches(1, 2, 2),)
    assert found.staged == {}
    owner = host.read_owner(left.arena)
    assert (owner.pid, owner.run_dir) == (os.getpid(), str(left.run_dir))
    held = host.hold(left.arena)
    assert held is not None, "the claim must be released"
    held.release()
    found.arena.close()


def test_a_fold_with_a_batch_that_was_not_committed_is_refused(left: Left) -> None:
    beyond = np.zeros(1, APPLIED_RECORD)
    beyond["sequence"], beyond["stop"], beyond["start"], beyond["samples"] = 9, 30, 20, 10
    with (left.run_dir / "applied.bin").open("ab") as file:
        file.write(beyond.tobytes())
    fold(left.run_dir, 5)
    assert "does not contain all 3" in left.refusal()


def test_a_record_after_the_committed_version_is_ignored(left: Left) -> None:
    beyond = np.zeros(1, APPLIED_RECORD)
    beyond["sequence"], beyond["stop"], beyond["start"], beyond["samples"] = 9, 30, 20, 10
    with (left.run_dir / "applied.bin").open("ab") as file:
        file.write(beyond.tobytes() + b"half")
    found = left.take_over()
    assert isinstance(found, TakenOver)
    assert found.ledger.trained == 12


def stage(left: Left, server: int) -> None:
    """Stages rows of one batch at a PS."""
    area = StagingArea(left.arena, server, 1)
    rows, bounds = np.arange(2, dtype=np.int64), np.array([0, 2], np.int64)
    area.write(1, stamp_of(2, 2), 1, 1.0, rows, bounds, np.zeros(8, np.float32))
    area.close()


def test_the_ps_with_staged_rows_are_known_and_needed(left: Left) -> None:
    stage(left, 1)
    refusal = left.take_over(servers=(0,))
    assert isinstance(refusal, TakeoverRefusal)
    assert refusal.needs_servers == 2
    found = left.take_over(servers=(0, 1))
    assert isinstance(found, TakenOver)
    assert found.staged == {(1, 2): frozenset({1})}
    assert CommittedBatch(1, 2, found.committed[1, 2]) in found.left


def test_other_models_seeds_and_layouts_do_not_fit(left: Left) -> None:
    assert "another model: embeddings" in left.refusal(model=model_of(8))
    assert "made with seed 7; job.seed is 8 now" in left.refusal(seed=8)
    layout = json.loads((left.arena / "LAYOUT.json").read_text())
    layout["version"] += 1
    (left.arena / "LAYOUT.json").write_text(json.dumps(layout))
    assert "another version" in left.refusal()
    for damaged in (b"{", (left.arena / "LAYOUT.json").read_bytes().replace(b'"name": "', b'"name": "\xff')):
        (left.arena / "LAYOUT.json").write_bytes(damaged)
        assert "is not an arena" in left.refusal()


@pytest.mark.parametrize(
    ("may_be_resident", "said"), [(False, "which this run does not use for it"), (True, "no process holds its model")]
)
def test_a_model_in_memory_of_a_gpu_that_is_out_of_reach(left: Left, said: str, *, may_be_resident: bool) -> None:
    write_residence(left.arena, DeviceResidence("a token", "GPU-7"))
    assert said in left.refusal(may_be_resident=may_be_resident)


def test_other_data_does_not_fit(left: Left) -> None:
    """Every position that was trained exists in the other data, too."""
    for units, size in (((40, 40, 40), "120 samples in 3 units"), ((16, 64, 1), "81 samples in 3 units")):
        other = msgspec.structs.replace(SETTINGS, units=units)
        assert (
            left.refusal(settings=other)
            == f"it was trained with data of 80 samples in 2 units; the data now has {size}"
        )


def test_records_with_missing_wrong_or_repeated_batches_do_not_fit(left: Left) -> None:
    path = left.run_dir / "applied.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[: 3 * APPLIED_RECORD.itemsize])
    assert "does not contain all 3" in left.refusal()
    records = np.frombuffer(whole, APPLIED_RECORD).copy()
    records["sequence"][2] = 0
    path.write_bytes(records.tobytes())
    assert "does not contain all 3" in left.refusal()
    records = np.frombuffer(whole, APPLIED_RECORD).copy()
    records["samples"][2] = 3
    path.write_bytes(records.tobytes())
    assert "applied.bin has 11 committed samples, but its dense vector has 12" in left.refusal()
    records["samples"][2], records["unit"][2], records["start"][2], records["stop"][2] = 4, 0, 2, 6
    path.write_bytes(records.tobytes())
    assert "committed twice" in left.refusal()


def test_an_arena_that_was_not_restored_completely_does_not_fit(left: Left) -> None:
    left.note(arena_opened(left.arena, "checkpoint"))
    assert "not all restored" in left.refusal()


def test_an_arena_that_another_process_still_uses_is_refused_after_a_wait(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("elastichost.supervisor.startup.arena_takeover.USERS_END_S", 0.1)
    script = (
        "import mmap, sys\n"
        f"file = open({str(left.arena / 'dense')!r}, 'r+b'); m = mmap.mmap(file.fileno(), 4096)\n"
        "print(1, flush=True); sys.stdin.read()"
    )
    user = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert user.stdout is not None
    user.stdout.readline()
    try:
        assert f"still use it: pid {user.pid}" in left.refusal()
    finally:
        user.kill()
        user.communicate()


def claim_reason(left: Left) -> str:
    """The reason why there is no claim to the arena."""
    claim: ArenaClaim = claim_arena(left.run_dir)
    assert claim.held is None
    assert claim.bytes == 0
    return claim.reason


def test_an_arena_that_is_held_or_has_another_owner_is_not_claimed(left: Left) -> None:
    held = host.hold(left.arena)
    assert held is not None
    with held:
        assert "another process removes" in claim_reason(left)
        for changed, reason in (
            ({"run_dir": "/elsewhere"}, "belongs to another run, /elsewhere"),
            ({"boot_id": "another"}, "last restart of this host"),
        ):
            held.take_over(msgspec.structs.replace(left.owner, **changed))
            held.release()
            assert reason in claim_reason(left)
            held = host.hold(left.arena)
            assert held is not None
        held.take_over(owner_of(os.getpid(), left.run_dir))
        held.release()
        assert "which is alive" in claim_reason(left)
    host.remove_owned(left.arena, owner_of(os.getpid(), Path()))
    assert "does not exist any more" in claim_reason(left)


def test_arenas_of_earlier_supervisors_of_the_run_are_removed(left: Left) -> None:
    old = host.arena_directory("older")
    host.create_directory(old, left.owner)
    early = host.hold_left(left.run_dir)
    assert len(early) == 2
    claim = claim_arena(left.run_dir, early)
    assert claim.held is not None
    assert claim.held.path == left.arena
    assert not old.exists()
    assert claim.bytes > 0
    claim.release()


def test_without_a_readable_journal_no_arena_is_claimed(left: Left) -> None:
    with (left.run_dir / "journal.jsonl").open("ab") as file:
        file.write(b'{"time_utc": "", "monotonic_s": 0.0, "event": {"kind": "epoch_started", "epoch": "first"}}\n')
    assert "journal cannot be read" in claim_reason(left)
    (left.run_dir / "journal.jsonl").unlink()
    assert "no journal" in claim_reason(left)
