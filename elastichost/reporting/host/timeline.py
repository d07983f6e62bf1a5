"""timeline.db of a host, thinned by the database itself, of its last dispatcher only. Nothing is written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from elastichost.reporting.run.measurements import connect_to_read, rows_of

__all__ = ["JobStep", "StateSpan", "TimelineRows", "read_rows"]

WHAT = "what jobs used second by second is not known"
POINTS = 480  # of a line, about
LEAST_STEP_S = 0.01
GAP_S = 5.0  # rows of a job further apart are no neighbours: it did not run between them

# The dispatcher begins where the time goes back; rows of one second have the same time.
_FIRST = """
    SELECT max(rowid) FROM (SELECT rowid, elapsed_s, lag(elapsed_s) OVER (ORDER BY rowid) AS before_s FROM job)
    WHERE before_s IS NULL OR elapsed_s < before_s"""
_STEPS = """
    SELECT steps.step, ticks.at_s, job, cpu / ticks.count, memory, charged, speed, predicted, workers, is_running
    FROM (SELECT CAST(elapsed_s / :step_s AS INTEGER) AS step, job, sum(cpu_cores) AS cpu, max(memory_bytes) AS memory,
            max(charged_bytes) AS charged, avg(samples_per_s) AS speed, avg(predicted_speed) AS predicted,
            max(workers) AS workers, min(state = 'running') AS is_running
        FROM job WHERE rowid >= :first GROUP BY 1, 2) AS steps
    JOIN (SELECT CAST(elapsed_s / :step_s AS INTEGER) AS step, max(elapsed_s) AS at_s,
            count(DISTINCT elapsed_s) AS count
        FROM job WHERE rowid >= :first GROUP BY 1) AS ticks ON ticks.step = steps.step
    ORDER BY steps.step, job"""
_STATES = """
    WITH seen AS (
        SELECT job, state, elapsed_s, lag(state) OVER w AS before, lag(elapsed_s) OVER w AS before_s
        FROM job WHERE rowid >= :first WINDOW w AS (PARTITION BY job ORDER BY rowid)),
    begun AS (
        SELECT job, state, elapsed_s, before_s FROM seen
        WHERE before IS NULL OR state <> before OR elapsed_s - before_s > :gap_s)
    SELECT begun.job, state, elapsed_s,
        coalesce(lead(elapsed_s) OVER v, last_s), coalesce(lead(before_s) OVER v, last_s)
    FROM begun JOIN (SELECT job, max(elapsed_s) AS last_s FROM job WHERE rowid >= :first GROUP BY job) AS ends
        ON ends.job = begun.job
    WINDOW v AS (PARTITION BY begun.job ORDER BY elapsed_s) ORDER BY elapsed_s, begun.job"""


class JobStep(msgspec.Struct, frozen=True, array_like=True):
    """One job in one step of time, which ends at at_s: mean of the cores, most of the bytes. is_running: all the time;
    speed: samples/s; predicted: share of that alone."""

    step: int
    at_s: float
    job: str
    cpu_cores: float
    memory_bytes: int
    charged_bytes: int
    samples_per_s: float
    predicted_speed: float
    workers: int
    is_running: int


class StateSpan(msgspec.Struct, frozen=True, array_like=True):
    """A state of a job: first seen at at_s, another at next_s, last seen at seen_s."""

    job: str
    state: str
    at_s: float
    next_s: float
    seen_s: float


class TimelineRows(msgspec.Struct, frozen=True):
    """step_s: of the rows, if they lie closer. problem: why this is not all, in words."""

    step_s: float = LEAST_STEP_S
    steps: tuple[JobStep, ...] = ()
    states: tuple[StateSpan, ...] = ()
    problem: str = ""


def read_rows(path: Path, points: int = POINTS) -> TimelineRows:
    """What can be read of it."""
    if not path.is_file():
        return TimelineRows(problem=f"there is no such file: {WHAT}")
    try:
        with closing(connect_to_read(path)) as connection:
            return _read(connection, points)
    except (sqlite3.Error, msgspec.ValidationError) as error:
        return TimelineRows(problem=f"it cannot be read: {error}")


def _read(connection: sqlite3.Connection, points: int) -> TimelineRows:
    first = connection.execute(_FIRST).fetchone()[0]
    if first is None:
        return TimelineRows(problem=f"it is empty: {WHAT}")
    ends = connection.execute("SELECT max(elapsed_s) FROM job WHERE rowid >= ?", (first,)).fetchone()[0]
    step_s = max(float(ends) / points, LEAST_STEP_S)
    given = {"first": first, "step_s": step_s, "gap_s": GAP_S}
    steps = rows_of(connection, _STEPS, given, JobStep)
    return TimelineRows(step_s, steps, rows_of(connection, _STATES, given, StateSpan))
