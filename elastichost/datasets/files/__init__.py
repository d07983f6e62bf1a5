"""The files of a dataset.

    patterns      finds the files that paths, globs and addresses name
    named         the one file that a person names to a verb
    stamps        finds the stamp of a file, opens the file, and detects changes of it
    many_requests the same request to many files at addresses
    pinned        the files of a run, which do not change while it lasts
    first_bytes   what the first bytes of a file say about its format
    first_line    what the first line of a text file says about it
    caches        the user's directory of caches

A path is that of a file here, or an address of a web server or a store.
"""

from elastichost.datasets.file_stamp import FileStamp
from elastichost.datasets.files.caches import cache_directory
from elastichost.datasets.files.first_bytes import (
    FIRST_BYTES,
    GZIP_MAGIC,
    PARQUET_MAGIC,
    gzip_problem,
    is_parquet,
    other_than_parquet,
)
from elastichost.datasets.files.first_line import SourceFormat, format_of_line, real_delimiter
from elastichost.datasets.files.named import absolute_name, base_name, folder_name, named_file, readable
from elastichost.datasets.files.patterns import expand_patterns, missing_file, with_hint
from elastichost.datasets.files.pinned import (
    NOT_PINNED,
    PINNED_FILE,
    PinnedFiles,
    check_pinned,
    current_stamp,
    find_files,
    read_pinned,
    write_pinned,
    written_again,
)
from elastichost.datasets.files.stamps import check_unchanged, is_url, opened, stamp

__all__ = [
    "FIRST_BYTES",
    "GZIP_MAGIC",
    "NOT_PINNED",
    "PARQUET_MAGIC",
    "PINNED_FILE",
    "FileStamp",
    "PinnedFiles",
    "SourceFormat",
    "absolute_name",
    "base_name",
    "cache_directory",
    "check_pinned",
    "check_unchanged",
    "current_stamp",
    "expand_patterns",
    "find_files",
    "folder_name",
    "format_of_line",
    "gzip_problem",
    "is_parquet",
    "is_url",
    "missing_file",
    "named_file",
    "opened",
    "other_than_parquet",
    "read_pinned",
    "readable",
    "real_delimiter",
    "stamp",
    "with_hint",
    "write_pinned",
    "written_again",
]
