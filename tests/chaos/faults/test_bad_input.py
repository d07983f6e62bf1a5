"""Garbage messages are refused with a typed error; refusals of bad input are checked for exit code, type and words."""

from __future__ import annotations

import tempfile
from pathlib import Path

from elastichost.chaos.faults.bad_input import InputRefusal, check_refusals, garbage_messages, send_garbage
from elastichost.errors import ProtocolError
from elastichost.wire.codec import Codec
from elastichost.wire.control import ControlMessage
from elastichost.wire.sockets import ControlServer

JOB = 0xABCD
RIGHT = InputRefusal("a case", 2, "ConfigError", "no such file x.toml", (2,), "ConfigError", ("x.toml",))


def test_every_garbage_message_is_refused_by_the_codec_or_for_its_sender() -> None:
    codec: Codec[ControlMessage] = Codec(ControlMessage, JOB, None)
    passed = 0
    for piece in garbage_messages(3, JOB):
        try:
            envelope = codec.decode(piece)  # type: ignore[arg-type]
        except ProtocolError:
            continue
        passed += 1
        assert envelope.sender is None, "it names the supervisor as its sender, so `receive` refuses it"
    assert passed == 1


def test_a_socket_that_gets_garbage_still_receives() -> None:
    with tempfile.TemporaryDirectory(prefix="ehg-") as name:
        server = ControlServer(f"ipc://{name}/control", JOB)
        sent = send_garbage(Path(name), f"{JOB:x}", 5)
        messages = sum(1 for _ in garbage_messages(5, JOB))
        refused = 0
        while refused < messages:
            server.poll(1.0)
            try:
                assert server.receive() is None, "a garbage message was accepted"
            except ProtocolError:
                refused += 1
        assert sent > messages
        server.close()


def test_a_correct_refusal_holds_and_each_error_of_a_wrong_one_is_named() -> None:
    assert check_refusals([RIGHT], [], 9).holds
    wrong = InputRefusal("a case", 1, "", "something", (2,), "ConfigError", ("x.toml",))
    verdict = check_refusals([RIGHT, wrong], ["a worker ended"], 9)
    assert verdict.violations == (
        "a worker ended",
        "a case: exit code 1 instead of 2",
        "a case: a traceback instead of a ConfigError",
        "a case: the message does not name 'x.toml'",
    )
