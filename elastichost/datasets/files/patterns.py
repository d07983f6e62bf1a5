"""Finds the files that paths, globs and addresses name."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable

from elastichost.datasets.files.stamps import is_url
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy, tried
from elastichost.datasets.sources.transports.addresses import is_store
from elastichost.datasets.sources.transports.glob_matches import has_glob, matching
from elastichost.datasets.sources.transports.open_stores import OpenStores
from elastichost.errors import DataError, SourceGoneError
from elastichost.human_readable import did_you_mean

__all__ = ["expand_patterns", "missing_file", "with_hint"]

GLOB_CHARACTERS = frozenset("*?[")
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # a Path has one slash where the URL had two


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
    except SourceGoneError:
        raise  # other files need not be asked
    except DataError as error:
        return (), with_hint(error)
    return found, "" if found else f"{pattern}: no file matches"


def with_hint(error: DataError) -> str:
    """The message with what to do, as one problem of a list."""
    return f"{error.message}: {error.hint}" if error.hint else error.message


def missing_file(pattern: str) -> str:
    """The message for a path or glob without files: a URL, a name that is nearly right, or a missing folder."""
    if pattern.lower().startswith("file:"):
        return f"{pattern}: give the path of the file, without file:"
    if URL.match(pattern):
        return f"{pattern}: is an address without its second slash: give it as text, not as a path"
    if GLOB_CHARACTERS & set(pattern):
        return f"{pattern}: no file matches"
    folder = os.path.dirname(pattern) or "."
    if not os.path.isdir(folder):
        return f"{pattern}: no such file (the folder {folder} does not exist)"
    return f"{pattern}: no such file{did_you_mean(os.path.basename(pattern), os.listdir(folder))}"
