"""The files of a dataset: finds them, detects changes of them, and names the cache directory of their indexes."""

from __future__ import annotations

import glob
import io
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from elastichost.datasets.sources.remote_file import RemoteFile, remote_file
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy, tried
from elastichost.datasets.sources.transports.addressed_file import AddressedFile
from elastichost.datasets.sources.transports.addresses import is_address, is_store
from elastichost.datasets.sources.transports.glob_matches import has_glob, matching
from elastichost.datasets.sources.transports.open_stores import OpenStores
from elastichost.errors import DataError
from elastichost.human_readable import did_you_mean

__all__ = [
    "GZIP_MAGIC",
    "PARQUET_MAGIC",
    "FileStamp",
    "cache_directory",
    "check_unchanged",
    "expand_patterns",
    "gzip_problem",
    "is_parquet",
    "is_url",
    "missing_file",
    "opened",
    "stamp",
    "with_hint",
]

GLOB_CHARACTERS = frozenset("*?[")
GZIP_MAGIC = b"\x1f\x8b"
PARQUET_MAGIC = b"PAR1"
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # a Path has one slash where the URL had two


@dataclass(frozen=True, slots=True)
class FileStamp:
    """Size and modification time of a file. When either differs later, the file was changed."""

    path: str
    size_bytes: int
    modified_ns: int


def stamp(path: str, waiting: RequestPolicy = BEFORE_RUN) -> FileStamp:
    """The stamp of a file as it is now. For a URL the time is any number that changes with the file. Raises DataError
    when it does not exist or is not a regular file."""
    if is_url(path):
        remote = remote_file(path, waiting)
        return FileStamp(path=path, size_bytes=remote.size_bytes, modified_ns=remote.version)
    try:
        status = os.stat(path)
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}", hint="check data.train and data.test in the job file") from error
    if not os.path.isfile(path):
        raise DataError(f"{path}: not a plain file", hint="name files, for example with *.parquet")
    return FileStamp(path=path, size_bytes=status.st_size, modified_ns=status.st_mtime_ns)


def opened(file: FileStamp, waiting: RequestPolicy = BEFORE_RUN) -> io.RawIOBase:
    """The file for reading from any place; each part of a URL's is requested when it is read. Raises OSError, and for a
    URL DataError."""
    if is_url(file.path):
        return RemoteFile(AddressedFile(file.path, file.size_bytes, file.modified_ns), waiting)
    return open(file.path, "rb", buffering=0)


def check_unchanged(expected: FileStamp) -> None:
    """Raises DataError when the file differs from its earlier stamp. That of a URL is checked with each request."""
    if is_url(expected.path):
        return
    now = stamp(expected.path)
    if now != expected:
        raise DataError(
            f"{expected.path}: changed while it was being read "
            f"({expected.size_bytes} bytes when the job started, {now.size_bytes} bytes now)",
            hint="do not change data files while a job runs: write new data to new files and start again",
        )


def expand_patterns(
    patterns: Iterable[str], waiting: RequestPolicy = BEFORE_RUN
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(files, problems). The files of each pattern are in name order, and each file occurs once. A pattern without
    files is a problem."""
    files: dict[str, None] = {}
    problems: list[str] = []
    for pattern in patterns:
        if os.path.isdir(pattern):
            example = os.path.join(pattern, "*.parquet")
            problems.append(f"{pattern}: is a folder: name the files in it, for example {example}")
            continue
        if is_url(pattern):
            found, problem = _at_address(pattern, waiting)
            files.update(dict.fromkeys(found))
            problems.extend([problem] if problem else [])
            continue
        if os.path.exists(pattern):
            files[pattern] = None
            continue
        matches = sorted(glob.glob(pattern, recursive=True)) if GLOB_CHARACTERS & set(pattern) else []
        if not matches:
            problems.append(missing_file(pattern))
        files.update(dict.fromkeys(matches))
    return tuple(files), tuple(problems)


def _at_address(pattern: str, waiting: RequestPolicy) -> tuple[tuple[str, ...], str]:
    """(the addresses that it names, problem or ""). Only a store is asked; an address without a glob is taken as it
    is."""
    try:
        if not is_store(pattern) or not has_glob(pattern):
            return (pattern,), ""
        stores = OpenStores(waiting.stall_s)
        found = tried(pattern, lambda: matching(pattern, stores), waiting)
    except DataError as error:
        return (), with_hint(error)
    return found, "" if found else f"{pattern}: no file matches"


def with_hint(error: DataError) -> str:
    """The message with what to do, as one problem of a list."""
    return f"{error.message}: {error.hint}" if error.hint else error.message


def is_url(path: str) -> bool:
    """Whether the path is an address, of a web server or a store, whose file can be read without a copy here."""
    return is_address(path)


def missing_file(pattern: str) -> str:
    """The message for a path or glob without files: a URL, a name that is nearly right, or a missing folder."""
    if URL.match(pattern):
        return f"{pattern}: is a URL: download it, and give the path of the file"
    if GLOB_CHARACTERS & set(pattern):
        return f"{pattern}: no file matches"
    folder = os.path.dirname(pattern) or "."
    if not os.path.isdir(folder):
        return f"{pattern}: no such file (the folder {folder} does not exist)"
    return f"{pattern}: no such file{did_you_mean(os.path.basename(pattern), os.listdir(folder))}"


def is_parquet(path: str) -> bool:
    """Whether the file begins as Parquet does."""
    with open(path, "rb") as file:
        return file.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC


def gzip_problem(path: str, first_bytes: bytes, file_format: str, types: Mapping[str, str]) -> str | None:
    """The message for a text file that is compressed, with the command that converts it; None when it is not
    compressed. `types`: column -> declared type, for the command."""
    if not first_bytes.startswith(GZIP_MAGIC):
        return None
    target = path.removesuffix(".gz") + ".parquet"
    command = ["python", "-m", "elastichost", "convert", path, target, "--format", file_format]
    for column, kind in types.items():
        command += ["--type", f"{column}={kind}"]
    return f"{path}: a gzip file cannot be read from the middle; convert it once: {shlex.join(command)}"


def cache_directory(environ: Mapping[str, str]) -> Path:
    """$ELASTICHOST_CACHE, or the directory `elastichost` in the user's cache directory."""
    if own := environ.get("ELASTICHOST_CACHE"):
        return Path(own)
    if user_cache := environ.get("XDG_CACHE_HOME"):
        return Path(user_cache) / "elastichost"
    return Path.home() / ".cache" / "elastichost"
