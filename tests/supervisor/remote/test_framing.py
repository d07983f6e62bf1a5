"""Frames over pipes, whole or in pieces, with whatever a shell prints before them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from elastichost.errors import ProtocolError
from elastichost.supervisor.remote import messages as said
from elastichost.supervisor.remote.framing import GREETING, MAX_FRAME_BYTES, MAX_NOISE_BYTES, Pipe, PipeEndedError


@dataclass(frozen=True, slots=True)
class Wire:
    """What an agent writes, and a supervisor's end of it. raw: the agent's descriptor."""

    raw: int
    ears: Pipe[said.AgentWord]


@contextmanager
def opened() -> Iterator[Wire]:
    reading, raw = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    ears: Pipe[said.AgentWord] = Pipe(reading, null, said.AgentWord, greets=False)
    try:
        yield Wire(raw, ears)
    finally:
        ears.close()
        os.close(raw)


def encoded(*words: said.AgentWord) -> bytes:
    """As an agent's own pipe writes it, without the greeting."""
    reading, writing = os.pipe()
    idle = os.open(os.devnull, os.O_RDWR)
    mouth: Pipe[said.AgentOrder] = Pipe(idle, writing, said.AgentOrder, greets=True)
    for word in words:
        mouth.send(word)
    mouth.flush()
    assert not mouth.has_queued
    mouth.close()
    with os.fdopen(reading, "rb") as file:
        return file.read().removeprefix(GREETING)


@settings(deadline=None)
@given(
    noise=st.binary(max_size=300),
    numbers=st.lists(st.integers(0, 2**40), max_size=5),
    cuts=st.lists(st.integers(1, 60), min_size=1, max_size=8),
)
def test_whatever_pieces_it_comes_in_and_whatever_a_shell_printed(
    noise: bytes, numbers: list[int], cuts: list[int]
) -> None:
    assume(GREETING not in noise + GREETING[:-1])
    words = [said.PongMsg(number) for number in numbers]
    data, heard, at = noise + GREETING + encoded(*words), list[said.AgentWord](), 0
    with opened() as wire:
        for turn in range(len(data)):
            size = cuts[turn % len(cuts)]
            os.write(wire.raw, data[at : at + size])
            at += size
            heard += wire.ears.receive()
            if at >= len(data):
                break
        assert heard == words
        assert wire.ears.noise == noise


def test_what_came_before_the_end_is_not_lost() -> None:
    reading, writing = os.pipe()
    ears: Pipe[said.AgentWord] = Pipe(reading, os.open(os.devnull, os.O_RDWR), said.AgentWord, greets=False)
    os.write(writing, GREETING + encoded(said.PongMsg(1)))
    os.close(writing)
    words = ears.receive()
    assert next(words) == said.PongMsg(1)
    with pytest.raises(PipeEndedError, match="the other end has closed the connection"):
        next(words)
    ears.close()


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
def test_what_is_none_of_an_agents_words_is_refused(data: bytes, words: str) -> None:
    with opened() as wire:
        for at in range(0, len(data), 4096):
            os.write(wire.raw, data[at : at + 4096])
        with pytest.raises(ProtocolError, match=words):
            list(wire.ears.receive())


def test_nobody_waits_for_an_end_that_does_not_read() -> None:
    reading, writing = os.pipe()
    mouth: Pipe[said.AgentOrder] = Pipe(os.open(os.devnull, os.O_RDWR), writing, said.AgentOrder, greets=False)
    ears: Pipe[said.AgentOrder] = Pipe(reading, os.open(os.devnull, os.O_RDWR), said.AgentOrder, greets=True)
    orders = [said.WordsSetMsg(bytes(4), bytes([number]) * 1_000_000) for number in range(8)]
    for order in orders:
        mouth.send(order)
    assert mouth.has_queued
    heard = list[said.AgentOrder]()
    while len(heard) < len(orders):
        mouth.flush()
        heard += ears.receive()
    assert heard == orders and not mouth.has_queued
    ears.close()
    with pytest.raises(PipeEndedError, match="the other end cannot be written to"):
        mouth.send(said.PingMsg(1))
    mouth.close()


def test_what_is_larger_than_a_frame_is_not_sent() -> None:
    with opened() as wire, pytest.raises(ProtocolError, match="a WordsSetMsg has"):
        wire.ears.send(said.WordsSetMsg(b"", bytes(MAX_FRAME_BYTES)))
