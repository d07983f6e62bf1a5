"""The learning curve of a run: the mean loss of every N samples, in the order in which batches were committed.

The values are exact: the loss sums come from applied.bin (`wire.applied`), the log of all committed batches, so no
batch is missing and none counts twice, whatever was killed in between. A reader that is slow loses nothing either,
because the curve is a table of metrics.db.

A run has at most MOST_POINTS points. N follows from the length of the job, so the points of a run in sync mode are the
same for any number of workers. The last point before an end or a stop may have fewer samples.

`CurveBuilder` is pure: records in, points out. `CurveWriter` reads applied.bin and writes the table. `read_curve` reads
the table. After a roll-back applied.bin is shorter; the points of the lost batches are then removed, and new points get
new ids. A reader that follows the curve asks for the ids beyond the last one that it has seen.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elastichost.atomic_write import is_out_of_space
from elastichost.measurement_database import connected, damaged_files
from elastichost.run_files import METRICS_FILE
from elastichost.runs.metrics_file import connect_to_read
from elastichost.wire.applied import AppliedRecords, applied_range, read_applied_content, read_applied_range

__all__ = ["MOST_POINTS", "CurveBuilder", "CurvePoint", "CurveWriter", "read_curve", "samples_per_point"]

MOST_POINTS = 2000
MOST_IDS = 1 << 32  # of the points in one file; each roll-back gives some of them new ones

_SCHEMA = """
CREATE TABLE IF NOT EXISTS curve (
    id INTEGER PRIMARY KEY AUTOINCREMENT, batches INTEGER, samples INTEGER, of_samples INTEGER, loss REAL,
    unix_s REAL);
