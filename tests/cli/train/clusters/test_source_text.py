"""Source files in other encodings than UTF-8 mean the same in a manifest."""

from __future__ import annotations

from typing import Any

import pytest

from elastichost.cli.train.clusters.source_text import source_text
from elastichost.errors import ConfigError

CODE = "name = 'caf\u00e9'\n"


def value_of(source: bytes) -> Any:
    names: dict[str, Any] = {}
    exec(compile(source, "model.py", "exec"), names)
    return names["name"]


@pytest.mark.parametrize(
    ("head", "encoding"),
    [
        ("# -*- coding: latin-1 -*-\n", "latin-1"),
        ("#!/usr/bin/env python\n# vim: set fileencoding=cp1252 :\n", "cp1252"),
        ("# coding: latin-1\n# coding: the second one does not count\n", "latin-1"),
        ("# coding=utf-8\r\n", "utf-8"),
        ("", "utf-8"),
        ("", "utf-8-sig"),
    ],
)
def test_the_text_means_what_the_bytes_mean(head: str, encoding: str) -> None:
    data = (head + CODE).encode(encoding)
    text = source_text("source/model.py", data)
    assert value_of(data) == value_of(text.encode()) == "caf\u00e9"
    assert text.count("\n") == data.count(b"\n") and text.endswith(CODE)


@pytest.mark.parametrize("data", [CODE.encode("latin-1"), b"# coding: no-such-encoding\n"])
def test_bytes_that_are_no_text_are_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match=r"source/shop/__init__\.py cannot be read as text") as raised:
        source_text("source/shop/__init__.py", data)
    assert "UTF-8" in raised.value.hint
