"""`init`: writes a job file for a file of samples."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elastichost.cli.output import progress_console
from elastichost.errors import ConfigError
from elastichost.human_readable import plural

if TYPE_CHECKING:
    from elastichost.datasets.inference.sample import FileSample
    from elastichost.datasets.sources.single_requests import RequestPolicy

__all__ = ["register"]

MOST_LETTERS = 64  # of the name of a job


def register(app: typer.Typer) -> None:
    app.command("init")(init)


def init(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Samples: Parquet, CSV with a header, or Criteo TSV; a file or an address."
        ),
    ],
    label: Annotated[
        str, typer.Option("--label", metavar="COLUMN", help="The column of the label, which is 0 or 1.")
    ] = "",
    test: Annotated[
        str | None, typer.Option("--test", metavar="FILE", help="Test data, with the same columns.")
    ] = None,
) -> None:
    """Print a job file for a file of samples.

    `elastichost init clicks.csv --label clicked > job.toml` writes one that trains unedited. Types and uses of the
    columns are found from some of the rows; the job file says why each column is used as it is.
    """
    from elastichost.cli.sources import patient_requests
    from elastichost.config.job import make_job
    from elastichost.config.tables import resolve_tables
    from elastichost.datasets.files import base_name
    from elastichost.datasets.preflight import check_data

    out = progress_console()
    with out.status(f"reading {base_name(file)}"):
        text, warnings = _text(file, label, test, patient_requests(out))
        job = make_job(tomllib.loads(text), Path.cwd(), "the job of init", environ={})
        check = check_data(job)
        resolve_tables(job, check.train.key_kinds)
    typer.echo(text, nl=False)
    rows = f"{check.train.samples:,} samples"
    if check.test is not None:
        rows += f", and {check.test.samples:,} to test with"
    for warning in (*warnings, *check.warnings):
        out.print(f"warning: {warning}", style="yellow", soft_wrap=True)
    out.print(f"{rows}; train with: elastichost run job.toml", style="dim")


def _text(file: str, label: str, test: str | None, waiting: RequestPolicy) -> tuple[str, tuple[str, ...]]:
    """(the job file, warnings)."""
    from elastichost.datasets.files import gzip_problem, is_url
    from elastichost.datasets.inference.columns import facts_of
    from elastichost.datasets.inference.job_text import JobSource, job_text
    from elastichost.datasets.inference.roles import roles_of
    from elastichost.datasets.inference.sample import read_sample
    from elastichost.datasets.inference.shared_ids import shared_ids

    sample = read_sample(file, waiting)
    types = {name: "string" if kind == "time" else kind for name, kind in (sample.text_types or {}).items()}
    is_text_here = sample.format != "parquet" and not is_url(file)  # text at an address is decompressed into the cache
    if is_text_here and (problem := gzip_problem(file, sample.first_bytes, sample.format, types)):
        raise ConfigError(problem, hint="then call init with the Parquet file")
    if sample.format != "criteo_tsv" and not label:
        names = ", ".join(filter(None, sample.table.column_names))
        raise ConfigError(f"{file}: which column is the label?", hint=f"add --label COLUMN; its columns: {names}")
    roles = roles_of(facts_of(sample), label, file) if sample.format != "criteo_tsv" else ()
    if roles and not any(one.use == "categorical" for one in roles):
        raise ConfigError(
            f"{file}: no column holds ids", hint="a recommendation model needs one: a user, an item, a category"
        )
    facts = JobSource(_name(file), file, test or "", sample, shared_ids(sample, roles))
    return job_text(facts, roles), _bad_rows(sample)


def _bad_rows(sample: FileSample) -> tuple[str, ...]:
    from elastichost.datasets.bad_rows import HOW_TO_SKIP

    if not sample.bad_rows:
        return ()
    count = plural(sample.bad_rows, "row")
    return (f"{count} left out, and a run would stop there: {sample.first_bad}; correct the data, or {HOW_TO_SKIP}",)


def _name(file: str) -> str:
    from elastichost.datasets.files import base_name, folder_name

    name = base_name(file).split(".")[0].lower()
    if name in ("train", "data"):  # of these there are many
        name = folder_name(file).lower()
    kept = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name).strip("-")
    return kept[:MOST_LETTERS].strip("-") or "job"
