"""Mailboxes: at any moment of the writing a reader finds a complete message or none."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.arena.dense.mailbox import Mailbox
from elastichost.arena.files import MappedFile
from elastichost.arena.layout import MAILBOX_HEAD_BYTES
from tests.arena.stepping import look_before_each_line

ELEMENTS = 10


def mailboxes(path: Path) -> tuple[Mailbox, Mailbox]:
    """The mailbox of a worker, and the same mailbox as mapped by a PS."""
    size_bytes = MAILBOX_HEAD_BYTES + 4 * ELEMENTS
    file = MappedFile.create(path, size_bytes)
    file.allocate(0, size_bytes, "a mailbox")
    return Mailbox(file, 0, ELEMENTS), Mailbox(MappedFile.attach(path, size_bytes), 0, ELEMENTS)


@pytest.mark.parametrize(("incarnation", "sequence"), [(1, 6), (2, 1), (2, 4)])
def test_a_message_is_whole_or_not_there_at_every_moment_of_its_writing(
    tmp_path: Path, incarnation: int, sequence: int
) -> None:
    """The sequence number marks a released message: it becomes 0 before the message of any incarnation is overwritten,
    and is set when the next message is complete."""
    worker, server = mailboxes(tmp_path / "mailbox")
    worker.post(1, 4, b"the fourth")
    seen = list[tuple[tuple[int, bytes] | None, ...]]()
    look_before_each_line(
        lambda: seen.append((server.posted(1), server.posted(2))),
        worker.post,
        incarnation,
        sequence,
        b"a longer message",
    )
    before, nothing = ((4, b"the fourth"), None), (None, None)
    released = (sequence, b"a longer message")
    after = (released, None) if incarnation == 1 else (None, released)
    assert seen[0] == before and seen[-1] == after
    assert [one for one in seen if one not in (before, nothing, after)] == []
    assert nothing in seen, "no reader ran while the message was written"
