"""The ring: records are seen whole or not at all, in order, and a place is written again only when it was taken."""

from __future__ import annotations

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.worker.readers.ring_memory import Ring


def pair(places: int) -> tuple[Ring, Ring]:
    """Both ends, each with a mapping of its own, as in two processes."""
    writer = Ring.make(1, places)
    return writer, Ring(os.dup(writer.descriptor), writer.places, writer.place_bytes)


@given(st.integers(1, 4), st.lists(st.sampled_from(["write", "half", "take"]), max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_interleaving_gives_every_published_record_once_in_order(places: int, steps: list[str]) -> None:
    writer, reader = pair(places)
    written = taken = 0
    for step in steps:
        free, found = writer.free, reader.next
        assert (free is None) == (written - taken == places)
        assert (found is None) == (written == taken)
        if step == "take" and found is not None:
            taken += 1
            assert int(found[0]) == taken % 256
            reader.take()
        elif step != "take" and free is not None:
            free[:64] = (written + 1) % 256  # without `publish`: what a killed reader leaves
            if step == "write":
                writer.publish()
                written += 1
    for ring in (writer, reader):
        ring.close()


def test_the_memory_outlives_its_descriptors() -> None:
    writer, reader = pair(2)
    writer.close()
    reader.close()
    place = writer.free
    assert place is not None
    place[0] = 7
    writer.publish()
    found = reader.next
    assert found is not None
    assert int(found[0]) == 7
