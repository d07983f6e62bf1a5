"""The one file that a person names to a verb: a path here, or an address of a web server or a store."""

from __future__ import annotations

import io
import os
import posixpath
from urllib.parse import unquote, urlsplit

from elastichost.datasets.file_stamp import FileStamp
from elastichost.datasets.files.patterns import missing_file
from elastichost.datasets.files.stamps import is_url, opened, stamp
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy
from elastichost.datasets.sources.transports.addresses import is_store, parsed
from elastichost.errors import DataError

__all__ = ["absolute_name", "base_name", "folder_name", "named_file", "readable"]


def named_file(name: str | os.PathLike[str], *, hint: str = "", waiting: RequestPolicy = BEFORE_RUN) -> FileStamp:
    """The stamp of the file. hint: what to do if there is none. Raises DataError: there is no such file, it is a
    folder, or the source of an address does not answer."""
    path = os.fspath(name)
    if not is_url(path) and not os.path.isfile(path):
        raise DataError(f"{path}: is a folder" if os.path.isdir(path) else missing_file(path), hint=hint)
    return stamp(path, waiting)


def readable(file: FileStamp, waiting: RequestPolicy = BEFORE_RUN) -> io.RawIOBase:
    """The file for reading. Raises DataError when it may not be read."""
    try:
        return opened(file, waiting)
    except OSError as error:
        hint = "check that you may read it"
        raise DataError(f"{file.path}: cannot be read ({error.strerror or error})", hint=hint) from error


def absolute_name(name: str | os.PathLike[str]) -> str:
    """The path from the root of the file system; an address as it is."""
    path = os.fspath(name)
    return path if is_url(path) else os.path.realpath(path)


def base_name(name: str | os.PathLike[str]) -> str:
    """The last part of the path or address, without the options of an address."""
    return posixpath.basename(_key(os.fspath(name)))


def folder_name(name: str | os.PathLike[str]) -> str:
    """The name of the folder of the file; "" if it has none."""
    return posixpath.basename(posixpath.dirname(_key(absolute_name(name))))


def _key(path: str) -> str:
    """The path, or the part of an address that names the file."""
    if is_store(path):
        return parsed(path).key
    return unquote(urlsplit(path).path) if is_url(path) else path
