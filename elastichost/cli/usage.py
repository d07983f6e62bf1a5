"""Errors of the arguments of a verb, as the typed error that all other errors of the job file and command line are."""

from __future__ import annotations

from typing import Any

import typer

from elastichost.errors import ConfigError
from elastichost.human_readable import did_you_mean

__all__ = ["usage_error"]

# Recent versions of typer contain their own copy of click, so the class is found through the one that typer exports.
UsageError: Any = typer.BadParameter.__mro__[1]
# Recent versions of typer parse values with pydantic, whose texts are not about command lines.
TEXTS_OF_PYDANTIC = {"Value error, ": "", "Input should be": "it must be", ", unable to parse string as an integer": ""}


def usage_error(error: Exception) -> Exception | None:
    """A ConfigError for an error that typer raises because of the arguments; any other error unchanged. None: the verb
    was called without arguments that it needs, and its help was printed instead."""
    if not isinstance(error, UsageError):
        return error
    context: Any = error.ctx
    if context is None:
        return ConfigError(error.format_message())
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return None
    usage = " ".join(context.get_usage().split()).replace("Usage:", "usage:", 1)
    hint = f"{usage}\n`{context.command_path} --help` lists all options"
    option = getattr(error, "option_name", None)
    if option is not None and hasattr(error, "possibilities"):
        known = [name for one in context.command.get_params(context) for name in (*one.opts, *one.secondary_opts)]
        long_names = [name[2:] for name in known if name.startswith("--")]
        close = did_you_mean(option.lstrip("-"), long_names, "--")
        return ConfigError(f"{context.command_path}: no option {option}{close}", hint=hint)
    message = error.format_message().rstrip(".")
    for text, plain in TEXTS_OF_PYDANTIC.items():
        message = message.replace(text, plain)
    return ConfigError(f"{context.command_path}: {message[:1].lower()}{message[1:]}", hint=hint)
