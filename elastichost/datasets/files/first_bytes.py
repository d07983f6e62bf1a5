"""What the first bytes of a file say about its format."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from elastichost.datasets.file_stamp import FileStamp
from elastichost.datasets.files.first_line import format_of_line, real_delimiter
from elastichost.datasets.files.named import base_name, readable
from elastichost.datasets.files.stamps import is_url
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy

__all__ = ["FIRST_BYTES", "GZIP_MAGIC", "PARQUET_MAGIC", "gzip_problem", "is_parquet", "other_than_parquet"]

GZIP_MAGIC = b"\x1f\x8b"
PARQUET_MAGIC = b"PAR1"
FIRST_BYTES = 4096  # enough to tell text from other files, and for the first line of most
_CONVERT = "elastichost convert IN OUT.parquet"


def is_parquet(file: FileStamp, waiting: RequestPolicy = BEFORE_RUN) -> bool:
    """Whether the file begins as Parquet does. Raises DataError when it cannot be read."""
    with readable(file, waiting) as begin:
        return begin.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC


def gzip_problem(path: str, first_bytes: bytes, file_format: str, types: Mapping[str, str]) -> str | None:
    """The message for a text file that is compressed, with the command that converts it; None when it is not
    compressed. `types`: column -> declared type, for the command."""
    if not first_bytes.startswith(GZIP_MAGIC):
        return None
    target = (base_name(path) if is_url(path) else path).removesuffix(".gz") + ".parquet"
    command = ["python", "-m", "elastichost", "convert", path, target, "--format", file_format]
    for column, kind in types.items():
        command += ["--type", f"{column}={kind}"]
    return f"{path}: a gzip file cannot be read from the middle; convert it once: {shlex.join(command)}"


def other_than_parquet(path: str, begin: bytes) -> str | None:
    """The message for a file whose first bytes (`FIRST_BYTES` of them) are not those of Parquet; None when they are."""
    if begin.startswith(PARQUET_MAGIC):
        return None
    if begin.startswith(GZIP_MAGIC):
        return f"is a gzip file, not Parquet; if it is compressed text: {_CONVERT}"
    if b"\0" not in begin:
        kind, settings = _text_format(path, begin.partition(b"\n")[0])
        return f"is {kind}, not Parquet: set {settings}, or convert it once: {_CONVERT}"
    return f"is not a Parquet file: it begins with {begin[:4]!r} instead of {PARQUET_MAGIC!r}"


def _text_format(path: str, first_line: bytes) -> tuple[str, str]:
    """(what a text file is, the settings with which it is read)."""
    name = base_name(path) if is_url(path) else path
    kind = "a CSV file" if name.lower().endswith(".csv") else "a text file"
    if format_of_line(first_line) == "criteo_tsv":
        return kind, 'data.format = "criteo_tsv"'
    other = real_delimiter(first_line, ",")
    return kind, 'data.format = "csv"' + (f" and data.csv.delimiter = {json.dumps(other)}" if other else "")
