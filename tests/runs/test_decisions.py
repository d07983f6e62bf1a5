"""The record of decisions: it is read back without lines that a crash cut short, and a full disk does not end a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.errors import PreflightError
from elastichost.plan import ProcessId
from elastichost.runs.decisions import HELD_BYTES, Recorder, read_records
from elastichost.tuner.health import HealthSettings, Remark, WorkerSpeed
from elastichost.tuner.records import BalanceLooked, HealthLooked, HealthOpened, Record
from tests.full_disk import file_limit

WORKER = ProcessId("worker", 3, 2)
LINES: tuple[Record, ...] = (
    HealthOpened(HealthSettings(after_s=15.0)),
    HealthLooked(1.25, (WorkerSpeed(WORKER, 100.0, None, has_work=True),), (Remark(WORKER, True, "slow"),)),
    BalanceLooked(0.1 + 0.2, ((0, 1, 7.0),), ((0, 0, 0), (0, 1, 1)), {0: 1.0, 1: 1.0}, 0.9, "moved", ((0, 1, 0),)),
)


def test_records_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    for line in LINES:  # a resumed run appends
        recorder = Recorder(path)
        recorder.write(line)
        recorder.close()
    assert tuple(read_records(path)) == LINES


def test_a_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    recorder = Recorder(path)
    for line in LINES:
        recorder.write(line)
    recorder.close()
    path.write_bytes(path.read_bytes()[:-5])
    assert tuple(read_records(path)) == LINES[:-1]


def test_the_error_names_the_line_that_is_not_a_record(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    path.write_text('{"type":"SomethingNew"}\n')
    with pytest.raises(PreflightError, match="line 1: not a record of this version"):
        list(read_records(path))


def test_a_run_without_a_record_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="recorded no decisions"):
        list(read_records(tmp_path / "decisions.jsonl"))


def test_a_full_disk_stops_only_the_recording(tmp_path: Path) -> None:
    heard: list[str] = []
    recorder = Recorder(Path("/dev/full"), heard.append)
    recorder.write(LINES[0])
    assert "No space left" in recorder.waits
    assert not recorder.problem, "recording continues when there is space"
    for _ in range(HELD_BYTES // 100):
        recorder.write(LINES[1])
    assert "No space left" in recorder.problem
    recorder.write(LINES[1])
    recorder.close()
    assert len(heard) == 1


def test_without_a_path_nothing_is_recorded() -> None:
    recorder = Recorder()
    recorder.write(LINES[0])
    recorder.close()
    assert not recorder.problem


def test_a_resumed_run_starts_a_new_line_after_a_line_that_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    for cut in (1, 5, 40):
        path.unlink(missing_ok=True)
        recorder = Recorder(path)
        recorder.write(LINES[0])
        recorder.write(LINES[1])
        recorder.close()
        path.write_bytes(path.read_bytes()[:-cut])
        recorder = Recorder(path)
        recorder.write(LINES[0])
        recorder.write(LINES[2])
        recorder.close()
        kept = LINES[:2] if cut == 1 else LINES[:1]  # with 1 only the end of the line is missing
        assert tuple(read_records(path)) == (*kept, LINES[0], LINES[2])


def test_records_that_wait_for_space_are_written_when_there_is_space(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    recorder = Recorder(path)
    recorder.write(LINES[0])
    with file_limit(path.stat().st_size + 10):  # a part of the next line still fits
        recorder.write(LINES[1])
        assert recorder.waits
        assert tuple(read_records(path)) == LINES[:1], "no incomplete line"
        assert path.read_bytes().endswith(b"\n")
    recorder.flush()
    recorder.write(LINES[2])
    recorder.close()
    assert not recorder.problem
    assert tuple(read_records(path)) == LINES[:3]
