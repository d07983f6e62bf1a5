"""Reads timeline.db of a host: the rows of its last dispatcher, which SQL thins to a few hundred. Writes nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from elastichost.human_readable import duration_words
from elastichost.reporting.run.measurements import rows_of
from elastichost.runs.metrics_file import connect_to_read

__all__ = ["JobStep", "StateSpan", "TimelineRows", "read_rows"]

WHAT = "the report lacks the resources that jobs used over time"
POINTS = 480  # of a line, approximately
LEAST_STEP_S = 0.01
GAP_S = 5.0  # if two rows of a job are further apart, it did not run between them

# A new dispatcher begins where the time goes back. Rows of one second have the same time.
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
    """One job in one step of time that ends at `at_s`: mean number of cores and largest number of bytes. is_running: 1
    if the job ran during the whole step. predicted_speed: as a share of its speed alone."""

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
    """A state of a job: first seen at `at_s`, last seen at `seen_s`; the next state is first seen at `next_s`."""

    job: str
    state: str
    at_s: float
    next_s: float
    seen_s: float


class TimelineRows(msgspec.Struct, frozen=True):
    """The rows of one dispatcher. step_s: length of a step. problem: why all or the oldest ones are missing; "": none
    are."""

    step_s: float = LEAST_STEP_S
    steps: tuple[JobStep, ...] = ()
    states: tuple[StateSpan, ...] = ()
    problem: str = ""


def read_rows(path: Path, points: int = POINTS) -> TimelineRows:
    """The rows of the last dispatcher. A missing or unreadable file gives no rows and a `problem`."""
    if not path.is_file():
        return TimelineRows(problem=f"no such file, so {WHAT}")
    try:
        with closing(connect_to_read(path)) as connection:
            return _read(connection, points)
    except (sqlite3.Error, msgspec.ValidationError) as error:
        return TimelineRows(problem=f"cannot be read: {error}")


def _read(connection: sqlite3.Connection, points: int) -> TimelineRows:
    first = connection.execute(_FIRST).fetchone()[0]
    if first is None:
        return TimelineRows(problem=f"empty, so {WHAT}")
    ends = connection.execute("SELECT max(elapsed_s) FROM job WHERE rowid >= ?", (first,)).fetchone()[0]
    step_s = max(float(ends) / points, LEAST_STEP_S)
    given = {"first": first, "step_s": step_s, "gap_s": GAP_S}
    steps = rows_of(connection, _STEPS, given, JobStep)
    return TimelineRows(step_s, steps, rows_of(connection, _STATES, given, StateSpan), _cut_off(connection, first))


def _cut_off(connection: sqlite3.Connection, first: int) -> str:
    """Why the oldest rows of the last dispatcher are missing; "": none are. first: its oldest rowid."""
    oldest, at_s = connection.execute("SELECT rowid, elapsed_s FROM job ORDER BY rowid LIMIT 1").fetchone()
    if oldest == 1 or oldest != first:
        return ""
    return f"the dispatcher keeps its newest rows only, so {WHAT} in the first {duration_words(at_s)}"
