"""The JSON Schema of a line of journal.jsonl, and docs/events.md, generated from the docstrings of the event classes.

python -m elastichost.runs.events.schema > docs/events.md
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any, get_args

import msgspec

from elastichost.runs.events.base import Category, Event, kind_of
from elastichost.runs.events.line import EVENT_CLASSES, JournalLine

__all__ = ["events_page", "line_schema"]

INTRODUCTION = """# Events

<!-- generated: python -m elastichost.runs.events.schema > docs/events.md -->

`journal.jsonl` in the directory of a run (or of a host that runs many jobs) has one line for each event. A line is a
JSON object: `time_utc`, `monotonic_s` (the clock of the machine that wrote it), `cause`, and `event`, an object whose
`kind` names one of the kinds below. No sentence is stored: `elastichost events` renders one from the fields.

All lines with the same `cause` follow from one command, failure or decision: `elastichost events --cause scale-1.2`
shows them. `elastichost events --kind` takes a kind or a category. Leases are in `leases.jsonl` beside the journal;
`elastichost events --leases` includes them. `elastichost events --schema` prints the JSON Schema of a line.

In the code, the types are in `elastichost/runs/events/`, one module for a subject, and the sentences in
`elastichost/runs/events/text.py`.
"""


def line_schema() -> dict[str, Any]:
    """JSON Schema of a line of journal.jsonl."""
    return msgspec.json.schema(JournalLine)


def events_page() -> str:
    """The text of docs/events.md."""
    return INTRODUCTION + "".join(_section(category) for category in get_args(Category))


def _section(category: Category) -> str:
    classes = [one for one in EVENT_CLASSES if one.category == category]
    return f"\n## Category: {category}\n" + "".join("\n".join(_entry(one)) for one in classes)


def _entry(kind: type[Event]) -> Iterator[str]:
    yield f"\n### `{kind_of(kind.__name__)}`"
    yield ""
    yield " ".join((inspect.getdoc(kind) or "").split())
    fields = msgspec.structs.fields(kind)
    if fields:
        yield ""
        yield "Fields: " + ", ".join(f"`{field.encode_name}`" for field in fields) + "."
    yield ""


def main() -> None:
    """Prints docs/events.md."""
    sys.stdout.write(events_page())


if __name__ == "__main__":
    main()
