"""The PS' record of committed batches."""

from __future__ import annotations

from pathlib import Path

from elastichost.ps.applied_log import AppliedLog, read_applied
from elastichost.wire.applied import left_out_words, micros_left_out, read_applied_record


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
    assert not read_applied_record(tmp_path, 3)["sequence"], "it was never written"


def test_what_was_never_committed_is_cut_off(tmp_path: Path) -> None:
    log = AppliedLog(tmp_path)
    for number in range(5):
        log.write(number, record(number))
    log.take_over(3)
    log.take_over(9)  # nothing is made up
    log.write(3, record(77))
    log.close()
    assert read_applied(tmp_path)["sequence"].tolist() == [0, 1, 2, 77]


def test_a_run_without_commits_has_no_records(tmp_path: Path) -> None:
    assert len(read_applied(tmp_path)) == 0
