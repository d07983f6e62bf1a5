"""`bench`: lists the benchmarks of the source tree, or runs one by name."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from elastichost.cli.output import data_console, fact_lines
from elastichost.errors import ConfigError, PreflightError
from elastichost.human_readable import did_you_mean

__all__ = ["register"]

ROOT = Path(__file__).parents[3]


def register(app: typer.Typer) -> None:
    # all arguments after the name, including --help, belong to the benchmark
    settings = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
    app.command("bench", context_settings=settings)(bench)


def bench(
    name: Annotated[
        str, typer.Argument(metavar="NAME", show_default=False, help="The benchmark; without a name, list all.")
    ] = "",
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGUMENT", help="Arguments of the benchmark; NAME --help lists them.")
    ] = None,
) -> None:
    """Run a benchmark of the source tree, or list all benchmarks."""
    registry = _registry()
    if registry is None:
        raise ConfigError(
            "the benchmarks are not part of the installed package",
            hint="clone the source tree, run `make run` there once, and use its .venv/bin/elastichost",
        )
    known: dict[str, str] = registry.abouts()
    if not name:
        data_console().print(fact_lines(known.items()))
        return
    if name not in known:
        raise ConfigError(
            f"unknown benchmark {name!r}{did_you_mean(name, known)}", hint=f"benchmarks: {', '.join(known)}"
        )
    try:
        code = registry.run(name, arguments or [])
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("", "benchmarks", "elastichost"):
            raise
        raise PreflightError(
            f"the benchmark {name} needs the package {error.name}, which is not installed",
            hint=f"`make test` installs what benchmarks need; or: {sys.executable} -m pip install {error.name}",
        ) from error
    raise typer.Exit(code)


def _registry() -> ModuleType | None:
    """The registry of benchmarks; None outside a source tree. It is imported at run time, because the installed package
    must not depend on the benchmarks."""
    if not (ROOT / "benchmarks" / "registry.py").exists():
        return None
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    return importlib.import_module("benchmarks.registry")
