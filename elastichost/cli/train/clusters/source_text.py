"""Source files as text in UTF-8, which is what a manifest can hold."""

from __future__ import annotations

import io
import re
import tokenize

from elastichost.errors import ConfigError

__all__ = ["source_text"]

COOKIE = re.compile(r"^([ \t\f]*#.*?coding[:=][ \t]*)[-\w.]+")  # as PEP 263 defines it
COOKIE_LINES = 2  # only these may name the encoding


def source_text(path: str, data: bytes) -> str:
    """Returns the text of a Python source file. Where its first lines name another encoding than UTF-8, they name UTF-8
    in the text, so that the code means the same. Raises ConfigError for bytes that are no text of this encoding."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeError) as error:
        raise ConfigError(
            f"{path} cannot be read as text: {error}",
            hint="save it in UTF-8, or name its encoding in its first line: # coding: latin-1",
        ) from error
    return text if encoding in ("utf-8", "utf-8-sig") else _said_to_be_utf8(text)


def _said_to_be_utf8(text: str) -> str:
    lines = text.split("\n", COOKIE_LINES)
    for number, line in enumerate(lines[:COOKIE_LINES]):
        if COOKIE.match(line):
            lines[number] = COOKIE.sub(r"\g<1>utf-8", line)
            break
    return "\n".join(lines)
