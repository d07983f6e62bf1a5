"""Writes values to a CSV file."""

from __future__ import annotations

import csv
import os

from elastichost.loggers.logger import Opened, Value

__all__ = ["CsvLogger"]


class CsvLogger:
    """Appends lines to the file; its first line names the columns."""

    key = ""

    def __init__(self, opened: Opened) -> None:
        settings = opened.job.logging.csv
        path = opened.run_dir / (settings.file or "log.csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file)
        if os.fstat(self._file.fileno()).st_size == 0:
            self._writer.writerow(Value._fields)

    def log(self, values: list[Value]) -> None:
        self._writer.writerows((one.name, one.samples, repr(one.value), repr(one.unix_s)) for one in values)
        self._file.flush()

    def close(self, status: str) -> None:
        self._file.close()