"""


class CurvePoint(NamedTuple):
    """A point of the curve. batches, samples: committed since the begin of the run, up to and with this point.
    of_samples: the samples of this point. loss: their mean loss, rounded to float32. unix_s: when the point
    was complete, in seconds since 1970. id: grows with every point that is written."""

    batches: int
    samples: int
    of_samples: int
    loss: float
    unix_s: float
    id: int = 0


def samples_per_point(samples_planned: int, batch_size: int) -> int:
    """The least multiple of the batch size with which the curve has at most MOST_POINTS points; at least one batch."""
    batches = -(-samples_planned // (MOST_POINTS * batch_size))
    return max(1, batches) * batch_size


class CurveBuilder:
    """Sums records up to points. batches, samples: what was committed before the first record that comes."""

    def __init__(self, every_samples: int, batches: int = 0, samples: int = 0) -> None:
        self.every_samples = every_samples
        self.batches, self.samples = batches, samples
        self._loss_sum, self._open_samples = 0.0, 0

    def add(self, records: AppliedRecords, unix_s: float) -> list[CurvePoint]:
        """The points that these records complete. A point ends with the batch that reaches its number of samples."""
        points = []
        for samples, loss_sum in zip(records["samples"].tolist(), records["loss_sum"].tolist(), strict=True):
            before = self.samples // self.every_samples
            self.batches += 1
            self.samples += samples
            self._open_samples += samples
            self._loss_sum += loss_sum
            if self.samples // self.every_samples > before:
                points.append(self._close(unix_s))
        return points

    def rest(self, unix_s: float) -> list[CurvePoint]:
        """The point of the samples that are left over; empty if there are none."""
        return [self._close(unix_s)] if self._open_samples else []

    def _close(self, unix_s: float) -> CurvePoint:
        loss = float(np.float32(self._loss_sum / self._open_samples))  # some loggers keep float32: all have this value
        point = CurvePoint(self.batches, self.samples, self._open_samples, loss, unix_s)
        self._loss_sum, self._open_samples = 0.0, 0
        return point


class CurveWriter:
    """Keeps the table `curve` of metrics.db up to date. There is one writer. On a full disk the points wait; `problem`
    is then the reason, and "" otherwise. Raises sqlite3.Error for errors other than missing space."""

    def __init__(self, run_dir: Path, every_samples: int) -> None:
        self._run_dir, self._every_samples = run_dir, every_samples
        self._connection = connected(run_dir / METRICS_FILE, _SCHEMA)  # a lost point is read from applied.bin again
        self._builder = CurveBuilder(every_samples)
        self._waiting: list[CurvePoint] = []
        self.problem = ""
        try:
            self._begin_beyond_damaged()
            self._go_back(applied_range(run_dir))
        except BaseException:
            self._connection.close()
            raise

    def _begin_beyond_damaged(self) -> None:
        """Gives points of a file that was begun anew greater ids than those of the damaged files before it, which a
        follower may have seen. It gets the points of the new file a second time, and misses none."""
        damaged = len(damaged_files(self._run_dir / METRICS_FILE))
        with self._connection:
            known = self._connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'curve'").fetchone()
            if damaged and known is None:
                first = damaged * MOST_IDS
                self._connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('curve', ?)", (first,))

    def poll(self, unix_s: float) -> None:
        """Writes the points that are complete since the last call. The last record is left for the next call: while it
        is the last, its commit may still fail, and then it is replaced."""
        present = applied_range(self._run_dir)
        self._follow(range(present.start, present.stop - 1), unix_s)

    def went_back(self, batches: int) -> None:
        """The run goes on from a checkpoint after this number of batches: the points of later ones are removed. `poll`
        would not see it where as many batches were trained again since its last call."""
        self._go_back(range(1, batches + 1))

    def close(self, unix_s: float) -> None:
        """Writes the samples that are left over as the last point, and closes the file. Call it when all PS have
        ended."""
        try:
            self._follow(applied_range(self._run_dir), unix_s)
            self._write(self._builder.rest(unix_s))
        finally:
            self._connection.close()

    def _follow(self, present: range, unix_s: float) -> None:
        if present.stop <= self._builder.batches:
            self._go_back(present)
        new = range(self._builder.batches + 1, present.stop)
        if present.start > new.start:  # records that were folded before they were read: after a resume without its file
            self._builder = CurveBuilder(self._every_samples, present.start - 1, self._folded_samples())
        points = self._builder.add(read_applied_range(self._run_dir, new), unix_s) if new else []
        self._write(points)

    def _go_back(self, present: range) -> None:
        """Removes the points of batches that applied.bin no longer has, and continues after the last one that stays."""
        last = present.stop - 1
        self._waiting = [point for point in self._waiting if point.batches <= last]
        with self._connection:
            self._connection.execute("DELETE FROM curve WHERE batches > ?", (last,))
        query = "SELECT batches, samples FROM curve ORDER BY batches DESC LIMIT 1"
        kept = [(point.batches, point.samples) for point in self._waiting[-1:]]
        batches, samples = (kept or self._connection.execute(query).fetchall() or [(0, 0)])[0]
        self._builder = CurveBuilder(self._every_samples, batches, samples)

    def _folded_samples(self) -> int:
        fold = read_applied_content(self._run_dir).fold
        return fold.samples if fold is not None else 0

    def _write(self, points: list[CurvePoint]) -> None:
        self._waiting += points
        try:
            with self._connection:
                self._connection.executemany(
                    "INSERT INTO curve (batches, samples, of_samples, loss, unix_s) VALUES (?, ?, ?, ?, ?)",
                    [point[:-1] for point in self._waiting],
                )
        except sqlite3.OperationalError as error:
            if not is_out_of_space(error):
                raise
            self.problem = str(error)
        else:
            self._waiting, self.problem = [], ""


def read_curve(run_dir: Path, after_id: int = 0) -> list[CurvePoint]:
    """The points with larger ids, in the order in which they were written; empty when the run has no curve yet."""
    path = run_dir / METRICS_FILE
    if not path.exists():
        return []
    query = "SELECT batches, samples, of_samples, loss, unix_s, id FROM curve WHERE id > ? ORDER BY id"
    with closing(connect_to_read(path)) as connection:
        try:
            return [CurvePoint(*row) for row in connection.execute(query, (after_id,))]
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):  # it is made a moment after the file
                return []
            raise
