"""The dense vector: torch's optimizers, atomic commits, consistent readers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseOptimizerSpec, DenseStore
from elastichost.arena.words import announce, load_word
from elastichost.errors import ArenaError
from elastichost.specs import DenseSpec, DenseTensor, ModelSpec
from elastichost.wire.facts import AppliedBatch

MakeModel = Callable[..., ModelSpec]
MakeArena = Callable[..., Arena]
SGD = DenseOptimizerSpec(name="sgd", learning_rate=1.0)
OPTIMIZERS: list[tuple[DenseOptimizerSpec, Callable[[Any], torch.optim.Optimizer]]] = [
    (DenseOptimizerSpec("sgd", 0.1), lambda p: torch.optim.SGD(p, 0.1)),
    (
        DenseOptimizerSpec("sgd", 0.1, momentum=0.9, weight_decay=0.01),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    ),
    (
        DenseOptimizerSpec("adagrad", 0.1, eps=1e-10, weight_decay=0.01),
        lambda p: torch.optim.Adagrad(p, 0.1, eps=1e-10, weight_decay=0.01),
    ),
    (DenseOptimizerSpec("adam", 0.01), lambda p: torch.optim.Adam(p, 0.01)),
    (
        DenseOptimizerSpec("adam", 0.01, beta1=0.8, beta2=0.99, eps=1e-6, weight_decay=0.1),
        lambda p: torch.optim.Adam(p, 0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.1),
    ),
    (
        DenseOptimizerSpec("adamw", 0.01, beta1=0.8, beta2=0.99, eps=1e-6, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, 0.01, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.1),
    ),
]


@pytest.fixture
def store(make_model: MakeModel, make_arena: MakeArena) -> DenseStore:
    return DenseStore(make_arena(make_model(elements=1003, parameters=1000)))


def commit(
    store: DenseStore, vector: np.ndarray, sequence: int, *, worker: int = 0, incarnation: int = 1, **over: int
) -> int:
    facts = {"lease_id": 5, "stop": 100 * sequence, "samples": 90, "skipped": 10, **over}
    return store.apply_gradient(vector, SGD, 1.0, worker=worker, incarnation=incarnation, sequence=sequence, **facts)


@pytest.mark.parametrize("clip_norm", [0.0, 20.0, 1e9])
@pytest.mark.parametrize(("spec", "make"), OPTIMIZERS)
def test_optimizer_steps_equal_those_of_torch(
    store: DenseStore, spec: DenseOptimizerSpec, make: Callable[[Any], torch.optim.Optimizer], clip_norm: float
) -> None:
    spec = msgspec.structs.replace(spec, clip_norm=clip_norm)
    generator = torch.Generator().manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(1000, generator=generator))
    store.load(np.concatenate([parameter.detach().numpy(), np.zeros(3, np.float32)]), None, 0, 0, 0)
    optimizer = make([parameter])
    out = np.empty(1003, np.float32)
    for step in range(1, 8):
        scale = 1.0 if step < 4 else 0.5
        parameter.grad = torch.randn(1000, generator=generator)
        pushed = np.concatenate([parameter.grad.numpy(), np.full(3, step, np.float32)])
        for group in optimizer.param_groups:
            group["lr"] = spec.learning_rate * scale
        if clip_norm:  # the norms of these gradients are near 32
            torch.nn.utils.clip_grad_norm_([parameter], clip_norm)
        optimizer.step()
        version = store.apply_gradient(
            pushed, spec, scale, worker=0, incarnation=1, sequence=step, lease_id=0, stop=0, samples=1, skipped=0
        )
        assert store.read_into(out) == version == step
        np.testing.assert_allclose(out[:1000], parameter.detach().numpy(), rtol=1e-6, atol=1e-6)
        assert (out[1000:] == step).all(), "buffers are replaced by the pushed values"


@pytest.mark.parametrize(("spec", "_make"), OPTIMIZERS)
def test_frozen_parameters_keep_their_values(
    make_model: MakeModel, make_arena: MakeArena, spec: DenseOptimizerSpec, _make: object
) -> None:
    """Weight decay would shrink them although their gradients are 0, which torch's optimizers never do to them."""
    tensors = (
        DenseTensor("a", (400,), 0),
        DenseTensor("b", (300,), 400, is_frozen=True),
        DenseTensor("c", (300,), 700),
    )
    model = msgspec.structs.replace(make_model(elements=1000, parameters=1000), dense=DenseSpec(tensors, 1000, 1000))
    store = DenseStore(make_arena(model))
    start = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    store.load(start, None, 0, 0, 0)
    pushed = np.ones(1000, np.float32)
    pushed[400:700] = 0.0
    for step in range(1, 4):
        store.apply_gradient(
            pushed,
            spec,
            1.0,
            worker=0,
            incarnation=1,
            sequence=step,
            lease_id=5,
            stop=10 * step,
            samples=9,
            skipped=1,
        )
    assert store.applied(0, 1) == AppliedBatch(3, 5, 30, 27, 3), "the record of the worker is that of its pushes"
    found = store.state_copy().vector
    assert (found[400:700] == start[400:700]).all()
    assert (found[:400] != start[:400]).all()
    assert (found[700:] != start[700:]).all()


