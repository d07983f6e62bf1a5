"""The frames of a traceback that belong to the user's model. Pure."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["users_frames"]

PACKAGE = Path(__file__).parent.parent
CALLS_OF_MODULES = ("torch", "nn", "modules", "module.py")
TRACEBACK_HEAD = "Traceback (most recent call last):"
FRAME = re.compile(r'  File "(?P<file>[^"]+)", line \d+')


def users_frames(text: str) -> str:
    """Removes the frames of elastichost and of torch's module calls from a text that may hold a traceback, so that the
    frames of the user's model remain. Text without frames is returned unchanged."""
    lines = text.splitlines()
    if not any(FRAME.match(line) for line in lines):
        return text
    kept: list[str] = []
    is_shown = False  # the last lines of a log may begin in the middle of a frame
    for line in lines:
        frame = FRAME.match(line)
        if frame:
            is_shown = not _is_machinery(Path(frame["file"]))
        if is_shown or (frame is None and not line.startswith("    ")):
            kept.append(line)
    if not any(FRAME.match(line) for line in kept):
        kept = [line for line in kept if line != TRACEBACK_HEAD]
    return "\n".join(kept)


def _is_machinery(file: Path) -> bool:
    """Whether a file belongs to elastichost or torch. The ready-made models of elastichost count as the user's."""
    if file.is_relative_to(PACKAGE):
        return not file.is_relative_to(PACKAGE / "models")
    return file.parts[-4:] == CALLS_OF_MODULES
