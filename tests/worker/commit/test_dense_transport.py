"""The dense vector of the model: when a received, held or mapped version takes effect."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseOptimizerSpec, DenseStore
from elastichost.arena.layout import plan_layout
from elastichost.errors import ProtocolError
from elastichost.specs import ModelSpec
from elastichost.wire.codec import Envelope
from elastichost.wire.data import DataMessage, DensePushedMsg, PushedMsg
from elastichost.worker.commit.dense_transport import (
    GradientFrames,
    HeldParameters,
    MappedParameters,
    ReceivedParameters,
)
from elastichost.worker.model.dense_vector import FlatDense, describe_dense

ELEMENTS = 4


def flat() -> FlatDense:
    model = nn.Linear(3, 1)
    return FlatDense(model, describe_dense(model), torch.device("cpu"))


def sent(version: int, value: float, elements: int = ELEMENTS) -> Envelope[DataMessage]:
    vector = np.full(elements, value, np.float32)
    message = DensePushedMsg(request=1, sequence=1, version=version, samples_applied=10 * version)
    return Envelope(None, 1, message, (memoryview(vector).cast("B"),))


def no_request() -> Envelope[DataMessage]:
    raise AssertionError("the vector was requested, but no request is needed")


def test_received_parameters_are_in_the_model_at_once_unless_they_are_held() -> None:
    received, held = ReceivedParameters(flat()), HeldParameters(flat())
    for parameters, at_once in ((received, 1.0), (held, 0.0)):
        parameters.take(sent(1, 1.0))
        assert (parameters._flat.values == at_once).all()
        assert parameters.is_sent
        assert parameters.samples_applied == 10, "samples_applied is updated at once"
        parameters.refresh(no_request)
        assert (parameters._flat.values == 1.0).all()


@pytest.mark.parametrize("kind", [ReceivedParameters, HeldParameters])
def test_an_older_vector_does_not_replace_a_newer_one(kind: type[ReceivedParameters]) -> None:
    parameters = kind(flat())
    for version, value in ((2, 2.0), (1, 1.0)):
        parameters.take(sent(version, value))
    parameters.refresh(no_request)
    assert (parameters._flat.values == 2.0).all()
    parameters.take(sent(1, 1.0))
    parameters.refresh(no_request)
    assert (parameters._flat.values == 2.0).all()
    assert parameters.samples_applied == 20


@pytest.mark.parametrize("kind", [ReceivedParameters, HeldParameters])
def test_a_spoilt_vector_is_requested_again_unless_a_newer_one_was_received(kind: type[ReceivedParameters]) -> None:
    parameters = kind(flat())
    asked: list[float] = []

    def ask() -> Envelope[DataMessage]:
        asked.append(1.0)
        return sent(3, 3.0)

    parameters.refresh(ask)
    assert len(asked) == 1
    parameters.refresh(no_request)
    parameters._flat.values[:] = np.nan
    parameters.forget()
    parameters.refresh(ask)
    assert len(asked) == 2
    assert (parameters._flat.values == 3.0).all()
    parameters.forget()
    parameters.take(sent(4, 4.0))
    parameters.refresh(no_request)
    assert (parameters._flat.values == 4.0).all()
    parameters.fetch(lambda: sent(5, 5.0))
    assert (parameters._flat.values == 5.0).all()


def test_a_vector_of_another_size_is_refused() -> None:
    parameters = ReceivedParameters(flat())
    for envelope in (sent(1, 1.0, ELEMENTS + 1), Envelope(None, 1, PushedMsg(request=1), ())):
        with pytest.raises(ProtocolError, match="no dense vector of 16 bytes"):
            parameters.take(envelope)


def test_a_mapped_vector_is_read_when_its_version_changes(tmp_path: Path) -> None:
    model = nn.Linear(3, 1)
    spec = describe_dense(model)
    arena = Arena.create(tmp_path, plan_layout(ModelSpec((), (), spec, 3, 1), 7, 1 << 24))
    store = DenseStore(arena)
    store.load(np.full(ELEMENTS, 1.0, np.float32), None, 1, 0, 0)
    vector = FlatDense(model, spec, torch.device("cpu"))
    parameters = MappedParameters(vector, store)
    assert not parameters.is_sent
    parameters.refresh(no_request)
    assert (vector.values == 1.0).all()
    vector.values[:] = 7.0
    parameters.refresh(no_request)
    assert (vector.values == 7.0).all(), "the same version was read again"
    parameters.forget()
    parameters.fetch(no_request)
    assert (vector.values == 1.0).all()
    push = np.full(ELEMENTS, 1.0, np.float32)
    account = {"worker": 0, "incarnation": 1, "sequence": 1, "lease_id": 1, "stop": 4, "samples": 4, "skipped": 0}
    store.apply_gradient(push, DenseOptimizerSpec(name="sgd", learning_rate=0.5), 1.0, **account)
    parameters.refresh(no_request)
    assert (vector.values == 0.5).all()
    assert parameters.samples_applied == 4
    with pytest.raises(ProtocolError, match="did not request"):
        parameters.take(sent(9, 9.0))
    arena.close()


def test_two_pushes_have_a_vector_each_and_a_frame_is_a_copy() -> None:
    vector = flat()
    frames = GradientFrames(ELEMENTS)
    for sequence in (1, 2):
        vector.gradients.fill_(float(sequence))
        frames.write(vector, sequence)
    first, second = frames.frame(1), frames.frame(2)
    vector.gradients.fill_(3.0)
    frames.write(vector, 3)
    assert [np.asarray(frame).tolist() for frame in (first, second, frames.frame(3))] == [
        [float(sequence)] * ELEMENTS for sequence in (1, 2, 3)
    ]
