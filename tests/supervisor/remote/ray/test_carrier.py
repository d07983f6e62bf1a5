"""The actor of a Ray node, tested without Ray: the streams of a real process, and repeated calls."""

from __future__ import annotations

import queue
import sys
import time

import pytest

from elastichost.supervisor.remote.ray.carrier import LAST_WORDS_BYTES, Carrier

LIMIT_S = 30.0


def carrier_without_end(lonely_s: float = LIMIT_S) -> tuple[Carrier, queue.SimpleQueue[int]]:
    """A carrier that puts its exit code in a queue instead of ending its process, which is the test's process here."""
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()
    return Carrier(ended.put, lonely_s), ended


def begun(*argv: str) -> Carrier:
    """A carrier that has started a program."""
    carrier, _ = carrier_without_end()
    assert carrier.begin("\0".join(argv).encode()) == ""
    return carrier


def read_to(carrier: Carrier, position: int, size: int) -> bytes:
    """Reads at least `size` bytes of output from a position on."""
    found, deadline_s = b"", time.monotonic() + LIMIT_S
    while len(found) < size:
        assert time.monotonic() < deadline_s, found
        found += carrier.read(position + len(found)) or b""
    return found


def test_bytes_pass_in_both_directions_and_the_end_of_the_input_ends_the_program() -> None:
    carrier = begun("cat")
    carrier.write(0, b"one ")
    carrier.write(4, b"two")
    assert read_to(carrier, 0, 7) == b"one two"
    carrier.end_input()
    assert carrier.read(7) is None
    assert carrier.outcome() == (0, b"")


def test_a_repeated_call_changes_nothing() -> None:
    carrier = begun("cat")
    for _ in range(2):
        carrier.write(0, b"first")
    assert read_to(carrier, 0, 5) == b"first"
    assert carrier.read(0) == b"first", "the relay may not have received the first answer"
    carrier.write(3, b"st, second")  # the first two bytes were written before
    assert read_to(carrier, 5, 8) == b", second"
    carrier.end_input()
    carrier.end_input()
    assert carrier.read(13) is None and carrier.read(13) is None


def test_only_the_end_of_stderr_is_kept() -> None:
    script = f"import sys; sys.stderr.write('x' * {2 * LAST_WORDS_BYTES} + 'end'); sys.exit(9)"
    carrier = begun(sys.executable, "-c", script)
    while carrier.read(0) is not None:
        pass
    carrier.write(0, b"it takes nothing any more")
    code, words = carrier.outcome()
    assert (code, len(words)) == (9, LAST_WORDS_BYTES) and words.endswith(b"xend")


@pytest.mark.parametrize("path", ["/no/such/python", "/"])
def test_the_error_names_a_program_that_cannot_be_started(path: str) -> None:
    assert carrier_without_end()[0].begin(path.encode()).startswith(f"{path}: ")


def test_the_actor_ends_its_process_when_no_relay_reads_any_more() -> None:
    carrier, ended = carrier_without_end(lonely_s=0.2)
    assert carrier.begin(b"cat") == ""
    assert ended.get(timeout=LIMIT_S) == 1
    carrier.end_input()
    assert carrier.outcome()[0] == 0
