"""The journal of a run: real files, full disks, lines that a crash cut short, many leases."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.plan import ProcessId
from elastichost.runs import journal as journal_module
from elastichost.runs.events import (
    AnyEvent,
    ArenaOpened,
    BatchTorn,
    EpochStarted,
    JournalLine,
    LeaseGranted,
    LeasesSettled,
    RunEnded,
    RunStarted,
)
from elastichost.runs.facts import Lineage
from elastichost.runs.journal import LEASES_BYTES, LEASES_FILE, Journal, read_journal
from elastichost.runs.journal_replay import replay
from tests.full_disk import file_limit

WORKER = ProcessId("worker", 0, 1)


def begun(epoch: int) -> EpochStarted:
    """An event of a kind that a resume does not read."""
    return EpochStarted(epoch, "a test")


def lease(number: int, worker: int = 0, incarnation: int = 1, epoch: int = 0) -> LeaseGranted:
    return LeaseGranted(ProcessId("worker", worker, incarnation), lease=number, epoch=epoch, unit=3, start=0, stop=9)


def events_of(path: Path) -> list[AnyEvent]:
    return [line.event for line in read_journal(path)]


def test_the_journal_is_read_back_and_its_listener_is_called(tmp_path: Path) -> None:
    heard: list[JournalLine] = []
    journal = Journal(tmp_path / "journal.jsonl", heard.append)
    journal.write(lease(1))
    assert (tmp_path / "journal.jsonl").stat().st_size == 0, "leases are in a separate file"
    journal.sync(1e9)
    journal.write(RunEnded("done"), "stop-1.2")
    journal.close()
    assert list(read_journal(tmp_path / "journal.jsonl")) == heard
    assert [line.event for line in heard] == [lease(1), RunEnded("done")]
    assert [line.cause for line in heard] == ["", "stop-1.2"]


def test_an_event_that_must_be_on_the_disk_is_there_when_write_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr("elastichost.runs.journal.os.fdatasync", synced.append)
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write(begun(1))
    assert synced == []
    journal.write(RunStarted("1", "run"))
    assert len(synced) == 1
    journal.write(lease(1))
    assert len(synced) == 1, "a lease is synced at the next sync"
    journal.sync(1e12)
    assert len(synced) == 2
    journal.close()


def test_a_line_cut_short_by_a_crash_is_left_out_and_the_next_run_appends(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.write(begun(0))
    journal.close()
    with path.open("ab") as file:
        file.write(b'{"time_utc": "20')
    assert events_of(path) == [begun(0)]
    again = Journal(path)
    again.write(begun(1))
    again.close()
    assert events_of(path) == [begun(0), begun(1)]


def test_lines_wait_for_space_in_order_and_none_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    heard: list[JournalLine] = []
    journal = Journal(path, heard.append)
    journal.write(begun(0))
    written: list[AnyEvent] = [begun(0), begun(1), lease(1), RunEnded("done")]
    with file_limit(path.stat().st_size + 20):  # a part of the next line still fits
        for event in written[1:]:
            journal.write(event)
        assert "too large" in journal.problem
        assert events_of(path) == [begun(0)], "no incomplete line"
        assert path.read_bytes().endswith(b"\n")
        assert [line.event for line in heard] == written, "the listener gets waiting lines, too"
    journal.sync(1e12)
    assert not journal.problem
    journal.write(begun(4))
    journal.close()
    assert events_of(path) == [*written, begun(4)]


def test_lines_that_wait_for_space_are_bounded_except_those_that_a_resume_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "HELD_BYTES", 2000)
    journal = Journal(tmp_path / "journal.jsonl")
    with file_limit(0):
        for number in range(50):
            journal.write(begun(number))
        journal.write(BatchTorn(WORKER))
        assert journal.dropped > 0
        assert journal._held_bytes < 3000
    journal.close()
    events = events_of(tmp_path / "journal.jsonl")
    assert len(events) == 51 - journal.dropped
    assert events[-1] == BatchTorn(WORKER)


def test_many_leases_stay_a_small_file_and_replay_to_the_same_state(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    (tmp_path / "whole").mkdir()
    journal, all_of_it = Journal(path), Journal(tmp_path / "whole" / "journal.jsonl", keeps_leases=True)
    largest = 0
    for number in range(1, 16_001):
        for one in (journal, all_of_it):
            if number in (5000, 12_000):  # rows come from a checkpoint, and the epoch is that of the checkpoint
                one.write(ArenaOpened("/arena", ("/arena",), 0, "checkpoint", Lineage(epoch=1)))
            one.write(lease(number, worker=number % 3, incarnation=1 + number // 4000, epoch=min(number // 2000, 1)))
        largest = max(largest, (tmp_path / LEASES_FILE).stat().st_size)
    journal.close()
    all_of_it.close()
    assert largest < LEASES_BYTES + 1000
    assert (tmp_path / "whole" / LEASES_FILE).stat().st_size > 3 * LEASES_BYTES
    found, wanted = (replay(read_journal(one)) for one in (path, tmp_path / "whole" / "journal.jsonl"))
    assert found == wanted
    assert found.next_lease_id == 16_001
    assert found.incarnations == {"worker-0": 4, "worker-1": 5, "worker-2": 4}
    kinds = [line.kind for line in read_journal(path)]
    assert kinds.count("leases_folded") == 1


def test_leases_are_read_at_the_place_in_the_journal_where_they_were_granted(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    wanted: list[AnyEvent] = []
    for number in range(2):  # two supervisors
        journal = Journal(path)
        events: list[AnyEvent] = [
            RunStarted(str(number), "run"),
            lease(2 * number + 1),
            LeasesSettled(WORKER, number, 0, 0),
            lease(2 * number + 2),
        ]
        for event in events:
            journal.write(event)
        wanted += events
        journal.close()
    assert events_of(path) == wanted
