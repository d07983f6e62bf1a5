"""Code blocks of Markdown pages, as a reader would use them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Block", "blocks_of", "pages", "script_of"]

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?$")
NOT_RUN = re.compile(r"^<!-- not run: (?P<why>.+) -->$")
Kind = Literal["command", "file", "output", "not run"]
OUTPUT = frozenset({"", "text", "mermaid", "console"})  # languages of blocks that show output


@dataclass(frozen=True, slots=True)
class Block:
    """kind: a command to type, a file to write, output, or something that a reader cannot do here. title: the file's
    name."""

    page: str
    line: int
    kind: Kind
    language: str
    text: str
    title: str = ""


def pages() -> tuple[Path, ...]:
    """README and every page of the site."""
    return (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))


def blocks_of(page: Path) -> tuple[Block, ...]:
    """Raises ValueError for a block that is neither a command, nor a file, nor output, nor marked as not run."""
    found: list[Block] = []
    opened: tuple[int, str, str, str] | None = None  # line, language, title, why it is not run
    text: list[str] = []
    marked = ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if opened is None:
            fence = FENCE.match(line)
            if fence is not None:
                opened, text = (number, fence["language"], fence["title"] or "", marked), []
            elif line.startswith("```"):
                raise ValueError(f"{page}:{number}: {line!r} is no fence that is known here")
            mark = NOT_RUN.match(line)
            marked = mark["why"] if mark is not None else ""
        elif line == "```":
            at, language, title, why = opened
            name = str(page.relative_to(ROOT))
            found.append(
                Block(name, at, _kind(page, at, language, title, why), language, "\n".join(text) + "\n", title)
            )
            opened = None
        else:
            text.append(line)
    if opened is not None:
        raise ValueError(f"{page}:{opened[0]}: this block does not end")
    return tuple(found)


def _kind(page: Path, line: int, language: str, title: str, why: str) -> Kind:
    if why:
        return "not run"
    if title:
        return "file"
    if language == "sh":
        return "command"
    if language in OUTPUT:
        return "output"
    raise ValueError(
        f"{page}:{line}: a {language} block needs a title (then it is a file) or a line `<!-- not run: why -->`"
    )


def script_of(blocks: tuple[Block, ...]) -> str:
    """What a reader of one page types, as one bash script that ends at the first command that fails."""
    typed = [f": {block.page}:{block.line}\n{block.text}" for block in blocks if block.kind == "command"]
    return "set -eu\n" + "\n".join(typed)
