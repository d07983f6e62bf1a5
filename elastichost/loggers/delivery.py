"""Sends every value of a run to a logger once, in order, and remembers how far it has got.

The position is written to RUN/loggers/NAME.json after the values have arrived. So a logger that is killed in between
sends the last values twice, and leaves none out. While a logger cannot send, its process tries again with growing
pauses.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from elastichost.atomic_write import write_atomically
from elastichost.loggers.logger import Logger, LoggerError, Value
from elastichost.runs.events import EvaluationFinished, JournalLine
from elastichost.runs.follow import Position, RunFollower
from elastichost.runs.journal import unix_s_of
from elastichost.runs.learning_curve import CurvePoint

__all__ = ["Delivery", "DeliveryProgress", "progress_of", "values_of"]


class DeliveryProgress(msgspec.Struct, frozen=True):
    """How far a logger has got. key: the name of the record (`Logger.key`)."""

    position: Position = Position()
    key: str = ""


def progress_of(path: Path) -> DeliveryProgress:
    """The progress that was written last; the beginning if there is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=DeliveryProgress)
    except (OSError, msgspec.MsgspecError):
        return DeliveryProgress()


def values_of(happening: object) -> list[Value]:
    """The values that a logger gets for a point of the curve or an event; none for anything else."""
    if isinstance(happening, CurvePoint):
        return [Value("train/loss", happening.samples, happening.loss, happening.unix_s)]
    if isinstance(happening, JournalLine) and isinstance(happening.event, EvaluationFinished):
        event, unix_s = happening.event, unix_s_of(happening.time_utc)
        further = event.memory.figures.metrics if event.memory.figures is not None else {}
        others = [(f"test/{name}", figure) for name, figure in further.items()]
        figures = (("test/auc", event.auc), ("test/logloss", event.logloss), *others)
        return [Value(name, event.samples, figure, unix_s) for name, figure in figures if figure is not None]
    return []


class Delivery:
    """Sends the values of one run to one logger. open: opens the logger for a key."""

    def __init__(self, run_dir: Path, name: str, open_one: Callable[[str], Logger]) -> None:
        self._path = run_dir / "loggers" / f"{name}.json"
        self._path.parent.mkdir(exist_ok=True)
        self._progress = progress_of(self._path)
        self._follower = RunFollower(run_dir, self._progress.position)
        self._open = open_one
        self._logger: Logger | None = None
        self._waiting: list[Value] = []
        self.failures = 0  # in a row
        self.problem = ""

    @property
    def is_complete(self) -> bool:
        """Whether all that was read has arrived."""
        return not self._waiting

    def turn(self) -> None:
        """Reads what is new and sends it. An error of the logger is kept in `problem`, and the values wait. Raises
        LoggerError when the logger can never be opened."""
        for happening in self._follower.poll():
            self._waiting += values_of(happening)
        position = self._follower.position
        try:
            logger = self._opened()
            self._keep(DeliveryProgress(self._progress.position, logger.key))  # another try makes no second record
            if self._waiting:
                logger.log(self._waiting)
        except LoggerError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the library of the logger raises: it is tried again
            self.failures += 1
            self.problem = f"{type(error).__name__}: {error}"
            return
        self.failures, self.problem, self._waiting = 0, "", []
        self._keep(DeliveryProgress(position, logger.key))

    def close(self, status: str) -> None:
        """Tells the logger how the run ended. Raises what the logger raises."""
        self._opened().close(status)

    def _keep(self, progress: DeliveryProgress) -> None:
        if progress != self._progress:
            write_atomically(self._path, msgspec.json.encode(progress))
            self._progress = progress

    def _opened(self) -> Logger:
        if self._logger is None:
            self._logger = self._open(self._progress.key)
        return self._logger
