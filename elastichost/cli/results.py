"""Verbs about what comes out of a run: export and predict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elastichost.cli.output import AsJson, progress_console
from elastichost.cli.report import print_report
from elastichost.cli.runs import RunArgument, find_run
from elastichost.errors import ConfigError, DataError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("export")(export)
    app.command("predict")(predict)


def export(
    run: RunArgument,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where the export goes; must not exist yet.")],
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", metavar="DIR", help="Default: the newest good one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the trained model as plain torchrec: no elastichost is needed to load it."""
    from elastichost.results.export import export as write_export

    print_report(write_export(find_run(run), directory.resolve(), checkpoint), as_json=as_json)


def predict(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Samples in the format of the job's data.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: FILE.scores.parquet.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score a file with the newest good checkpoint of a run; figures of quality when it has labels."""
    directory = find_run(run)
    destination = output if output is not None else file.with_name(f"{file.name}.scores.parquet")
    if not file.is_file():
        raise DataError(f"{file}: there is no such file")
    if not destination.resolve().parent.is_dir():
        raise ConfigError(f"cannot write {destination}: there is no such directory", hint="name another file with -o")
    progress_console().print("loading the model: this takes some seconds", style="dim")
    from elastichost.results.predict import predict as score  # loads torch

    print_report(score(directory, file.resolve(), destination.resolve()), as_json=as_json)
