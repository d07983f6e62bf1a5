"""Writing TOML: enough of it for a resolved job file (tomllib only reads)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping

__all__ = ["document"]

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def document(sections: Mapping[str, object]) -> str:
    """A TOML document of sections; tables of tables (`[tables.item]`) get headers, deeper ones are inline."""
    blocks: list[str] = []
    for name, content in sections.items():
        if not isinstance(content, Mapping):
            raise TypeError(f"section {name!r} is not a table: {content!r}")
        nested = bool(content) and name == "tables"
        if nested:
            blocks.extend(_block(f"{_key(name)}.{_key(key)}", value) for key, value in content.items())
        else:
            blocks.append(_block(_key(name), content))
    return "\n".join(blocks)


def _block(header: str, content: object) -> str:
    if not isinstance(content, Mapping):
        raise TypeError(f"[{header}] is not a table: {content!r}")
    lines = [f"[{header}]", *(f"{_key(key)} = {_value(value)}" for key, value in content.items())]
    return "\n".join(lines) + "\n"


def _key(name: object) -> str:
    text = str(name)
    return text if BARE_KEY.fullmatch(text) else _string(text)


def _string(text: str) -> str:
    # JSON's escapes are TOML's, but JSON leaves DEL as it is and TOML does not allow it
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _string(value)
        case int():
            return str(value)
        case float():
            return repr(value) if math.isfinite(value) else str(value)
        case list() | tuple():
            return "[" + ", ".join(_value(one) for one in value) + "]"
        case Mapping():
            return (
                "{ " + ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items()) + " }" if value else "{}"
            )
    raise TypeError(f"no TOML for {type(value).__name__}: {value!r}")
