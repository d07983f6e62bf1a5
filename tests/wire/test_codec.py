"""The codec refuses everything except complete messages of this job."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.errors import ProtocolError
from elastichost.plan import ProcessId
from elastichost.wire.codec import MAX_BODY_BYTES, MAX_MESSAGE_BYTES, Codec
from elastichost.wire.control import ControlMessage, HelloMsg, LeaseGrantMsg
from elastichost.wire.data import DataMessage, PullMsg
from elastichost.wire.facts import Lease

WORKER = ProcessId("worker", 3, 2)


def control(job: int = 7, sender: ProcessId | None = WORKER) -> Codec[ControlMessage]:
    return Codec(ControlMessage, job, sender)


def test_a_message_and_its_frames_come_back_with_the_sender() -> None:
    frames = (np.arange(5, dtype=np.int64), b"", np.ones(3, dtype=np.float32))
    parts = control().encode(HelloMsg("worker", 3, 2, 4711), frames)
    envelope = control(sender=None).decode([bytes(part) for part in parts])
    assert envelope.sender == WORKER
    assert envelope.message == HelloMsg("worker", 3, 2, 4711)
    assert [frame.nbytes for frame in envelope.frames] == [40, 0, 12]


def test_the_supervisor_has_no_process_id() -> None:
    lease = Lease(lease_id=1, epoch=0, unit=2, start=3, stop=4)
    parts = control(sender=None).encode(LeaseGrantMsg(lease=lease, shuffle_seed=-1))
    assert control().decode(parts).sender is None


def test_sequence_numbers_grow() -> None:
    codec = control()
    first, second = (codec.encode(HelloMsg("worker", 3, 2, 1)) for _ in range(2))
    assert control().decode(second).sequence == control().decode(first).sequence + 1


def test_a_frame_that_no_process_would_receive_is_an_error_of_the_sender() -> None:
    """Regression: ZeroMQ dropped it, and the worker sent it again for ever."""
    largest = np.empty(MAX_MESSAGE_BYTES + 1, np.uint8)  # no page of it is touched
    control().encode(HelloMsg("worker", 3, 2, 1), (largest[:-1],))
    with pytest.raises(ProtocolError, match="HelloMsg has 2147483649 bytes") as caught:
        control().encode(HelloMsg("worker", 3, 2, 1), (b"", largest))
    assert "batch_size" in caught.value.hint


def test_another_job_is_refused() -> None:
    with pytest.raises(ProtocolError, match="job"):
        control(job=8).decode(control(job=7).encode(HelloMsg("worker", 3, 2, 1)))


def test_a_message_of_the_other_conversation_is_refused() -> None:
    data: Codec[DataMessage] = Codec(DataMessage, 7, WORKER)
    pull = PullMsg(request=1, shard_map_epoch=1, create=True, weights=False, counts=())
    with pytest.raises(ProtocolError, match="malformed"):
        control().decode(data.encode(pull))


@pytest.mark.parametrize(("place", "said"), [(0, "magic b'XHST'"), (4, "version 88")])
def test_another_protocol_or_another_version_of_it_is_refused(place: int, said: str) -> None:
    header, body = (bytes(memoryview(part)) for part in control().encode(HelloMsg("worker", 3, 2, 1)))  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match=said):
        control().decode([header[:place] + b"X" + header[place + 1 :], body])


def test_a_body_is_bounded_even_if_its_header_is_consistent() -> None:
    header, _ = (bytes(memoryview(part)) for part in control().encode(HelloMsg("worker", 3, 2, 1)))  # type: ignore[arg-type]
    body = bytes(MAX_BODY_BYTES + 1)
    start = len(header) - 20  # body_bytes u32 | frames u32 | frame_bytes u64 | crc32 u32
    facts = len(body).to_bytes(4, "little") + bytes(12) + zlib.crc32(body).to_bytes(4, "little")
    with pytest.raises(ProtocolError, match=f"a message body has {len(body)} bytes"):
        control().decode([header[:start] + facts, body])


def test_a_missing_frame_is_noticed() -> None:
    parts = control().encode(HelloMsg("worker", 3, 2, 1), (b"abc",))
    with pytest.raises(ProtocolError, match="shorter or longer"):
        control().decode(parts[:-1])


@given(position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_of_header_or_body_never_passes_as_the_message(position: int, bit: int) -> None:
    message = HelloMsg("worker", 3, 2, 4711)
    header, body = (bytearray(bytes(part)) for part in control().encode(message))
    whole = header + body
    whole[position % len(whole)] ^= 1 << bit
    parts = [bytes(whole[: len(header)]), bytes(whole[len(header) :])]
    try:
        envelope = control().decode(parts)
    except ProtocolError:
        return
    # Only the sender's numbers, the flags byte and the sequence have no check.
    assert envelope.message == message


@given(parts=st.lists(st.binary(max_size=80), max_size=4))
def test_garbage_is_refused_with_a_protocol_error(parts: list[bytes]) -> None:
    with pytest.raises(ProtocolError):
        control().decode(parts)
