"""What the first bytes of a file say about its format."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from elastichost.datasets.file_stamp import FileStamp
from elastichost.datasets.files.named import base_name, readable
from elastichost.datasets.files.stamps import is_url
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy

__all__ = ["GZIP_MAGIC", "PARQUET_MAGIC", "gzip_problem", "is_parquet"]

GZIP_MAGIC = b"\x1f\x8b"
PARQUET_MAGIC = b"PAR1"


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
