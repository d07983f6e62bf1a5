"""Frames over pipes, whole or in pieces, after text that a shell prints."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from elastichost.errors import ProtocolError
from elastichost.supervisor.remote import messages
from elastichost.supervisor.remote.framing import GREETING, MAX_FRAME_BYTES, MAX_NOISE_BYTES, Pipe, PipeEndedError


@dataclass(frozen=True, slots=True)
class Wire:
    """A pipe from an agent to the supervisor. raw: the agent's descriptor; receiver: the supervisor's end."""

    raw: int
    receiver: Pipe[messages.AgentWord]


@contextmanager
def opened() -> Iterator[Wire]:
    """A pipe, closed at the end."""
    reading, raw = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    receiver: Pipe[messages.AgentWord] = Pipe(reading, null, messages.AgentWord, greets=False)
    try:
        yield Wire(raw, receiver)
    finally:
        receiver.close()
        os.close(raw)


def encoded(*words: messages.AgentWord) -> bytes:
    """The bytes that an agent writes for these messages, without the greeting."""
    reading, writing = os.pipe()
    idle = os.open(os.devnull, os.O_RDWR)
    sender: Pipe[messages.AgentOrder] = Pipe(idle, writing, messages.AgentOrder, greets=True)
    for word in words:
        sender.send(word)
    sender.flush()
    assert not sender.has_queued
    sender.close()
    with os.fdopen(reading, "rb") as file:
        return file.read().removeprefix(GREETING)


@settings(deadline=None)
@given(
    noise=st.binary(max_size=300),
    numbers=st.lists(st.integers(0, 2**40), max_size=5),
    cuts=st.lists(st.integers(1, 60), min_size=1, max_size=8),
)
def test_messages_are_received_in_pieces_of_any_size_and_after_any_text(
    noise: bytes, numbers: list[int], cuts: list[int]
) -> None:
    assume(GREETING not in noise + GREETING[:-1])
    words = [messages.PongMsg(number) for number in numbers]
    data, received, at = noise + GREETING + encoded(*words), list[messages.AgentWord](), 0
    with opened() as wire:
        for turn in range(len(data)):
            size = cuts[turn % len(cuts)]
            os.write(wire.raw, data[at : at + size])
            at += size
            received += wire.receiver.receive()
            if at >= len(data):
                break
        assert received == words
        assert wire.receiver.noise == noise


def test_messages_before_the_end_of_the_connection_are_not_lost() -> None:
    reading, writing = os.pipe()
    receiver: Pipe[messages.AgentWord] = Pipe(reading, os.open(os.devnull, os.O_RDWR), messages.AgentWord, greets=False)
    os.write(writing, GREETING + encoded(messages.PongMsg(1)))
    os.close(writing)
    words = receiver.receive()
    assert next(words) == messages.PongMsg(1)
    with pytest.raises(PipeEndedError, match="the other end has closed the connection"):
        next(words)
    receiver.close()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"x" * (MAX_NOISE_BYTES + 1), "no agent's greeting came, but 'xxx"),
        (
            GREETING + (MAX_FRAME_BYTES + 1).to_bytes(4, "little"),
            "a frame of 33554433 bytes was announced; at most 33554432 are allowed",
        ),
        (GREETING + b"\x03\0\0\0abc", "a frame cannot be decoded"),
        (GREETING + b"\x0a\0\0\0" + b"\x81\xa4type\xa3Evil"[:10], "a frame cannot be decoded"),
    ],
)
def test_bytes_that_no_agent_sends_are_refused(data: bytes, words: str) -> None:
    with opened() as wire:
        for at in range(0, len(data), 4096):
            os.write(wire.raw, data[at : at + 4096])
        with pytest.raises(ProtocolError, match=words):
            list(wire.receiver.receive())


def test_send_does_not_wait_for_an_end_that_does_not_read() -> None:
    reading, writing = os.pipe()
    sender: Pipe[messages.AgentOrder] = Pipe(os.open(os.devnull, os.O_RDWR), writing, messages.AgentOrder, greets=False)
    receiver: Pipe[messages.AgentOrder] = Pipe(
        reading, os.open(os.devnull, os.O_RDWR), messages.AgentOrder, greets=True
    )
    orders = [messages.WordsSetMsg(bytes(4), bytes([number]) * 1_000_000) for number in range(8)]
    for order in orders:
        sender.send(order)
    assert sender.has_queued
    received = list[messages.AgentOrder]()
    while len(received) < len(orders):
        sender.flush()
        received += receiver.receive()
    assert received == orders and not sender.has_queued
    receiver.close()
    with pytest.raises(PipeEndedError, match="the other end cannot be written to"):
        sender.send(messages.PingMsg(1))
    sender.close()


def test_a_message_larger_than_a_frame_is_not_sent() -> None:
    with opened() as wire, pytest.raises(ProtocolError, match="a WordsSetMsg has"):
        wire.receiver.send(messages.WordsSetMsg(b"", bytes(MAX_FRAME_BYTES)))
