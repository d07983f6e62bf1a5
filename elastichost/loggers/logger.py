"""The interface of a logger, and the values that it gets."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

from elastichost.config.job import JobSpec
from elastichost.errors import ElastichostError

__all__ = ["Logger", "LoggerError", "Opened", "Value"]


class LoggerError(ElastichostError):
    """A logger cannot be used: its package is missing, or its server refuses it."""


class Value(NamedTuple):
    """One value. name: "train/loss", "test/auc", "test/logloss", and "test/NAME" for each further
    figure of `evaluate.metrics`. samples: trained so far. unix_s: when it was measured,
    in seconds since 1970."""

    name: str
    samples: int
    value: float
    unix_s: float


class Opened(NamedTuple):
    """What a logger needs to know of the run. name: of the run directory. key: what `Logger.key` said when the run was
    logged before, so that a resumed run continues the same record; "" for a new one."""

    run_dir: Path
    name: str
    job: JobSpec
    key: str


class Logger(Protocol):
    """Sends values to one place. A method may take its time, and raise any error: it is then called again later with
    the same values, so a value may be sent twice but none is left out."""

    @property
    def key(self) -> str:
        """Names the record of this run there; "" if the place has no names for them."""
        ...

    def log(self, values: list[Value]) -> None:
        """Sends these values; when it returns they have arrived."""
        ...

    def close(self, status: str) -> None:
        """The run has ended with this status: done, stopped, failed, ..."""
        ...
