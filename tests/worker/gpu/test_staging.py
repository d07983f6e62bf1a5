from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed: pip install triton")

from elastichost.gpu.step_inputs import StepInputs
from elastichost.worker.gpu.staging import Stager

CPU = torch.device("cpu")


def _batch(number: float, values: int = 6) -> StepInputs:
    filled = torch.full((values,), number)
    return StepInputs(filled.to(torch.int32), torch.arange(4, dtype=torch.int32), filled[:3, None], filled[:3, None])


def test_a_batch_that_waits_keeps_its_slot() -> None:
    stager = Stager(_batch(0), CPU)
    waiting = [stager.stage(_batch(number)) for number in range(1, 6)]
    assert [int(staged.inputs.values[0]) for staged in waiting] == [1, 2, 3, 4, 5]
    assert stager.slots == 5


def test_a_trained_batch_frees_its_slot() -> None:
    stager = Stager(_batch(0), CPU)
    for number in range(1, 9):
        staged = stager.stage(_batch(number))
        assert float(staged.inputs.dense[0, 0]) == number
        staged.is_trained = True
    assert stager.slots == 1


def test_a_batch_that_was_dropped_frees_its_slot() -> None:
    stager = Stager(_batch(0), CPU)
    for number in range(1, 9):
        stager.stage(_batch(number))  # its lease is given back: nobody keeps it
    assert stager.slots == 1


def test_inputs_may_be_copied_to_where_there_is_more_room() -> None:
    room = _batch(1, values=9)
    room.copy_from(_batch(2, values=4))
    assert room.values.tolist() == [2] * 4 + [1] * 5
    assert room.dense.tolist() == [[2.0]] * 3


def test_a_batch_may_have_fewer_values() -> None:
    stager = Stager(_batch(0, values=9), CPU)
    staged = stager.stage(_batch(2, values=4))
    assert staged.inputs.values.tolist()[:4] == [2] * 4
    assert len(staged.inputs.values) == 9
