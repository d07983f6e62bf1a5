"""Facts about a run survive their files."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from elastichost.metrics import SCHEMA, JournalEvent, PlanStatus, ProcessStatus, RunStatus


@given(data=st.dictionaries(st.text(), st.text() | st.integers(-(2**53), 2**53) | st.lists(st.text(), max_size=3)))
def test_events_survive_json(data: dict[str, str | int | list[str]]) -> None:
    event = JournalEvent("2026-01-01T00:00:00.000Z", 1.5, "decision", "stay: nothing to gain", "", {**data})
    line = msgspec.json.encode(event)
    assert b"\n" not in line
    assert msgspec.json.decode(line, type=JournalEvent) == event


def test_status_survives_json_and_carries_its_schema() -> None:
    process = ProcessStatus("worker", 0, 1, 77, "running", cores=(0,), samples_per_s=10.0)
    status = RunStatus(run_dir="/r", job="j", state="training", supervisor_pid=1, processes=(process,))
    decoded = msgspec.json.decode(msgspec.json.encode(status), type=RunStatus)
    assert decoded == status
    assert (decoded.schema, decoded.plan, decoded.eta_s, process.name) == (SCHEMA, PlanStatus(), None, "worker-0")
