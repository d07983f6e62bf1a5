"""Reads metrics.db of a run. SQL thins its rows: a run of weeks has millions of rows, and a figure needs some hundreds.

Nothing is written: a database that no process has open is opened as immutable.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec

from elastichost.reporting.run.facts import Course, GpuCourse, ProcessCourse
from elastichost.reporting.run.sessions import Axis
from elastichost.runs.metrics_file import connect_to_read

__all__ = [
    "MeasuredSession",
    "Measurements",
    "course_of",
    "gpu_courses",
    "process_courses",
    "read_measurements",
    "rows_of",
]

Row = TypeVar("Row")
WHAT = "the report lacks speed, CPU and memory over time"
LEAST_STEP_S = 0.01
LAST_ROW = 1 << 62
NO_ROWS = (0, -1)
POINTS = 480  # of a line, approximately
GAP_S = 5.0  # a line breaks between rows that are further apart than this, and than three thinned steps

# A session begins where the time goes back: lag() over rowid finds that without an index. A process that has ended has
# rows with zero bytes.
_STARTS = """
    SELECT rowid FROM (SELECT rowid, elapsed_s, lag(elapsed_s) OVER (ORDER BY rowid) AS before_s FROM {table})
    WHERE before_s IS NULL OR elapsed_s < before_s ORDER BY rowid"""
_RUN = """
    SELECT max(elapsed_s), max(samples_trained), avg(samples_per_s), avg(loss), max(arena_bytes)
    FROM run WHERE rowid BETWEEN ? AND ? GROUP BY CAST(elapsed_s / ? AS INTEGER) ORDER BY 1"""
_SUM = """
    SELECT max(elapsed_s), max(bytes) FROM (
        SELECT elapsed_s, sum(pss_bytes) AS bytes FROM process
        WHERE rowid BETWEEN ? AND ? AND rss_bytes > 0 GROUP BY elapsed_s)
    GROUP BY CAST(elapsed_s / ? AS INTEGER) ORDER BY 1"""
_USAGE = """
    SELECT role || '-' || idx, max(elapsed_s), max(incarnation), avg(cpu_percent), max(pss_bytes), avg(wait_fraction),
           count(*)
    FROM process WHERE rowid BETWEEN ? AND ? AND role IN ('worker', 'server', 'reader') AND rss_bytes > 0
    GROUP BY role, idx, CAST(elapsed_s / ? AS INTEGER) ORDER BY role DESC, idx, 2"""

_GPUS = """
    SELECT idx, max(elapsed_s), avg(busy), avg(own_busy), max(used_bytes), max(own_bytes), avg(received_bytes_per_s),
           avg(sent_bytes_per_s)
    FROM gpu WHERE rowid BETWEEN ? AND ? GROUP BY idx, CAST(elapsed_s / ? AS INTEGER) ORDER BY idx, 2"""
# A row of a process or a GPU has the time of a row of the run: one transaction adds all rows of a second.
_RUN_ROW = """
    SELECT run.rowid FROM run WHERE run.rowid >= ? AND elapsed_s = (SELECT elapsed_s FROM {table} WHERE rowid = ?)
    ORDER BY run.rowid LIMIT 1"""
_OTHER_ROW = """
    SELECT rowid FROM {table} WHERE rowid BETWEEN ? AND ?
    AND elapsed_s NOT IN (SELECT elapsed_s FROM run WHERE rowid BETWEEN ? AND ?) ORDER BY rowid LIMIT 1"""
_HAS_GPUS = "SELECT count(*) FROM sqlite_master WHERE name = 'gpu'"


class RunRow(msgspec.Struct, frozen=True, array_like=True):
    """The run in one step of time: the end of the step, the samples trained by then, and means over the step."""

    elapsed_s: float
    samples: int | None
    reported_per_s: float | None
    loss: float | None
    arena_bytes: int | None


class UsageRow(msgspec.Struct, frozen=True, array_like=True):
    """One process in one step of time. count: number of rows that were merged."""

    process: str
    elapsed_s: float
    incarnation: int
    cpu_percent: float | None
    pss_bytes: int
    waiting: float
    count: int


class SumRow(msgspec.Struct, frozen=True, array_like=True):
    """PSS of all processes together at one time."""

    elapsed_s: float
    pss_bytes: int


class GpuRow(msgspec.Struct, frozen=True, array_like=True):
    """One GPU in one step of time, means of what `metrics.GpuStatus` says."""

    index: int
    elapsed_s: float
    busy: float | None
    own_busy: float | None
    used_bytes: int | None
    own_bytes: int | None
    received_bytes_per_s: float | None
    sent_bytes_per_s: float | None


class MeasuredSession(msgspec.Struct, frozen=True):
    """The measurements of one session. step_s: length of a step."""

    duration_s: float
    step_s: float
    run: tuple[RunRow, ...]
    usage: tuple[UsageRow, ...] = ()
    sums: tuple[SumRow, ...] = ()
    gpus: tuple[GpuRow, ...] = ()


class Measurements(msgspec.Struct, frozen=True):
    sessions: tuple[MeasuredSession, ...] = ()
    problem: str = ""


def read_measurements(path: Path, points: int = POINTS) -> Measurements:
    """The readable measurements. `problem` is the reason for missing ones, "" if none are missing."""
    if not path.is_file():
        return Measurements(problem=f"no such file, so {WHAT}")
    found: tuple[MeasuredSession, ...] = ()
    try:
        with closing(connect_to_read(path)) as connection:
            found = _runs(connection, points)
            found = _with_processes(connection, found)
            found = _with_gpus(connection, found)
    except (sqlite3.Error, msgspec.ValidationError) as error:
        return Measurements(found, f"{'a part of it ' if found else ''}cannot be read: {error}")
    return Measurements(found, "" if found else f"empty, so {WHAT}")


def _runs(connection: sqlite3.Connection, points: int) -> tuple[MeasuredSession, ...]:
    ranges = _ranges(connection, "run")
    longest = "SELECT max(elapsed_s) FROM run WHERE rowid BETWEEN ? AND ?"
    durations = [msgspec.convert(connection.execute(longest, one).fetchone()[0] or 0, float) for one in ranges]
    step_s = max(sum(durations) / points, LEAST_STEP_S)
    return tuple(
        MeasuredSession(duration_s, step_s, rows_of(connection, _RUN, (*one, step_s), RunRow))
        for one, duration_s in zip(ranges, durations, strict=True)
    )


def _with_processes(connection: sqlite3.Connection, found: tuple[MeasuredSession, ...]) -> tuple[MeasuredSession, ...]:
    ranges = _ranges_of_sessions(connection, "process")
    return tuple(
        msgspec.structs.replace(
            session,
            usage=rows_of(connection, _USAGE, (*own, session.step_s), UsageRow),
            sums=rows_of(connection, _SUM, (*own, session.step_s), SumRow),
        )
        for session, own in zip(found, ranges, strict=False)
    )


def _with_gpus(connection: sqlite3.Connection, found: tuple[MeasuredSession, ...]) -> tuple[MeasuredSession, ...]:
    if not connection.execute(_HAS_GPUS).fetchone()[0]:
        return found
    ranges = _ranges_of_sessions(connection, "gpu")
    return tuple(
        msgspec.structs.replace(session, gpus=rows_of(connection, _GPUS, (*own, session.step_s), GpuRow))
        for session, own in zip(found, ranges, strict=False)
    )


def rows_of(
    connection: sqlite3.Connection, query: str, given: Sequence[float] | Mapping[str, float], kind: type[Row]
) -> tuple[Row, ...]:
    """The rows of a query, each as a struct of type `kind`."""
    return msgspec.convert(connection.execute(query, given).fetchall(), tuple[kind, ...])  # type: ignore[valid-type]


def _ranges(connection: sqlite3.Connection, table: str) -> list[tuple[int, int]]:
    """The (first, last) rowid of each session."""
    starts = [int(rowid) for (rowid,) in connection.execute(_STARTS.format(table=table))]
    ends = [start - 1 for start in starts[1:]]
    return list(zip(starts, [*ends, LAST_ROW], strict=True)) if starts else []


def _ranges_of_sessions(connection: sqlite3.Connection, table: str) -> list[tuple[int, int]]:
    """The (first, last) rowid that each session of the run has in a table that not every session writes to. NO_ROWS
    for a session without rows there, for example one without a GPU.

    The time need not go back where such a session lies between two others. So rows belong to the first session that has
    a row of the run with the time of the first of them, and only as long as that session has their times."""
    sessions = _ranges(connection, "run")
    lasts = [last for _, last in sessions]
    found = [NO_ROWS] * len(sessions)
    number = 0
    for first, last in _ranges(connection, table):
        while first <= last and number < len(sessions):
            row = connection.execute(_RUN_ROW.format(table=table), (sessions[number][0], first)).fetchone()
            if row is None:
                break  # no session has rows of this time: where these belong is not known
            number = bisect_left(lasts, row[0])
            other = connection.execute(_OTHER_ROW.format(table=table), (first, last, *sessions[number])).fetchone()
            end = last if other is None else other[0] - 1
            found[number] = first, end
            first, number = end + 1, number + 1
    return found


# --- on the axis of running time --------------------------------------------------------------------------------------


def course_of(measurements: Measurements, axis: Axis) -> Course:
    """The course of the run as a whole. Lines break between sessions."""
    lines: list[tuple[float | None, ...]] = []
    sums: list[tuple[float | None, float | None]] = []
    has_trained = False
    for session, began_s in zip(measurements.sessions, _begins(axis), strict=True):
        before: RunRow | None = None
        for row in session.run:
            rate = _counted_per_s(before, row, has_trained=has_trained)
            has_trained = has_trained or bool(row.samples)
            samples = row.samples if row.samples or not has_trained else None
            lines.append(
                (began_s + row.elapsed_s, samples, rate, row.reported_per_s, row.loss, row.arena_bytes or None)
            )
            before = row
        lines.append((None,) * 6)
        sums += [(began_s + one.elapsed_s, one.pss_bytes or None) for one in session.sums]
        sums.append((None, None))
    if not lines:
        return Course()
    return Course(*zip(*lines[:-1], strict=True), *zip(*sums[:-1], strict=True))


def _counted_per_s(before: RunRow | None, row: RunRow, *, has_trained: bool) -> float | None:
    """Samples/s between two rows. None: not known, or a resume or a roll back has set the count."""
    if before is None or row.samples is None or before.samples is None or row.samples < before.samples:
        return None
    if has_trained and not before.samples:
        return None
    passed_s = row.elapsed_s - before.elapsed_s
    return (row.samples - before.samples) / passed_s if passed_s > 0 else None


def process_courses(measurements: Measurements, axis: Axis) -> tuple[ProcessCourse, ...]:
    """The course of each process, workers first. Lines break where the process did not exist."""
    rows = [
        (began_s, session.step_s, row)
        for session, began_s in zip(measurements.sessions, _begins(axis), strict=True)
        for row in session.usage
    ]
    found = dict[str, list[tuple[float, float, UsageRow]]]()
    for one in rows:
        found.setdefault(one[2].process, []).append(one)
    return tuple(_process_course(name, found[name]) for name in sorted(found, key=_order))


def _process_course(name: str, rows: list[tuple[float, float, UsageRow]]) -> ProcessCourse:
    lines: list[tuple[float | None, float | None, float | None]] = []
    before: tuple[float, int] | None = None
    for began_s, step_s, row in rows:
        at_s = began_s + row.elapsed_s
        if before is not None and (at_s - before[0] > max(GAP_S, 3 * step_s) or row.incarnation != before[1]):
            lines.append((None, None, None))
        lines.append((at_s, row.cpu_percent, row.pss_bytes or None))
        before = at_s, row.incarnation
    seen = [row for _, _, row in rows]
    count = sum(row.count for row in seen)
    at, cpu, memory = zip(*lines, strict=True)
    return ProcessCourse(
        name,
        max(row.incarnation for row in seen),
        at,
        cpu,
        memory,
        _mean_cpu_percent(seen),
        max(row.pss_bytes for row in seen),
        sum(row.waiting * row.count for row in seen) / count,
    )


def gpu_courses(measurements: Measurements, axis: Axis) -> tuple[GpuCourse, ...]:
    """The course of each GPU. Lines break between sessions."""
    found: dict[int, list[GpuRow | None]] = {}
    for session, began_s in zip(measurements.sessions, _begins(axis), strict=True):
        for rows in found.values():
            rows.append(None)
        for row in session.gpus:
            moved = msgspec.structs.replace(row, elapsed_s=began_s + row.elapsed_s)
            found.setdefault(row.index, []).append(moved)
    return tuple(_gpu_course(index, rows) for index, rows in sorted(found.items()))


def _gpu_course(index: int, rows: list[GpuRow | None]) -> GpuCourse:
    def values(name: str) -> tuple[float | None, ...]:
        return tuple(None if row is None else getattr(row, name) for row in rows)

    return GpuCourse(
        index,
        values("elapsed_s"),
        values("busy"),
        values("own_busy"),
        values("used_bytes"),
        values("own_bytes"),
        values("received_bytes_per_s"),
        values("sent_bytes_per_s"),
    )


def _mean_cpu_percent(rows: list[UsageRow]) -> float | None:
    """The mean CPU use in percent of a core; None if it was never measured."""
    known = [(row.cpu_percent, row.count) for row in rows if row.cpu_percent is not None]
    return sum(percent * count for percent, count in known) / sum(count for _, count in known) if known else None


def _begins(axis: Axis) -> list[float]:
    return [axis.sessions[number].at_s for number in axis.measured]


def _order(name: str) -> tuple[bool, int, str]:
    role, _, index = name.rpartition("-")
    return role != "worker", int(index) if index.isdecimal() else 0, name
