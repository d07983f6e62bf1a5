"""metrics.db in different states, and its rows on the axis of running time."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import msgspec
import pytest

from elastichost.host.process_meter import MetricsStore
from elastichost.metrics import GpuStatus, RunStatus
from elastichost.reporting.run.measurements import course_of, gpu_courses, process_courses, read_measurements
from elastichost.reporting.run.sessions import axis_of
from tests.reporting.remains import status, write_metrics


def numbers(values: tuple[float | None, ...]) -> list[float]:
    """The values without the gaps."""
    return [value for value in values if value is not None]


def test_a_run_of_two_sessions(tmp_path: Path) -> None:
    first = [status(float(at_s), 100 * at_s) for at_s in range(5)]
    # resumed from a checkpoint at 300: the first rows have no samples, later ones include those before
    second = [status(0.1, 0), status(1.0, 300), status(2.0, 400)]
    write_metrics(tmp_path / "metrics.db", [*first, *second])
    found = read_measurements(tmp_path / "metrics.db")
    axis = axis_of((), [session.duration_s for session in found.sessions])
    course = course_of(found, axis)
    assert not found.problem
    assert [session.duration_s for session in found.sessions] == [4.0, 2.0]
    assert course.at_s == (0.0, 1.0, 2.0, 3.0, 4.0, None, 4.1, 5.0, 6.0)
    assert course.counted_per_s == (None, 100.0, 100.0, 100.0, 100.0, None, None, None, 100.0)
    assert course.samples[-3:] == (None, 300.0, 400.0)
    assert numbers(course.process_bytes) == [200 << 20] * 8
    worker, server = process_courses(found, axis)
    assert (worker.process, server.process) == ("worker-0", "server-0")
    assert (worker.mean_cpu_percent, server.mean_cpu_percent) == (50.0, 51.0)
    assert worker.peak_memory_bytes == 100 << 20


def test_long_runs_are_thinned_and_their_last_rows_are_kept(tmp_path: Path) -> None:
    write_metrics(tmp_path / "metrics.db", [status(float(at_s), 10 * at_s) for at_s in range(3000)])
    found = read_measurements(tmp_path / "metrics.db", points=100)
    course = course_of(found, axis_of((), [2999.0]))
    assert 90 <= len(course.at_s) <= 110
    assert (course.at_s[-1], course.samples[-1]) == (2999.0, 29990)
    assert all(rate == pytest.approx(10.0) for rate in numbers(course.counted_per_s))
    (worker, _) = process_courses(found, axis_of((), [2999.0]))
    assert None not in worker.at_s


def test_lines_break_where_a_process_did_not_exist(tmp_path: Path) -> None:
    def with_incarnation(at_s: float, incarnation: int) -> object:
        one = status(at_s, 100)
        processes = tuple(msgspec.structs.replace(process, incarnation=incarnation) for process in one.processes)
        return msgspec.structs.replace(one, processes=processes)

    rows = [with_incarnation(0.0, 1), with_incarnation(1.0, 1), with_incarnation(2.0, 2), with_incarnation(20.0, 2)]
    write_metrics(tmp_path / "metrics.db", rows)  # type: ignore[arg-type]
    found = read_measurements(tmp_path / "metrics.db")
    (worker, _) = process_courses(found, axis_of((), [20.0]))
    assert worker.at_s == (0.0, 1.0, None, 2.0, None, 20.0)
    assert worker.incarnations == 2


def test_a_missing_measurement_is_not_zero(tmp_path: Path) -> None:
    first = status(1.0, 100)
    unknown = tuple(msgspec.structs.replace(one, cpu_percent=None) for one in first.processes)
    write_metrics(tmp_path / "metrics.db", [msgspec.structs.replace(first, processes=unknown)])
    (worker, _) = process_courses(read_measurements(tmp_path / "metrics.db"), axis_of((), [1.0]))
    assert worker.cpu_percent == (None,)
    assert worker.mean_cpu_percent is None
    write_metrics(tmp_path / "metrics.db", [status(2.0, 200)])
    (worker, _) = process_courses(read_measurements(tmp_path / "metrics.db"), axis_of((), [2.0]))
    assert worker.cpu_percent == (None, 50.0)
    assert worker.mean_cpu_percent == 50.0, "the mean must leave out missing values"


def test_rows_of_processes_that_have_ended_are_left_out(tmp_path: Path) -> None:
    last = status(2.0, 200)
    gone = tuple(msgspec.structs.replace(one, cpu_percent=0.0, rss_bytes=0, memory_bytes=0) for one in last.processes)
    write_metrics(tmp_path / "metrics.db", [status(1.0, 100), msgspec.structs.replace(last, processes=gone)])
    found = read_measurements(tmp_path / "metrics.db")
    (worker, _) = process_courses(found, axis_of((), [2.0]))
    assert worker.at_s == (1.0,)


def test_reading_creates_no_file(tmp_path: Path) -> None:
    write_metrics(tmp_path / "metrics.db", [status(1.0, 100)])
    before = sorted(os.listdir(tmp_path))
    assert read_measurements(tmp_path / "metrics.db").sessions
    assert sorted(os.listdir(tmp_path)) == before


def test_a_store_that_is_being_written_is_read(tmp_path: Path) -> None:
    store = MetricsStore(tmp_path / "metrics.db")
    store.add(status(1.0, 100))
    assert [row.samples for row in read_measurements(tmp_path / "metrics.db").sessions[0].run] == [100]
    store.add(status(2.0, 200))
    assert [row.samples for row in read_measurements(tmp_path / "metrics.db").sessions[0].run] == [100, 200]
    store.close()


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\x00" + bytes(4000)])
def test_an_invalid_database_is_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "metrics.db").write_bytes(content)
    found = read_measurements(tmp_path / "metrics.db")
    assert found.sessions == ()
    assert "cannot be read" in found.problem


def test_a_database_without_rows_and_a_missing_one_are_reported(tmp_path: Path) -> None:
    write_metrics(tmp_path / "metrics.db", [])
    assert "empty, so" in read_measurements(tmp_path / "metrics.db").problem
    assert "no such file" in read_measurements(tmp_path / "other.db").problem
    assert course_of(read_measurements(tmp_path / "other.db"), axis_of((), [])).at_s == ()


def test_an_older_database_is_read_as_far_as_possible(tmp_path: Path) -> None:
    write_metrics(tmp_path / "metrics.db", [status(1.0, 100), status(2.0, 200)])
    with sqlite3.connect(tmp_path / "metrics.db") as connection:
        connection.execute("ALTER TABLE process DROP COLUMN wait_fraction")
    connection.close()
    found = read_measurements(tmp_path / "metrics.db")
    assert "a part of it cannot be read: no such column" in found.problem
    assert [row.samples for row in found.sessions[0].run] == [100, 200]


def test_rows_that_are_not_numbers_are_reported(tmp_path: Path) -> None:
    write_metrics(tmp_path / "metrics.db", [status(1.0, 100)])
    with sqlite3.connect(tmp_path / "metrics.db") as connection:
        connection.execute("UPDATE run SET samples_trained = 'many'")
    connection.close()
    assert "cannot be read" in read_measurements(tmp_path / "metrics.db").problem


def test_gpus_are_drawn_over_all_sessions_with_breaks_between_them(tmp_path: Path) -> None:
    def with_gpu(at_s: float, busy: float | None, problem: str = "") -> object:
        gpu = GpuStatus(index=0, name="a GPU", total_bytes=100, busy=busy, used_bytes=40, own_bytes=30, problem=problem)
        return msgspec.structs.replace(status(at_s, 100), gpus=(gpu,))

    rows = [with_gpu(0.0, None), with_gpu(1.0, 0.5), with_gpu(2.0, 0.7, "lost"), with_gpu(0.5, 0.25)]
    write_metrics(tmp_path / "metrics.db", rows)
    found = read_measurements(tmp_path / "metrics.db")
    (gpu,) = gpu_courses(found, axis_of((), [session.duration_s for session in found.sessions]))
    assert gpu.at_s == (0.0, 1.0, None, 2.5), "a GPU that did not answer has no row"
    assert gpu.busy == (None, 0.5, None, 0.25)
    assert gpu.used_bytes == (40, 40, None, 40)


def gpu_row(at_s: float) -> RunStatus:
    gpu = GpuStatus(index=0, name="a GPU", total_bytes=100, busy=0.5, used_bytes=40, own_bytes=30)
    return msgspec.structs.replace(status(at_s, 100), gpus=(gpu,))


def drawn_at_s(path: Path, rows: list[RunStatus]) -> tuple[float | None, ...]:
    """When the only GPU of these rows is drawn."""
    write_metrics(path, rows)
    found = read_measurements(path)
    (gpu,) = gpu_courses(found, axis_of((), [session.duration_s for session in found.sessions]))
    return gpu.at_s


def test_gpus_are_drawn_in_the_session_that_had_them(tmp_path: Path) -> None:
    without = [status(0.0, 100), status(1.0, 200)]
    assert drawn_at_s(tmp_path / "a.db", [*without, gpu_row(0.5), gpu_row(1.5)]) == (1.5, 2.5)
    # a session without a GPU between two with one: the times of the rows with GPUs do not go back
    rows = [gpu_row(0.5), gpu_row(1.5), *without, status(0.25, 300), gpu_row(2.5), gpu_row(3.5)]
    assert drawn_at_s(tmp_path / "b.db", rows) == (0.5, 1.5, None, None, 5.0, 6.0)


def test_processes_are_drawn_in_the_session_that_had_them(tmp_path: Path) -> None:
    without = [msgspec.structs.replace(status(at_s, 100), processes=()) for at_s in (0.0, 1.0)]
    write_metrics(tmp_path / "metrics.db", [*without, status(0.5, 100), status(1.5, 200)])
    found = read_measurements(tmp_path / "metrics.db")
    (worker, _) = process_courses(found, axis_of((), [session.duration_s for session in found.sessions]))
    assert worker.at_s == (1.5, 2.5)


def test_rows_of_no_session_are_left_out(tmp_path: Path) -> None:
    write_metrics(tmp_path / "metrics.db", [gpu_row(0.0), gpu_row(1.0)])
    with sqlite3.connect(tmp_path / "metrics.db") as connection:
        connection.execute("UPDATE gpu SET elapsed_s = elapsed_s + 0.3")
    connection.close()
    found = read_measurements(tmp_path / "metrics.db")
    assert not found.problem
    assert [session.gpus for session in found.sessions] == [()]


def test_a_run_from_before_gpus_were_measured_has_none(tmp_path: Path) -> None:
    write_metrics(tmp_path / "metrics.db", [status(0.0, 1), status(1.0, 2)])
    with sqlite3.connect(tmp_path / "metrics.db") as connection:
        connection.execute("DROP TABLE gpu")
    found = read_measurements(tmp_path / "metrics.db")
    assert not found.problem
    assert gpu_courses(found, axis_of((), [1.0])) == ()