def test_a_gradient_within_the_limit_keeps_its_bits(store: DenseStore) -> None:
    generator = np.random.default_rng(1)
    start, pushed = generator.normal(size=(2, 1003)).astype(np.float32)
    facts = {"worker": 0, "incarnation": 1, "lease_id": 0, "stop": 0, "samples": 1, "skipped": 0}
    for spec, _ in OPTIMIZERS:
        found = []
        for clip_norm in (0.0, 1e6):
            store.load(start, None, 0, 0, 0)
            limited = msgspec.structs.replace(spec, clip_norm=clip_norm)
            store.apply_gradient(pushed, limited, 1.0, sequence=1, **facts)
            found.append(store.state_copy().vector.tobytes())
        assert found[0] == found[1]
        store.load(start, None, 0, 0, 0)
        store.apply_gradient(1000 * pushed, msgspec.structs.replace(spec, clip_norm=1e-3), 1.0, sequence=1, **facts)
        assert store.state_copy().vector.tobytes() != found[0]


def test_a_gradient_of_the_largest_numbers_is_clipped(store: DenseStore) -> None:
    pushed = np.full(1003, 3e38, np.float32)
    store.load(np.zeros(1003, np.float32), None, 0, 0, 0)
    facts = {"worker": 0, "incarnation": 1, "lease_id": 0, "stop": 0, "samples": 1, "skipped": 0}
    store.apply_gradient(pushed, DenseOptimizerSpec("sgd", 1.0, clip_norm=2.0), 1.0, sequence=1, **facts)
    moved = store.state_copy().vector[:1000]
    assert np.linalg.norm(moved.astype(float)) == pytest.approx(2.0)


def test_a_commit_carries_its_record(store: DenseStore) -> None:
    gradient = np.zeros(1003, np.float32)
    store.load(gradient, None, 40, 1000, 40, skipped=3, applied_batches=40)
    assert store.applied(0, 1) == AppliedBatch(0, 0, 0, 0, 0)
    assert commit(store, gradient, 1) == 41
    assert commit(store, gradient, 2) == 42
    assert commit(store, gradient, 1, worker=255, incarnation=3) == 43
    assert store.applied(0, 1) == AppliedBatch(sequence=2, lease_id=5, stop=200, samples=180, skipped=20)
    assert store.applied(255, 3).samples == 90
    assert store.applied(0, 2) == AppliedBatch(0, 0, 0, 0, 0), "another incarnation"
    assert commit(store, gradient, 1, incarnation=2) == 44
    assert store.applied(0, 2).samples == 90, "the totals of an incarnation begin at 0"
    assert (store.version(), store.samples_applied(), store.skipped(), store.applied_batches()) == (44, 1360, 43, 44)


def test_state_survives_attaching_and_loading(make_arena: MakeArena, store: DenseStore) -> None:
    adam = DenseOptimizerSpec("adam", 0.1)
    generator = np.random.default_rng(0)
    facts = {"worker": 0, "incarnation": 1, "lease_id": 0, "stop": 0, "samples": 1, "skipped": 0}
    gradients = generator.normal(size=(4, 1003)).astype(np.float32)
    for step in range(2):
        store.apply_gradient(gradients[step], adam, 1.0, sequence=step + 1, **facts)
    copy = store.state_copy()
    assert (copy.version, copy.step, copy.samples_applied) == (2, 2, 2)
    other = DenseStore(make_arena(store._arena.model))
    other.load(copy.vector, copy.state, copy.version, copy.samples_applied, copy.step)
    successor = DenseStore(Arena.attach(store._arena.directory))
    for step in range(2, 4):
        for writer in (successor, other):
            writer.apply_gradient(gradients[step], adam, 1.0, sequence=step + 1, **facts)
    assert np.array_equal(other.state_copy().vector, store.state_copy().vector)
    assert np.array_equal(other.state_copy().state, store.state_copy().state)
    assert store.version() == other.version() == 4


def test_an_unpublished_commit_has_no_effect(store: DenseStore) -> None:
    store.load(np.ones(1003, np.float32), None, 7, 0, 0)
    before = store.state_copy()
    sequence, _, half = store._begin()
    half.vector[:] = 99.0
    half.header[:] = 99
    out = np.empty(1003, np.float32)
    assert store.read_into(out) == 7
    assert np.array_equal(out, before.vector)
    assert commit(store, np.zeros(1003, np.float32), 1) == 8
    assert store.read_into(out) == 8
    assert (out[:1000] == 1.0).all()
    assert sequence == 2


