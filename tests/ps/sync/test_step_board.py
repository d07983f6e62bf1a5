"""The open step at the dense owner: the bits do not depend on the order of arrival; no micro-batch counts twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.errors import ProtocolError
from elastichost.ps.sync.step_board import StepBoard, StepGradient, StepWaiter
from elastichost.wire.data import DensePushMsg

PARAMETERS, ELEMENTS = 5, 7
Vector = np.ndarray[tuple[int], np.dtype[np.float32]]


def push(
    step: int, micro: int, micros: int, samples: int = 2, skipped: int = 0, *, is_left_out: bool = False
) -> DensePushMsg:
    """The push of a micro-batch of two positions."""
    return DensePushMsg(
        request=100 + micro,
        sequence=1,
        mailbox=-1,
        lease_id=7,
        epoch=1,
        unit=3,
        start=40 + 2 * micro,
        stop=42 + 2 * micro,
        samples=samples,
        skipped=skipped,
        want_parameters=False,
        learning_rate_scale=0.5,
        loss_sum=0.1 * (micro + 1),
        step=step,
        micro=micro,
        micros=micros,
        is_left_out=is_left_out,
    )


def vectors(seed: int, count: int) -> list[Vector]:
    """Vectors with elements of very different sizes, so that sums in another order have other bits."""
    draw = np.random.default_rng(seed)
    sizes = 10.0 ** draw.integers(-4, 5, size=(count, 1))
    return [row.astype(np.float32) for row in draw.normal(size=(count, ELEMENTS)) * sizes]


def committed(board: StepBoard, pushes: list[tuple[DensePushMsg, Vector]]) -> StepGradient:
    *first, last = pushes
    for message, vector in first:
        assert board.stage(message, vector) is None
    gradient = board.stage(*last)
    assert gradient is not None
    return gradient


@settings(deadline=None)
@given(st.integers(0, 1000), st.integers(1, 8), st.data())
def test_the_order_of_arrival_and_repeats_change_no_bit(seed: int, micros: int, data: st.DataObject) -> None:
    pushes = [(push(4, micro, micros), vector) for micro, vector in enumerate(vectors(seed, micros))]
    expected = committed(StepBoard(PARAMETERS), pushes)
    order = data.draw(st.permutations(range(micros)))
    board, seen = StepBoard(PARAMETERS), list[int]()
    for number in order[:-1]:
        seen.append(number)
        for again in (number, data.draw(st.sampled_from(seen))):  # unchanged, or damaged when it is repeated
            assert board.stage(pushes[again][0], pushes[again][1] * (1 if again == number else 2)) is None
    other = board.stage(*pushes[order[-1]])
    assert other is not None
    assert other.vector.tobytes() == expected.vector.tobytes()
    assert (other.loss_sum, other.samples, other.start, other.stop) == (
        expected.loss_sum,
        2 * micros,
        40,
        expected.stop,
    )


def test_gradients_are_summed_and_buffers_averaged_by_samples() -> None:
    first, second = np.arange(7, dtype=np.float32), np.full(7, 10, np.float32)
    gradient = committed(StepBoard(PARAMETERS), [(push(1, 0, 2, 1, 1), first), (push(1, 1, 2, 3, 0), second)])
    assert gradient.vector.tolist() == [10.0, 11.0, 12.0, 13.0, 14.0, 8.75, 9.0]
    assert (gradient.samples, gradient.skipped, gradient.lease_id, gradient.unit) == (4, 1, 7, 3)
    assert (gradient.start, gradient.stop, gradient.learning_rate_scale) == (40, 44, 0.5)
    assert gradient.loss_sum == pytest.approx(0.3)


def test_a_step_without_trained_samples_keeps_the_buffers() -> None:
    nothing = np.array([0, 0, 0, 0, 0, 3, 4], np.float32)
    gradient = committed(StepBoard(PARAMETERS), [(push(1, micro, 2, 0, 2), nothing) for micro in (0, 1)])
    assert gradient.vector.tolist() == nothing.tolist()
    assert (gradient.samples, gradient.skipped) == (0, 4)


def test_the_push_of_a_left_out_micro_batch_is_dropped_and_later_ones_are_ignored() -> None:
    """A worker may have pushed the micro-batch before it died. The push with `is_left_out` takes its place."""
    board, (first, second, third) = StepBoard(PARAMETERS), vectors(1, 3)
    left_out = np.concatenate([np.zeros(PARAMETERS, np.float32), first[PARAMETERS:]])
    assert board.stage(push(4, 0, 2), first) is None
    board.leave_out(4, 0)
    assert board.stage(push(4, 0, 2), second) is None
    assert board.stage(push(4, 0, 2, 0, 2, is_left_out=True), left_out) is None
    board.leave_out(4, 0)  # the message comes twice
    gradient = board.stage(push(4, 1, 2), third)
    assert gradient is not None
    assert gradient.left_out == (0,)
    assert gradient.vector.tobytes() == (left_out + third)[:PARAMETERS].tobytes() + third[PARAMETERS:].tobytes()
    assert (gradient.samples, gradient.skipped) == (2, 2)


def test_a_step_waits_for_the_final_push_of_a_micro_batch_that_is_left_out() -> None:
    board, (first, second) = StepBoard(PARAMETERS), vectors(1, 2)
    assert board.stage(push(4, 0, 2), first) is None
    board.leave_out(4, 0)
    assert board.stage(push(4, 1, 2), second) is None


def test_a_micro_batch_left_out_of_one_step_is_not_left_out_of_the_next() -> None:
    board, (first,) = StepBoard(PARAMETERS), vectors(1, 1)
    board.leave_out(4, 0)
    gradient = board.stage(push(5, 0, 1), first)
    assert gradient is not None
    assert gradient.left_out == ()


def test_micro_batches_of_other_steps_and_of_other_shard_maps_do_not_mix() -> None:
    board, (first, second) = StepBoard(PARAMETERS), vectors(1, 2)
    assert board.stage(push(4, 0, 2), first) is None
    assert board.stage(push(5, 1, 2), second) is None, "step 4 is over"
    board.forget()
    assert board.stage(push(5, 0, 2), first) is None, "a push under the older map does not count"
    gradient = board.stage(push(5, 1, 2), second)
    assert gradient is not None
    assert board.stage(push(5, 1, 2), second) is None, "a step is handed out once"


@pytest.mark.parametrize(("micro", "micros"), [(-1, 2), (2, 2), (0, 0)])
def test_a_micro_batch_number_out_of_range_is_refused(micro: int, micros: int) -> None:
    with pytest.raises(ProtocolError, match=f"micro-batch {micro} of {micros} of step 4"):
        StepBoard(PARAMETERS).stage(push(4, micro, micros), vectors(1, 1)[0])


def test_a_waiting_request_is_due_when_its_step_begins_and_is_dropped_by_a_new_map() -> None:
    board = StepBoard(PARAMETERS)
    for peer, request, step in [(b"a", 1, 5), (b"b", 2, 6), (b"a", 3, 6)]:
        board.wait(StepWaiter(peer, request, step))
    assert board.due(5) == (), "a peer's newer request replaces its older one"
    assert [waiter.request for waiter in board.due(6)] == [2, 3]
    assert board.due(6) == ()
    board.wait(StepWaiter(b"a", 4, 7))
    board.forget()
    assert board.due(9) == ()


def test_buffers_of_a_micro_batch_without_samples_have_no_say() -> None:
    """The buffer may be infinite there, and 0 times infinity is NaN."""
    first, second = vectors(3, 2)
    second[PARAMETERS:] = np.inf
    gradient = committed(StepBoard(PARAMETERS), [(push(1, 0, 2), first), (push(1, 1, 2, samples=0, skipped=2), second)])
    np.testing.assert_array_equal(gradient.vector[PARAMETERS:], first[PARAMETERS:])
