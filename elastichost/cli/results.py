"""Verbs that use the trained model of a run: export and predict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

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
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the export: new or empty.")],
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", help="The checkpoint to export; default: the newest intact one."),
    ] = None,
    form: Annotated[
        Literal["torchrec", "pt2"],
        typer.Option("--format", help="A torchrec model, or one program of torch.export that needs torch alone."),
    ] = "torchrec",
    embeddings: Annotated[
        list[str] | None,
        typer.Option(
            "--embeddings",
            metavar="TABLE",
            help="Also write the vectors of this table, as DIR/embeddings/TABLE.parquet; repeatable.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the trained model so that it loads without elastichost."""
    from elastichost.results.export import export as write_export

    report = write_export(find_run(run), directory.resolve(), checkpoint, format=form, embeddings=embeddings or ())
    print_report(report, as_json=as_json)


def predict(
    run: RunArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Samples in the format of the job's data, or Parquet.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Scores, .parquet or .csv; default: FILE.scores.parquet.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score a file with the newest intact checkpoint of a run. If the file has labels, print AUC and log loss too."""
    directory = find_run(run)
    if not file.is_file():
        from elastichost.datasets.files import missing_file

        raise DataError(f"{file}: is a folder" if file.is_dir() else missing_file(str(file)))
    destination = output if output is not None else file.with_name(f"{file.name}.scores.parquet")
    if not destination.resolve().parent.is_dir():
        raise ConfigError(
            f"cannot write {destination}: its directory does not exist", hint="name another file with --output"
        )
    progress_console().print("loading the model (takes a few seconds)", style="dim")
    from elastichost.results.predict import predict as score  # loads torch

    print_report(score(directory, file.resolve(), destination.resolve()), as_json=as_json)
