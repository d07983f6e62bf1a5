"""Events and status of a run are the same after writing and reading."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from elastichost.metrics import SCHEMA, PlanStatus, ProcessStatus, RunStatus
from elastichost.runs.events import AnyEvent, JournalLine, LeasesFolded, ProcessesKilled, Warned

COUNTS = st.integers(-(2**53), 2**53)
# Texts of any characters: alone, in tuples, and as keys. tests/runs/test_events.py has every kind of event.
EVENTS: st.SearchStrategy[AnyEvent] = st.one_of(
    st.builds(Warned, st.text()),
    st.builds(ProcessesKilled, st.lists(st.text(), max_size=3).map(tuple)),
    st.builds(LeasesFolded, COUNTS, COUNTS, COUNTS, st.dictionaries(st.text(), COUNTS)),
)


@given(event=EVENTS, cause=st.text())
def test_lines_of_the_journal_survive_json(event: AnyEvent, cause: str) -> None:
    line = JournalLine("2026-01-01T00:00:00.000Z", 1.5, event, cause)
    encoded = msgspec.json.encode(line)
    assert b"\n" not in encoded
    assert msgspec.json.decode(encoded, type=JournalLine) == line


def test_status_survives_json_and_has_its_schema() -> None:
    process = ProcessStatus("worker", 0, 1, 77, "running", cores=(0,), samples_per_s=10.0)
    status = RunStatus(run_dir="/r", job="j", state="training", supervisor_pid=1, processes=(process,))
    decoded = msgspec.json.decode(msgspec.json.encode(status), type=RunStatus)
    assert decoded == status
    assert (decoded.schema, decoded.plan, decoded.eta_s, process.name) == (SCHEMA, PlanStatus(), None, "worker-0")
