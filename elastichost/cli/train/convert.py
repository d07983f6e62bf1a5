"""`convert`: converts text data to Parquet, which is read several times faster."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from elastichost.cli.output import AsJson, progress_console
from elastichost.cli.report import print_report
from elastichost.errors import ConfigError

__all__ = ["register"]


class SourceFormat(StrEnum):
    CRITEO_TSV = "criteo_tsv"
    CSV = "csv"


class BadRows(StrEnum):
    STOP = "stop"
    SKIP = "skip"


def register(app: typer.Typer) -> None:
    app.command("convert")(convert)


def convert(
    source: Annotated[
        str,
        typer.Argument(metavar="SRC", help="Criteo TSV or CSV with a header, a file or an address; may be gzipped."),
    ],
    destination: Annotated[Path, typer.Argument(metavar="DST", help="The Parquet file to write.")],
    source_format: Annotated[
        SourceFormat | None,
        typer.Option("--format", help="The format of SRC; default: detected from its first line."),
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="COLUMN=TYPE",
            help='CSV: type of a column: "int", "float", "bool", "string", "list[int]", "list[string]"; repeatable.',
        ),
    ] = None,
    delimiter: Annotated[str, typer.Option("--delimiter", help=r"CSV: the character between columns (\t: tab).")] = ",",
    list_delimiter: Annotated[
        str, typer.Option("--list-delimiter", help="CSV: the character between the items of a list.")
    ] = "|",
    decimal: Annotated[str, typer.Option("--decimal", help='CSV: before the fraction of a number, "." or ",".')] = ".",
    bad_rows: Annotated[
        BadRows, typer.Option("--bad-rows", help="Stop at the first malformed row, or skip such rows.")
    ] = BadRows.STOP,
    row_group_rows: Annotated[
        int, typer.Option("--row-group-rows", min=1, max=262_144, help="Rows of a Parquet row group.")
    ] = 65_536,
    as_json: AsJson = False,
) -> None:
    """Convert Criteo TSV or CSV to Parquet, which is read faster.

    The row groups have a size that suits training.
    """
    from elastichost.cli.sources import patient_requests
    from elastichost.datasets.files import base_name
    from elastichost.datasets.text.convert import convert as write_parquet
    from elastichost.datasets.text.convert import format_of

    delimiter = _character("--delimiter", delimiter)
    _check_delimiter(delimiter)
    _check_decimal(decimal, delimiter)
    out = progress_console()
    waiting, name = patient_requests(out), base_name(source)
    with out.status(f"converting {name}") as line:
        report = write_parquet(
            source,
            destination,
            format=source_format.value if source_format is not None else format_of(source, waiting),
            types=_column_types(types or []),
            delimiter=delimiter,
            list_delimiter=_character("--list-delimiter", list_delimiter),
            decimal=decimal,
            bad_rows=bad_rows.value,
            row_group_rows=row_group_rows,
            progress=lambda rows: line.update(f"converting {name}: {rows:,} rows"),
            waiting=waiting,
        )
    print_report(report, as_json=as_json)


def _character(option: str, text: str) -> str:
    r"""One character; \t is a tab. Raises ConfigError."""
    found = text.replace("\\t", "\t")
    if len(found) != 1:
        raise ConfigError(f"{option} {text!r} is not one character", hint=r"for example ';', or '\t' for a tab")
    return found


def _check_delimiter(delimiter: str) -> None:
    from elastichost.config.sections.data import is_delimiter

    if not is_delimiter(delimiter):
        raise ConfigError(
            f"--delimiter {delimiter!r} is not one ASCII character, without quote and line end",
            hint=r"for example ';', or '\t' for a tab",
        )


def _check_decimal(decimal: str, delimiter: str) -> None:
    if decimal not in (".", ","):
        raise ConfigError(f"--decimal {decimal!r} is neither a point nor a comma", hint="for example --decimal ,")
    if decimal == delimiter:
        raise ConfigError(
            f"--decimal and --delimiter are both {decimal!r}", hint="for example --delimiter ';' --decimal ,"
        )


def _column_types(declared: list[str]) -> dict[str, str]:
    """Splits the `COLUMN=TYPE` texts; the converter checks the types."""
    types: dict[str, str] = {}
    for text in declared:
        column, separator, kind = text.partition("=")
        if not separator or not column or not kind:
            raise ConfigError(f"--type {text!r} is not COLUMN=TYPE", hint="for example --type customer=int")
        types[column] = kind
    return types
