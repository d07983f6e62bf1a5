"""Prints a failure once: a block on stderr with problem, place and next step, or a JSON object on stdout."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from rich.console import Console
from rich.text import Text

from elastichost.cli.output import print_json, progress_console
from elastichost.errors import ConfigError, ElastichostError, ExitCode, ModelError

__all__ = ["failure_text", "report_failure"]

PACKAGE = Path(__file__).parent.parent
ERRORS_MODULE = "elastichost.errors."
CALLS_OF_MODULES = ("torch", "nn", "modules", "module.py")
TRACEBACK_HEAD = "Traceback (most recent call last):"
FRAME = re.compile(r'  File "(?P<file>[^"]+)", line \d+')


def report_failure(error: Exception, *, as_json: bool, console: Console | None = None) -> None:
    """Prints the error to stderr, or with `as_json` as the JSON object at the end of stdout."""
    if not as_json:
        (console or progress_console()).print(failure_text(error), soft_wrap=True)
    else:
        code = error.exit_code if isinstance(error, ElastichostError) else ExitCode.JOB_FAILED
        print_json({"status": "failed", "exit_code": int(code), "error": _facts(error)})


def failure_text(error: Exception) -> Text:
    """The block: red bar, message, details, hint."""
    if not isinstance(error, ElastichostError):
        return _block(
            _internal(error), (), "this is a bug in elastichost: set ELASTICHOST_DEBUG=1 to see the traceback"
        )
    message = _users_frames(error.message)
    details: tuple[str, ...] = ()
    if isinstance(error, ConfigError):
        details = tuple(f"- {problem}" for problem in error.problems)
    elif isinstance(error, ModelError) and error.traceback_text:
        shown = _users_frames(error.traceback_text.rstrip())
        # without frames of the user's code, what is left of the traceback only repeats the message
        is_repeated = shown.lstrip().startswith(ERRORS_MODULE) or shown in message
        details = () if is_repeated else tuple(shown.splitlines())
    return _block(message, details, error.hint)


def _users_frames(text: str) -> str:
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


def _block(message: str, details: tuple[str, ...], hint: str) -> Text:
    block = Text()
    first, *rest = message.splitlines() or [""]
    block.append("error  ", style="bold red").append(first, style="bold")
    for line in (*rest, *details):
        block.append("\n     | ", style="red").append(line)
    if hint:
        for number, line in enumerate(hint.splitlines()):
            block.append("\n    -> " if number == 0 else "\n       ", style="red").append(line, style="cyan")
    return block


def _internal(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def _facts(error: Exception) -> dict[str, object]:
    facts: dict[str, object] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, ElastichostError):
        facts.update(message=error.message, hint=error.hint)
    if isinstance(error, ConfigError):
        facts["problems"] = error.problems
    if isinstance(error, ModelError):
        facts["traceback"] = error.traceback_text
    return facts
