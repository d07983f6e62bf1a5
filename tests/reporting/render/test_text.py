"""Invisible characters are replaced."""

from __future__ import annotations

from elastichost.reporting.render.text import cleaned


def test_invisible_characters_are_replaced() -> None:
    assert cleaned("a\x00b\u202egnp.exe\ud800\tc\n") == "a\ufffdb\ufffdgnp.exe\ufffd\tc\n"
