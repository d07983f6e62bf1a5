"""The conversations are as written: a change of a message, an order or a sentence shows in a text that people
review."""

from __future__ import annotations

import pytest

from tests.simulation.conversations import CONVERSATIONS, FOLDER, text_of_conversation


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_conversation_is_as_it_is_written(name: str) -> None:
    written = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert text_of_conversation(name) == written, "if the change is intended: python -m tests.simulation.conversations"


def test_every_text_file_belongs_to_a_conversation() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == set(CONVERSATIONS)
