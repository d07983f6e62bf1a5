"""The journal and the log of applied batches, read while the run writes them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from elastichost.chaos.tails import AppliedTail, JournalTail
from elastichost.runs.events import JournalLine, Warned
from elastichost.wire.applied import APPLIED_RECORD


def line(message: str) -> bytes:
    return msgspec.json.encode(JournalLine("", 0.0, Warned(message))) + b"\n"


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def records(*rows: tuple[int, int, int]) -> bytes:
    """(worker, incarnation, samples)"""
    found = np.zeros(len(rows), dtype=APPLIED_RECORD)
    for number, (worker, incarnation, samples) in enumerate(rows):
        found[number]["worker"], found[number]["incarnation"], found[number]["samples"] = worker, incarnation, samples
    return found.tobytes()


def test_each_line_is_returned_once_and_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    tail = JournalTail(path)
    assert tail.poll() == []
    append(path, line("one") + line("two")[:10])
    assert [one.event for one in tail.poll()] == [Warned("one")]
    append(path, line("two")[10:])
    assert [one.event for one in tail.poll()] == [Warned("two")]
    assert tail.poll() == []


def test_batches_are_counted_and_each_incarnation_s_first_one_is_timed(tmp_path: Path) -> None:
    path = tmp_path / "applied.bin"
    tail = AppliedTail(tmp_path)
    tail.poll(1.0)
    append(path, records((0, 0, 0), (0, 1, 10), (1, 1, 20)))
    tail.poll(2.0)
    append(path, records((0, 1, 10), (1, 2, 20))[:-5])
    tail.poll(3.0)
    assert tail.samples == 40
    assert tail.first_s == {(0, 1): 2.0, (1, 1): 2.0}
    assert tail.last_s[0, 1] == 3.0


def test_batches_that_a_resumed_run_has_lost_are_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "applied.bin"
    tail = AppliedTail(tmp_path)
    append(path, records((0, 0, 0), (0, 1, 10), (0, 1, 10), (0, 1, 10)))
    tail.poll(1.0)
    path.write_bytes(records((0, 0, 0), (0, 1, 10)))
    tail.poll(2.0)
    assert tail.samples == 10
    assert tail.first_s == {}
    append(path, records((0, 1, 5)))
    tail.poll(3.0)
    assert tail.samples == 15
    assert tail.first_s == {(0, 1): 3.0}
