"""Every kind of event is written and read back, has a sentence, and is documented."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.plan import ProcessId
from elastichost.runs import events
from elastichost.runs.events import (
    EVENT_CLASSES,
    Event,
    JobStarted,
    JournalLine,
    LeaseGranted,
    ProcessLost,
    RunStarted,
    kind_of,
)
from elastichost.runs.events.schema import events_page, line_schema
from elastichost.runs.events.text import text_of
from tests.effort import examples

ROOT = Path(__file__).parents[2]

SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(-(2**53), 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False, width=32),
    str: st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=8),
    type(None): st.none(),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """A strategy for values of a field's type."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in SIMPLE:
        return SIMPLE[hint]
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, UnionType):
        return st.one_of(*map(values_of, inner))
    if origin is tuple:
        if inner[-1] is Ellipsis:
            return st.lists(values_of(inner[0]), max_size=3).map(tuple)
        return st.tuples(*map(values_of, inner))
    if origin is dict:
        return st.dictionaries(values_of(inner[0]), values_of(inner[1]), max_size=3)
    assert issubclass(hint, msgspec.Struct), hint
    hints = get_type_hints(hint)
    return st.builds(hint, **{name: values_of(hints[name]) for name in hint.__struct_fields__})


@pytest.mark.parametrize("kind", EVENT_CLASSES, ids=lambda kind: kind_of(kind.__name__))
@settings(max_examples=examples(10))
@given(data=st.data())
def test_an_event_is_read_back_as_it_was_and_has_a_sentence(kind: type[Event], data: st.DataObject) -> None:
    event: Any = data.draw(values_of(kind))
    line = JournalLine("2026-01-01T00:00:00.000Z", 1.5, event, "scale-1.2")
    encoded = msgspec.json.encode(line)
    assert msgspec.json.decode(encoded, type=JournalLine) == line
    assert text_of(event)
    flat = json.loads(msgspec.json.encode(line.flat()))
    assert (flat["kind"], flat["category"], flat["cause"]) == (event.kind, event.category, "scale-1.2")
    assert json.loads(encoded)["event"]["kind"] == event.kind


def test_the_package_exports_every_kind() -> None:
    assert {kind.__name__ for kind in EVENT_CLASSES} <= set(events.__all__)
    assert all(getattr(events, kind.__name__) is kind for kind in EVENT_CLASSES)


def test_kinds_are_class_names_in_snake_case_and_are_unique() -> None:
    kinds = [kind_of(kind.__name__) for kind in EVENT_CLASSES]
    assert kind_of("ProcessLost") == "process_lost"
    assert len(set(kinds)) == len(kinds)
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)+|warned", kind) for kind in kinds)


def test_every_kind_has_a_docstring() -> None:
    for kind in EVENT_CLASSES:
        assert kind.__doc__ is not None and not kind.__doc__.startswith(kind.__name__), kind


def test_a_resume_reads_no_kind_that_a_full_disk_drops() -> None:
    """All kinds that `journal_replay` matches have is_replayed = True."""
    source = (ROOT / "elastichost/runs/journal_replay.py").read_text()
    read = {kind for kind in EVENT_CLASSES if re.search(rf"case [^\n]*\b{kind.__name__}\(", source)}
    assert len(read) > 12
    assert all(kind.is_replayed for kind in read)


def test_the_flat_form_names_the_process_or_job_it_is_about() -> None:
    lost = ProcessLost(ProcessId("worker", 0, 3), pid=7, code=-9, state="running", reason="signal 9")
    flat = JournalLine("", 0.0, lost).flat()
    assert flat["process"] == "worker-0"
    assert flat["data"] == {
        "incarnation": 3,
        "pid": 7,
        "code": -9,
        "state": "running",
        "reason": "signal 9",
        "reported": "",
    }
    assert JournalLine("", 0.0, JobStarted("a", "fits", 1, 1, {"a": 1.0})).flat()["process"] == "a"
    assert JournalLine("", 0.0, RunStarted("1", "run")).flat()["process"] == ""


def test_the_schema_accepts_written_lines_and_refuses_an_unknown_kind() -> None:
    lease = LeaseGranted(ProcessId("worker", 0, 1), lease=1, epoch=0, unit=0, start=0, stop=4)
    written = json.loads(msgspec.json.encode(JournalLine("", 0.0, lease)))
    jsonschema.validate(written, line_schema())
    written["event"]["kind"] = "lease_forgotten"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(written, line_schema())


def test_the_page_of_events_is_the_generated_one() -> None:
    assert (ROOT / "docs/events.md").read_text() == events_page(), "run the command in its third line"


def test_a_line_is_printed_as_time_subject_and_sentence() -> None:
    line = JournalLine("2026-01-02T03:04:05.678Z", 0.0, JobStarted("a", "fits", 1, 1, {"a": 1.0}))
    assert str(line) == f"03:04:05 a: {text_of(line.event)}"
