"""The files of a store that match a glob: `s3://BUCKET/clicks/2026-*/part-*.parquet`, and `**` for any depth.

What a glob means does not depend on the store: it is matched here, against the listing of the folder before the first
asterisk or bracket.
"""

from __future__ import annotations

import re

from elastichost.datasets.sources.transports.addressed_file import SourceError
from elastichost.datasets.sources.transports.addresses import GLOB, StoreAddress, parsed
from elastichost.datasets.sources.transports.open_stores import OpenStores
from elastichost.datasets.sources.transports.store_errors import missing, typed
from elastichost.errors import DataError

__all__ = ["folder_of", "has_glob", "matcher", "matching"]

MOST_FILES = 1_000_000
NOTHING = "(?!)"  # a regular expression that matches no text


def has_glob(url: str) -> bool:
    """Whether the address of a store names several files by a glob."""
    return bool(GLOB & set(parsed(url).key))


def folder_of(key: str) -> str:
    """The folder that holds all files that match; "": the bucket."""
    first = next(place for place, character in enumerate(key) if character in GLOB)
    return key[:first].rpartition("/")[0]


def matcher(key: str) -> re.Pattern[str]:
    """What the keys of the matching files look like. `*` stands for characters of one name, `**/` for folders."""
    parts = key.split("/")
    patterns = [r"(?:[^/]+/)*" if part == "**" else _name(part) + "/" for part in parts[:-1]]
    return re.compile("".join(patterns) + (r".+" if parts[-1] == "**" else _name(parts[-1])))


def matching(url: str, stores: OpenStores) -> tuple[str, ...]:
    """The addresses of the files that match, in name order. Raises DataError, and SourceError for what may pass."""
    address = parsed(url)
    folder, pattern = folder_of(address.key), matcher(address.key)
    rest = address.key.removeprefix(folder).lstrip("/")
    is_deep = "/" in rest or "**" in rest
    try:
        found = _listed(address, stores, folder, pattern, is_deep=is_deep)
    except (DataError, SourceError):
        raise
    except FileNotFoundError as error:
        raise missing(url, address.authority, has_place=False) from error
    except Exception as error:
        raise typed(url, error) from error
    return tuple(address.url(key) for key in sorted(found))


def _listed(
    address: StoreAddress, stores: OpenStores, folder: str, pattern: re.Pattern[str], *, is_deep: bool
) -> list[str]:
    found: list[str] = []
    for key in stores.of(address).keys(folder, is_deep=is_deep):
        if pattern.fullmatch(key):
            found.append(key)
        if len(found) > MOST_FILES:
            raise DataError(
                f"{address.root}: more than {MOST_FILES:,} files match", hint="write fewer and larger files"
            )
    return found


def _name(part: str) -> str:
    """A glob for one name as a regular expression, in which nothing stands for a slash."""
    found, at = "", 0
    while at < len(part):
        is_inverse = part[at + 1 : at + 2] == "!"
        begin = at + 1 + is_inverse
        end = part.find("]", begin + 1) if part[at] == "[" else -1  # one that comes first is one of the characters
        if part[at] == "*":
            found += "[^/]*"
        elif end > 0:
            characters = _characters(part[begin:end])
            found += f"[^/{characters}]" if is_inverse else f"[{characters}]" if characters else NOTHING
            at = end
        else:
            found += re.escape(part[at])
        at += 1
    return found


def _characters(inner: str) -> str:
    """What stands between the brackets of a glob, for a regular expression. A range whose end comes before its begin
    has no characters, as in `fnmatch`."""
    found, at = "", 0
    while at < len(inner):
        first, last = inner[at], inner[at + 2 : at + 3]
        if last and inner[at + 1] == "-":
            found += f"{re.escape(first)}-{re.escape(last)}" if first <= last else ""
            at += 3
        else:
            found += re.escape(first)
            at += 1
    return found
