"""`bench`: the benchmarks of the source tree, by name."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from elastichost.cli.output import data_console, fact_lines
from elastichost.errors import ConfigError
from elastichost.human_readable import did_you_mean

__all__ = ["register"]

ROOT = Path(__file__).parents[3]


def register(app: typer.Typer) -> None:
    # what follows the name is the benchmark's, --help too
    settings = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}
    app.command("bench", context_settings=settings)(bench)


def bench(
    name: Annotated[str, typer.Argument(metavar="[NAME]", show_default=False, help="Which; without: lists them.")] = "",
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="...", help="Of the benchmark; --help shows what it takes.")
    ] = None,
) -> None:
    """Run a benchmark of the source tree (data-plane, ...), or list what there is."""
    known = dict(_benchmarks(ROOT / "benchmarks"))
    if not known:
        raise ConfigError(
            "the benchmarks are not part of the installed package",
            hint="take a clone of the source tree, `make run` there once, and use its .venv/bin/elastichost",
        )
    if not name:
        data_console().print(fact_lines(known.items()))
        return
    if name not in known:
        raise ConfigError(
            f"there is no benchmark {name!r}{did_you_mean(name, known)}", hint=f"benchmarks: {', '.join(known)}"
        )
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    module = importlib.import_module(f"benchmarks.{name.replace('-', '_')}")
    raise typer.Exit(module.main(arguments or []) or 0)


def _benchmarks(folder: Path) -> Iterator[tuple[str, str]]:
    """(name, what it measures) of the modules and packages that have a main; read, not imported."""
    for path in sorted([*folder.glob("[a-z]*.py"), *folder.glob("[a-z]*/__init__.py")]):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            name = path.parent.name if path.stem == "__init__" else path.stem
            yield name.replace("_", "-"), (ast.get_docstring(tree) or "").partition("\n")[0]
