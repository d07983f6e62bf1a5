"""The learning curve: exact sums of the committed batches, whatever is cut and continued in between."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.measurement_database import open_database
from elastichost.ps.applied_log import AppliedLog
from elastichost.run_files import METRICS_FILE
from elastichost.runs import learning_curve
from elastichost.runs.learning_curve import (
    MOST_POINTS,
    CurveBuilder,
    CurveWriter,
    read_curve,
    samples_per_point,
)
from elastichost.wire.applied import APPLIED_RECORD, NONE_LEFT_OUT, AppliedRecords
from tests.full_disk import file_limit

BATCH = 10


def records(samples: list[int], losses: list[float]) -> AppliedRecords:
    made = np.zeros(len(samples), APPLIED_RECORD)
    made["samples"], made["loss_sum"] = samples, losses
    return made


def commit(log: AppliedLog, numbers: range, loss: float) -> None:
    """Commits batches of BATCH samples with this mean loss."""
    for number in numbers:
        start = number * BATCH
        log.write(number, (0, 1, number, 1, 0, 0, start, start + BATCH, BATCH, 0, loss * BATCH, NONE_LEFT_OUT))


@given(
    st.lists(st.tuples(st.integers(0, 300), st.floats(0, 1000)), max_size=60),
    st.integers(1, 500),
    st.integers(1, 10),
)
def test_no_sample_and_no_loss_is_left_out(batches: list[tuple[int, float]], every: int, pieces: int) -> None:
    """However the records are cut into calls, the points add up to all of them."""
    builder, points = CurveBuilder(every), []
    made = records([samples for samples, _ in batches], [loss if samples else 0.0 for samples, loss in batches])
    for piece in np.array_split(made, pieces):
        points += builder.add(piece, 1.0)
    points += builder.rest(2.0)
    assert sum(point.of_samples for point in points) == made["samples"].sum()
    assert sum(point.loss * point.of_samples for point in points) == pytest.approx(made["loss_sum"].sum())
    assert [point.samples for point in points] == np.cumsum([point.of_samples for point in points]).tolist()
    assert all(point.samples >= every * (number + 1) for number, point in enumerate(points[:-1]))
    whole = CurveBuilder(every)
    assert [*whole.add(made, 1.0), *whole.rest(2.0)] == [point._replace(unix_s=point.unix_s) for point in points]


@given(st.integers(1, 10**10), st.integers(1, 100_000))
def test_a_curve_has_a_bounded_number_of_points(planned: int, batch_size: int) -> None:
    every = samples_per_point(planned, batch_size)
    assert every % batch_size == 0
    assert planned / every <= MOST_POINTS
    assert every == batch_size or planned / (every - batch_size) > MOST_POINTS


def test_the_last_record_is_read_when_another_follows_or_the_run_has_ended(tmp_path: Path) -> None:
    """Its commit may still fail; then another batch takes its place."""
    log = AppliedLog(tmp_path)
    writer = CurveWriter(tmp_path, BATCH)
    commit(log, range(1, 4), 0.5)
    writer.poll(1.0)
    assert [point.samples for point in read_curve(tmp_path)] == [10, 20]
    log.take_over(3)
    commit(log, range(3, 5), 0.25)
    writer.poll(2.0)
    assert [point.loss for point in read_curve(tmp_path)] == [0.5, 0.5, 0.25]
    writer.close(3.0)
    found = read_curve(tmp_path)
    assert [(point.samples, point.loss, point.unix_s) for point in found[2:]] == [(30, 0.25, 2.0), (40, 0.25, 3.0)]
    assert read_curve(tmp_path, found[2].id) == found[3:]
    log.close()


def test_points_of_batches_that_were_rolled_back_are_replaced_under_new_ids(tmp_path: Path) -> None:
    log = AppliedLog(tmp_path)
    writer = CurveWriter(tmp_path, 2 * BATCH)
    commit(log, range(1, 12), 0.5)
    writer.poll(1.0)
    before = read_curve(tmp_path)
    assert [point.samples for point in before] == [20, 40, 60, 80, 100]
    log.take_over(6)  # the batches 1 to 5 stay
    writer.poll(2.0)
    assert [point.samples for point in read_curve(tmp_path)] == [20, 40]
    commit(log, range(6, 9), 0.1)
    writer.close(3.0)
    after = read_curve(tmp_path)
    assert [(point.samples, point.of_samples) for point in after] == [(20, 20), (40, 20), (60, 20), (80, 20)]
    assert after[2].loss == pytest.approx(0.3), "one batch before and one after the roll-back"
    assert min(point.id for point in after[2:]) > max(point.id for point in before)
    log.close()


def test_a_roll_back_is_known_even_where_as_much_was_trained_again_since(tmp_path: Path) -> None:
    """Regression: points of lost batches stayed, because the log was as long as before when it was read again."""
    log = AppliedLog(tmp_path)
    writer = CurveWriter(tmp_path, 2 * BATCH)
    commit(log, range(1, 12), 0.5)
    writer.poll(1.0)
    log.take_over(6)  # the batches 1 to 5 stay
    commit(log, range(6, 14), 0.1)
    writer.went_back(5)
    writer.close(2.0)
    losses = [(point.samples, pytest.approx(point.loss)) for point in read_curve(tmp_path)]
    assert losses == [(20, 0.5), (40, 0.5), (60, 0.3), (80, 0.1), (100, 0.1), (120, 0.1), (130, 0.1)]
    log.close()


def test_another_supervisor_goes_on_where_the_one_before_was_killed(tmp_path: Path) -> None:
    log = AppliedLog(tmp_path)
    first = CurveWriter(tmp_path, 2 * BATCH)
    commit(log, range(1, 8), 0.5)
    first.poll(1.0)
    del first  # killed: nothing is closed
    commit(log, range(8, 11), 0.5)
    second = CurveWriter(tmp_path, 2 * BATCH)
    second.close(2.0)
    assert [(point.samples, point.of_samples) for point in read_curve(tmp_path)] == [
        (20, 20),
        (40, 20),
        (60, 20),
        (80, 20),
        (100, 20),
    ]
    log.close()


def test_a_curve_without_its_file_goes_on_behind_the_folded_records(tmp_path: Path) -> None:
    log = AppliedLog(tmp_path, 1 << 14)
    commit(log, range(1, 2000), 0.5)
    log.close()
    CurveWriter(tmp_path, BATCH).close(1.0)
    found = read_curve(tmp_path)
    assert found[0].of_samples == BATCH
    assert found[-1].samples == 1999 * BATCH, "samples of folded records count"


def test_points_of_a_file_that_replaces_a_damaged_one_have_greater_ids(tmp_path: Path) -> None:
    """A logger that has read to some id of the damaged file misses none of the new one."""
    log = AppliedLog(tmp_path)
    commit(log, range(1, 20), 0.5)
    for _ in range(2):
        CurveWriter(tmp_path, BATCH).close(1.0)
        before = read_curve(tmp_path)
        (tmp_path / METRICS_FILE).write_bytes(b"damaged" * 1000)
        connection, aside = open_database(tmp_path / METRICS_FILE, "")
        connection.close()
        assert aside is not None
        CurveWriter(tmp_path, BATCH).close(2.0)
        after = read_curve(tmp_path, before[-1].id)
        assert [point[:4] for point in after] == [point[:4] for point in before] and after
    CurveWriter(tmp_path, BATCH).close(3.0)
    assert read_curve(tmp_path) == after, "opened again, it goes on"
    log.close()


def test_points_wait_while_the_disk_is_full(tmp_path: Path) -> None:
    log = AppliedLog(tmp_path)
    commit(log, range(1, 3000), 0.5)
    log.close()
    writer = CurveWriter(tmp_path, BATCH)
    size = (tmp_path / "metrics.db-wal").stat().st_size
    with file_limit(size):
        writer.poll(1.0)
        assert writer.problem
    writer.poll(2.0)
    assert not writer.problem
    writer.close(3.0)
    assert len(read_curve(tmp_path)) == 2999


def test_a_run_without_a_curve_has_no_points(tmp_path: Path) -> None:
    assert read_curve(tmp_path) == []
    sqlite3.connect(tmp_path / "metrics.db").close()
    (tmp_path / "metrics.db").touch()
    assert read_curve(tmp_path) == []
    assert learning_curve.MOST_POINTS > 100