def test_a_reader_that_is_always_overtaken_ends_with_an_error(
    store: DenseStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.load(np.ones(1003, np.float32), None, 7, 0, 0)
    announce(store._words, 1, 10)
    monkeypatch.setattr("elastichost.arena.dense.store._READ_TIMEOUT_S", 0.0)
    with pytest.raises(ArenaError, match="no consistent dense vector"):
        store.read_into(np.empty(1003, np.float32))


@pytest.mark.parametrize("moment", range(8))
def test_an_overtaken_reader_reads_the_applied_record_again(
    store: DenseStore, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """The dense owner commits three times between two words of a record that another PS reads."""
    store.load(np.ones(1003, np.float32), None, 7, 0, 0)
    commit(store, np.ones(1003, np.float32), 1)
    true = [store.applied(0, 1)]
    loads, load = iter(range(1000)), load_word

    def overtaken(words: np.ndarray, position: int) -> int:
        if next(loads) == moment:
            for sequence in range(2, 5):
                commit(store, np.ones(1003, np.float32), sequence)
        return load(words, position)

    monkeypatch.setattr("elastichost.arena.dense.store.load_word", overtaken)
    found = store.applied(0, 1)
    monkeypatch.undo()
    true.append(store.applied(0, 1))
    assert true[1].sequence == 4, "the reader was not overtaken"
    assert found in true


def test_wrong_sizes_and_workers_are_refused(store: DenseStore) -> None:
    with pytest.raises(ArenaError, match=r"must be float32 \[1003\]"):
        store.read_into(np.empty(1000, np.float32))
    with pytest.raises(ArenaError, match="vector is float64"):
        store.load(np.zeros(1003, np.float64), None, 0, 0, 0)
    with pytest.raises(ArenaError, match="out of range .0 to 255"):
        store.mailbox(256, 0)
    with pytest.raises(ArenaError, match="mailbox half 2 is out of range"):
        store.mailbox(0, 2)


def test_mailboxes_are_shared_and_apart(store: DenseStore) -> None:
    other = DenseStore(Arena.attach(store._arena.directory))
    store.mailbox(3, 0).vector[:] = 1.0
    store.mailbox(3, 1).vector[:] = 2.0
    store.mailbox(255, 1).vector[:] = 3.0
    assert (other.mailbox(3, 0).vector == 1.0).all()
    assert (other.mailbox(3, 1).vector == 2.0).all()
    assert (other.mailbox(255, 1).vector == 3.0).all()


def test_released_pushes_that_are_not_committed_are_found_in_order(store: DenseStore) -> None:
    other = DenseStore(Arena.attach(store._arena.directory))
    assert other.posted(3, 1) == ()
    store.mailbox(3, 1).post(1, 5, b"five")
    store.mailbox(3, 0).post(1, 4, b"four")
    assert other.posted(3, 1) == (b"four", b"five")
    assert other.posted(3, 2) == other.posted(2, 1) == (), "another incarnation and another worker have none"
    nothing = np.zeros(1003, np.float32)
    store.apply_gradient(
        nothing,
        DenseOptimizerSpec(name="sgd"),
        1.0,
        worker=3,
        incarnation=1,
        sequence=4,
        lease_id=1,
        stop=9,
        samples=9,
        skipped=0,
    )
    assert other.posted(3, 1) == (b"five",)
    with pytest.raises(ArenaError, match="room for 488"):
        store.mailbox(3, 0).post(1, 6, b"x" * 489)


WRITER = """
import sys
from pathlib import Path
import numpy as np
from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseOptimizerSpec, DenseStore
store = DenseStore(Arena.attach(Path(sys.argv[1])))
gradient = np.full(20_000, -1.0, np.float32)
sequence = store.applied(0, 1).sequence
while True:
    sequence += 1
    store.apply_gradient(gradient, DenseOptimizerSpec("sgd", 1.0), 1.0, worker=0, incarnation=1, sequence=sequence,
                         lease_id=1, stop=sequence, samples=1, skipped=0)
    if sequence % 50 == 0:
        print(sequence, flush=True)
"""


def test_a_killed_writer_leaves_one_whole_commit_and_readers_see_no_mix(
    make_model: MakeModel, make_arena: MakeArena
) -> None:
    arena = make_arena(make_model(elements=20_000, parameters=20_000))
    store, out = DenseStore(arena), np.zeros(20_000, np.float32)
    store.load(out, None, 0, 0, 0)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(3):
        command = [sys.executable, "-c", WRITER, str(arena.directory)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as writer:
            try:
                assert writer.stdout is not None
                assert writer.stdout.readline()
                for _ in range(200):
                    version = store.read_into(out)
                    assert (out == version).all()
            finally:
                writer.send_signal(signal.SIGKILL)
        version = store.read_into(out)
        assert (out == version).all()
        assert store.applied(0, 1).sequence == store.samples_applied() == store.state_copy().step == version
