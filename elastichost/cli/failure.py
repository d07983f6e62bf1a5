"""Prints a failure once: a block on stderr with problem, place and next step, or a JSON object on stdout."""

from __future__ import annotations

import traceback
from pathlib import Path

from rich.console import Console
from rich.text import Text

from elastichost.cli.output import print_json, progress_console
from elastichost.errors import ConfigError, ElastichostError, ExitCode, ModelError
from elastichost.user_model.frames import users_frames

__all__ = ["failure_text", "report_failure"]

ERRORS_MODULE = "elastichost.errors."


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
    message = users_frames(error.message)
    details: tuple[str, ...] = ()
    if isinstance(error, ConfigError):
        details = tuple(f"- {problem}" for problem in error.problems)
    elif isinstance(error, ModelError) and error.traceback_text:
        shown = users_frames(error.traceback_text.rstrip())
        # without frames of the user's code, what is left of the traceback only repeats the message
        is_repeated = shown.lstrip().startswith(ERRORS_MODULE) or shown in message
        details = () if is_repeated else tuple(shown.splitlines())
    return _block(message, details, error.hint)


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
