"""The files of a run, which do not change while it lasts.

The supervisor finds them when the run begins, and writes them to `RUN/data_files.json`. Every process that starts later
reads these files and no others: a file that arrives in the folder of a glob would give the units other numbers, and the
ledger counts samples by unit. A file that was replaced is refused: the ledger has counted the rows of the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from elastichost.atomic_write import write_atomically
from elastichost.datasets.file_stamp import FileStamp
from elastichost.datasets.files.patterns import expand_patterns
from elastichost.datasets.files.stamps import is_url, stamp
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy
from elastichost.errors import CheckpointError, DataError

__all__ = [
    "NOT_PINNED",
    "PINNED_FILE",
    "PinnedFiles",
    "check_pinned",
    "current_stamp",
    "find_files",
    "read_pinned",
    "write_pinned",
    "written_again",
]

PINNED_FILE = "data_files.json"
ANY_VERSION = -1  # only the size is compared


class PinnedFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files of the training data and of the test data, in the order in which they are read. Empty: they are found
    by the patterns of the job, as a reader of the user's own does itself."""

    train: tuple[FileStamp, ...] = ()
    test: tuple[FileStamp, ...] = ()

    def of(self, split: str) -> tuple[FileStamp, ...]:
        return self.train if split == "train" else self.test

    def with_sizes_only(self) -> PinnedFiles:
        """The same files in any version: a run that is resumed may find them copied back."""
        return PinnedFiles(_of_any_version(self.train), _of_any_version(self.test))

    def for_other_hosts(self) -> PinnedFiles:
        """The same files for another machine, whose copies have other times. An address is the same file there."""
        return PinnedFiles(_of_any_version(self.train, is_url), _of_any_version(self.test, is_url))


NOT_PINNED = PinnedFiles()


def _of_any_version(
    files: Iterable[FileStamp], except_for: Callable[[str], bool] = lambda path: False
) -> tuple[FileStamp, ...]:
    return tuple(one if except_for(one.path) else replace(one, modified_ns=ANY_VERSION) for one in files)


def find_files(
    patterns: Iterable[str], pinned: Sequence[FileStamp], waiting: RequestPolicy = BEFORE_RUN
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(files, problems), as `expand_patterns`; of a run that has begun, the files that it began with."""
    if pinned:
        return tuple(one.path for one in pinned), ()
    return expand_patterns(patterns, waiting)


def current_stamp(path: str, pinned: Sequence[FileStamp], place: int, waiting: RequestPolicy = BEFORE_RUN) -> FileStamp:
    """The stamp of a file as it is now. place: of the file among those of `find_files`. Raises DataError as `stamp`
    does, and for a file that is not the pinned one any more."""
    now = stamp(path, waiting)
    if pinned:
        check_pinned(now, pinned[place])
    return now


def check_pinned(now: FileStamp, expected: FileStamp) -> None:
    """Raises DataError for a file that is not the pinned one any more."""
    if now.size_bytes == expected.size_bytes and expected.modified_ns in (now.modified_ns, ANY_VERSION):
        return
    sizes = f"{expected.size_bytes:,} bytes then, {now.size_bytes:,} bytes now"
    raise DataError(
        f"{now.path}: was replaced after the run began ({sizes})",
        hint="do not change data files of a run: put the old file back, or write new data to new files and start again",
    )


def written_again(before: PinnedFiles, now: PinnedFiles) -> tuple[str, ...]:
    """The warning of a run that is resumed with files of the same sizes and other versions; (): there are none."""
    versions = {one.path: one.modified_ns for one in (*before.train, *before.test)}
    found = {one.path: one.modified_ns for one in (*now.train, *now.test)}
    paths = [path for path, version in found.items() if versions.get(path, version) != version]
    if not paths:
        return ()
    are = f" and {len(paths) - 1} more files were" if len(paths) > 1 else " was"
    return (f"{paths[0]}{are} written since the run began, with as many bytes: the rows are taken to be the same",)


def write_pinned(run_dir: Path, files: PinnedFiles) -> None:
    """Writes the files of the run to its directory. Raises OSError."""
    write_atomically(run_dir / PINNED_FILE, msgspec.json.encode(files) + b"\n")


def read_pinned(run_dir: Path) -> PinnedFiles:
    """The files of the run; none if the directory does not name them. Raises CheckpointError for a damaged file."""
    path = run_dir / PINNED_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=PinnedFiles)
    except FileNotFoundError:
        return NOT_PINNED
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"{path}: names the data files of the run, and cannot be read: {error}",
            hint="remove it if no file of the data was added or replaced since the run began",
        ) from error
