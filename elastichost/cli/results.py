"""Verbs that use the trained model of a run: export, predict and serve."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elastichost.cli.output import AsJson, data_console, fact_lines, print_json, progress_console
from elastichost.cli.report import print_report
from elastichost.cli.runs import RunArgument, find_run
from elastichost.errors import ConfigError, PreflightError

if TYPE_CHECKING:
    from elastichost.serving.loaded_export import LoadedExport

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("export")(export)
    app.command("predict")(predict)
    app.command("serve")(serve)


def export(
    run: RunArgument,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The directory of the export: new or empty.")],
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", help="The checkpoint to export; default: the newest intact one."),
    ] = None,
    best: Annotated[
        bool, typer.Option("--best", help="The checkpoint of the best evaluation, by checkpoint.keep_best.")
    ] = False,
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
    vectors: Annotated[
        list[str] | None,
        typer.Option(
            "--vectors",
            metavar="COLUMN=FILE",
            help="Also write the vectors that the model's method `vectors` computes of this column of ids for the rows "
            "of a Parquet file, as DIR/vectors/COLUMN.parquet; repeatable.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the trained model so that it loads without elastichost."""
    from elastichost.results.export import export as write_export
    from elastichost.results.vector_files import parse_vectors

    if best and checkpoint is not None:
        raise ConfigError("--best and --checkpoint both name a checkpoint", hint="leave one of them out")
    report = write_export(
        find_run(run),
        directory,
        checkpoint,
        best=best,
        format=form,
        embeddings=embeddings or (),
        vectors=parse_vectors(vectors or ()),
    )
    print_report(report, as_json=as_json)


def predict(
    run: RunArgument,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Samples in the format of the job's data, or Parquet; or an address.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Scores, .parquet or .csv; default: FILE.scores.parquet, for an address here.",
        ),
    ] = None,
    best: Annotated[
        bool, typer.Option("--best", help="The checkpoint of the best evaluation, by checkpoint.keep_best.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Score a file with the newest intact checkpoint of a run. If the file has labels, print AUC and log loss too."""
    directory = find_run(run)
    from elastichost.cli.sources import patient_requests
    from elastichost.datasets.files import base_name, is_url, named_file

    out = progress_console()
    waiting = patient_requests(out)
    stored = named_file(file, waiting=waiting).path
    folder = Path() if is_url(stored) else Path(stored).parent
    destination = output if output is not None else folder / f"{base_name(stored)}.scores.parquet"
    if not destination.resolve().parent.is_dir():
        raise ConfigError(
            f"cannot write {destination}: its directory does not exist", hint="name another file with --output"
        )
    out.print("loading the model (takes a few seconds)", style="dim")
    from elastichost.results.predict import predict as score  # loads torch

    print_report(score(directory, stored, destination.resolve(), best=best, waiting=waiting), as_json=as_json)


def serve(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="An export, or a symbolic link to one; a newer one is loaded by itself."),
    ],
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="0: any free port.")] = 8080,
    host: Annotated[
        str, typer.Option("--host", help="The address to listen on; 0.0.0.0 for all of this machine.")
    ] = "127.0.0.1",
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes; each loads the model.")] = 1,
    max_rows: Annotated[int, typer.Option("--max-rows", min=1, help="Rows that a request may have.")] = 10_000,
    max_body_mib: Annotated[int, typer.Option("--max-body-mib", min=1, help="Size of a request, MiB.")] = 8,
    queue: Annotated[
        int, typer.Option("--queue", min=1, help="Requests that may wait for the model; more are answered with 503.")
    ] = 256,
    max_delay_ms: Annotated[
        float, typer.Option("--max-delay-ms", min=0, help="Time that a request waits for others to be scored with it.")
    ] = 0.0,
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=0.1, help="Time in which a client must send the body of a request.")
    ] = 30.0,
    drain_s: Annotated[
        float, typer.Option("--drain-s", min=1, help="Time in which requests are finished after SIGTERM.")
    ] = 30.0,
    refuse_nulls: Annotated[
        bool, typer.Option("--refuse-nulls", help="Refuse nulls; by default they mean what they meant in training.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Answer requests for scores over HTTP: POST /predict."""
    _check_is_installed()
    progress_console().print("loading the model (takes a few seconds)", style="dim")
    from elastichost.serving.server import serve as serve_export
    from elastichost.serving.settings import BUFFERED_BYTES, MIB, ServeSettings

    def announce(address: str, export: LoadedExport) -> None:
        if as_json:
            print_json({"url": address, "export": export.id, "directory": str(export.directory)})
        else:
            facts = [("serving", f"{export.job}, {export.samples_trained:,} samples, export {export.id}")]
            data_console().print(fact_lines([*facts, ("address", f"{address}/predict")]))

    settings = ServeSettings(
        directory=str(directory.absolute()),
        host=host,
        port=port,
        workers=workers,
        max_body_bytes=max_body_mib * MIB,
        max_request_rows=max_rows,
        queue_requests=queue,
        buffered_bytes=max(BUFFERED_BYTES, 2 * max_body_mib * MIB),  # one body arrives while another is scored
        max_delay_s=max_delay_ms / 1000,
        header_timeout_s=min(timeout_s, 10.0),
        body_timeout_s=timeout_s,
        drain_s=drain_s,
        refuse_nulls=refuse_nulls,
    )
    serve_export(settings, announce)


def _check_is_installed() -> None:
    """Raises PreflightError when the packages of the extra `serve` are missing."""
    if missing := [name for name in ("starlette", "uvicorn") if find_spec(name) is None]:
        are = "are" if len(missing) > 1 else "is"
        raise PreflightError(f"{' and '.join(missing)} {are} not installed", hint="pip install 'elastichost[serve]'")
