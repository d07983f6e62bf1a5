"""The dense owner's log of committed batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elastichost.chaos.tails import AppliedTail
from elastichost.errors import DiskFullError, ProtocolError
from elastichost.ps import applied_log
from elastichost.ps.applied_log import AppliedLog, read_applied
from elastichost.wire.applied import (
    AUDIT_VARIABLE,
    left_out_words,
    micros_left_out,
    read_applied_content,
    read_applied_record,
)
from elastichost.wire.applied_fold import fold_records, joined_ranges
from tests.full_disk import file_limit


def record(sequence: int) -> tuple[int | float | tuple[int, int], ...]:
    return (0, 1, sequence, 7, 0, 2, sequence * 10, sequence * 10 + 10, 9, 1, 0.25 * sequence, left_out_words((3, 70)))


def test_records_come_back_in_order_and_a_repeated_commit_overwrites(tmp_path: Path) -> None:
    log = AppliedLog(tmp_path)
    for number in (0, 1, 1, 2):
        log.write(number, record(number))
    log.close()
    found = read_applied(tmp_path)
    assert found["sequence"].tolist() == [0, 1, 2]
    assert found["stop"].tolist() == [10, 20, 30]
    assert read_applied_record(tmp_path, 1) == found[1]
    assert micros_left_out(found[1]) == (3, 70)
    assert not read_applied_record(tmp_path, 3)["sequence"], "this record was never written"


def test_records_that_were_never_committed_are_cut_off(tmp_path: Path) -> None:
    log = AppliedLog(tmp_path)
    for number in range(5):
        log.write(number, record(number))
    log.take_over(3)
    log.take_over(9)  # versions without a record get none
    log.write(3, record(77))
    log.close()
    assert read_applied(tmp_path)["sequence"].tolist() == [0, 1, 2, 77]


def test_a_run_without_commits_has_no_records(tmp_path: Path) -> None:
    assert len(read_applied(tmp_path)) == 0


def test_a_full_disk_gets_no_partial_record_and_the_record_can_be_written_later(tmp_path: Path) -> None:
    log = AppliedLog(tmp_path)
    log.write(1, record(1))
    path = tmp_path / "applied.bin"
    size = path.stat().st_size
    with file_limit(size + 30), pytest.raises(DiskFullError, match=r"applied\.bin"):
        log.write(2, record(2))
    assert log.problem
    assert path.stat().st_size == size
    with file_limit(size + 30):
        log.look_for_space(2)
        assert log.problem
    log.look_for_space(2)
    assert not log.problem
    assert path.stat().st_size == size
    log.write(2, record(2))
    log.close()
    assert read_applied(tmp_path)["sequence"].tolist() == [0, 1, 2]


def test_a_partial_record_is_cut_off_by_the_next_owner(tmp_path: Path) -> None:
    log = AppliedLog(tmp_path)
    for number in range(1, 4):
        log.write(number, record(number))
    log.close()
    path = tmp_path / "applied.bin"
    path.write_bytes(path.read_bytes()[:-7])
    assert len(read_applied(tmp_path)) == 3
    successor = AppliedLog(tmp_path)
    successor.take_over(3)
    successor.write(3, record(99))
    successor.close()
    assert read_applied(tmp_path)["sequence"].tolist() == [0, 1, 2, 99]


def batch(number: int) -> tuple[int | float | tuple[int, int], ...]:
    """The record of a batch. Three workers, each in its own unit, with epochs of 10,000 batches; worker 1 is
    replaced in between."""
    worker, step = number % 3, number % 10_000
    incarnation = 2 if worker == 1 and number > 30_000 else 1
    return (
        worker,
        incarnation,
        number,
        number // 10,
        number // 10_000,
        worker,
        step * 10,
        step * 10 + 10,
        10,
        0,
        0.0,
        (0, 0),
    )


def test_the_log_of_a_week_of_batches_stays_small_and_keeps_its_totals(tmp_path: Path) -> None:
    folded, kept = tmp_path / "folded", tmp_path / "kept"
    folded.mkdir()
    kept.mkdir()
    limit = 1 << 18
    logs = AppliedLog(folded, limit), AppliedLog(kept, 0)
    largest, last = 0, 60_000
    tail = AppliedTail(folded)
    for number in range(1, last):
        for log in logs:
            log.write(number, batch(number))
        if number % 500 == 0:
            tail.poll(1.0)
            largest = max(largest, (folded / "applied.bin").stat().st_size)
        if number == 40_000:  # another PS takes over
            logs[0].close()
            logs = AppliedLog(folded, limit), logs[1]
            logs[0].take_over(number + 1)
    for log in logs:
        log.close()
    # each worker trains every third batch of its unit, so each batch is a range of its own until the ranges meet
    assert largest < limit + 3 * 10_000 * 32
    assert (kept / "applied.bin").stat().st_size > 10 * limit
    found, wanted = read_applied_content(folded), read_applied_content(kept)
    assert found.fold is not None
    assert found.end == wanted.end == last
    assert (found.records == wanted.records[found.first - 1 :]).all()
    assert found.fold == fold_records(None, found.first, wanted.records[: found.first - 1])
    tail.poll(2.0)
    assert tail.samples == 10 * (last - 1)
    assert read_applied_record(folded, last - 1)["sequence"] == last - 1
    assert not read_applied_record(folded, 5)["sequence"], "the record is folded"
    with pytest.raises(ProtocolError, match="folded"):
        read_applied(folded)


def test_a_run_that_goes_back_to_its_beginning_begins_a_log_without_folded_records(tmp_path: Path) -> None:
    log = AppliedLog(tmp_path, 1 << 12)
    for number in range(1, 500):
        log.write(number, batch(number))
    assert read_applied_content(tmp_path).first > 1
    log.close()
    successor = AppliedLog(tmp_path, 1 << 12)
    successor.take_over(1)
    successor.look_for_space(1)
    assert not successor.problem
    successor.write(1, batch(7))
    assert read_applied(tmp_path)["sequence"].tolist() == [0, 7]
    for number in range(2, 500):
        successor.write(number, batch(number))
    successor.close()
    assert read_applied_content(tmp_path).first > 1, "the new records are folded, too"


def test_a_fold_does_not_join_ranges_that_were_committed_twice() -> None:
    ranges = np.array([(0, 1, 10, 20), (0, 1, 0, 10), (0, 1, 15, 25), (0, 2, 25, 30), (1, 1, 25, 30)], np.int64)
    joined = joined_ranges(ranges).tolist()
    assert joined == [[0, 1, 0, 20], [0, 1, 15, 25], [0, 2, 25, 30], [1, 1, 25, 30]]


def test_records_are_not_folded_when_a_run_is_audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applied_log, "FOLD_BYTES", 1 << 12)
    monkeypatch.setenv(AUDIT_VARIABLE, "1")
    log = AppliedLog(tmp_path)
    for number in range(1, 500):
        log.write(number, batch(number))
    log.close()
    assert len(read_applied(tmp_path)) == 500
