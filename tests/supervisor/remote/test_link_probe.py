"""The measured speed of a link: from the times at which bytes arrive, and over a real connection."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.supervisor.remote.link_probe import LEAST_BYTES, open_door, receive_stream, send_stream, speed_of


@settings(deadline=None)
@given(
    speed=st.floats(1e5, 1e10),
    pieces=st.integers(40, 200),
    saved=st.integers(0, 4),
    began_s=st.floats(0, 1e4),
)
def test_a_burst_at_the_beginning_does_not_change_the_measured_speed(
    speed: float, pieces: int, saved: int, began_s: float
) -> None:
    """saved: pieces that a token bucket lets through at once."""
    size = 1 << 20
    arrivals = [(began_s, size * (1 + number)) for number in range(saved)]
    arrivals += [(began_s + number * size / speed, size * (saved + number)) for number in range(1, pieces + 1)]
    assert speed_of(arrivals) == pytest.approx(speed, rel=0.02)


def test_too_few_bytes_or_arrivals_give_no_speed() -> None:
    assert speed_of([]) == speed_of([(1.0, LEAST_BYTES - 1)]) == speed_of([(1.0, 1 << 30)]) == 0.0


def test_a_stream_over_a_connection_is_measured() -> None:
    with open_door("127.0.0.1") as door:
        sender = threading.Thread(target=send_stream, args=("127.0.0.1", door.getsockname()[1], 0.05))
        sender.start()
        assert receive_stream(door) > 1e6
        sender.join()


def test_the_speed_is_zero_when_no_stream_comes() -> None:
    with open_door("127.0.0.1") as door:
        assert receive_stream(door, patience_s=0.05) == 0.0
