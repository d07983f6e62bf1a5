"""What the first line of a text file says about its format."""

from __future__ import annotations

from typing import Literal

from elastichost.datasets.settings import CRITEO_CATEGORICAL, CRITEO_DENSE

__all__ = ["DELIMITERS", "SourceFormat", "format_of_line", "real_delimiter"]

SourceFormat = Literal["criteo_tsv", "csv"]

DELIMITERS = (",", ";", "\t", "|")
_CRITEO_FIELDS = 1 + len(CRITEO_DENSE) + len(CRITEO_CATEGORICAL)  # the first is the label


def format_of_line(first_line: bytes) -> SourceFormat:
    """criteo_tsv when the first line of a text file has as many tab-separated fields as Criteo TSV, else csv."""
    return "criteo_tsv" if first_line.count(b"\t") + 1 == _CRITEO_FIELDS else "csv"


def real_delimiter(line: bytes, delimiter: str) -> str | None:
    """The character that separates the columns of a header line, if `delimiter` does not; None: it does, or none is
    found."""
    if delimiter.encode() in line:
        return None
    counts = {one: line.count(one.encode()) for one in DELIMITERS}
    likely = max(DELIMITERS, key=lambda one: counts[one])
    return likely if counts[likely] else None
