"""A line of journal.jsonl: an event, its time and its cause. Pure values."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from elastichost.plan import ProcessId
from elastichost.runs.events import buckets, checkpoints, data, hosts, jobs, memory, plan, processes, run
from elastichost.runs.events.base import Event
from elastichost.runs.events.text import text_of

__all__ = ["EVENT_CLASSES", "AnyEvent", "JournalLine"]

# Every kind, in the order of the modules and of the classes in each module.
EVENT_CLASSES: tuple[type[Event], ...] = tuple(
    found
    for module in (run, processes, plan, data, checkpoints, buckets, memory, hosts, jobs)
    for found in vars(module).values()
    if isinstance(found, type) and issubclass(found, Event) and found.__module__ == module.__name__
)

if TYPE_CHECKING:
    AnyEvent: TypeAlias = Event
else:
    AnyEvent = reduce(or_, EVENT_CLASSES)  # msgspec decodes the tag of a line to one of these classes


class JournalLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of the journal.

    cause: id of the command, lost process, lost host, decision or checkpoint from which the event follows; lines that
    follow from the same one share the id. "": the event follows from none of these."""

    time_utc: str  # ISO 8601, to the millisecond
    monotonic_s: float  # clock of the machine that wrote the line
    event: AnyEvent
    cause: str = ""

    def __str__(self) -> str:
        """Time, subject and sentence, for people."""
        subject = f"{self.event.subject}: " if self.event.subject else ""
        return f"{self.time_utc[11:19]} {subject}{text_of(self.event)}"

    @property
    def kind(self) -> str:
        return self.event.kind

    def flat(self) -> dict[str, Any]:
        """The object that `events --json` prints, without the sentence.

        Keys: time_utc, monotonic_s, cause, kind, category, process (name of the subject, or "") and `data` (the other
        fields of the event, with the incarnation if the subject is a process)."""
        data: dict[str, Any] = msgspec.to_builtins(self.event)
        del data["kind"]
        process = getattr(self.event, "process", "")
        if isinstance(process, ProcessId):
            data = {"incarnation": process.incarnation, **data}
        for name in ("process", "job"):
            data.pop(name, None)
        return {
            "time_utc": self.time_utc,
            "monotonic_s": self.monotonic_s,
            "cause": self.cause,
            "kind": self.kind,
            "category": self.event.category,
            "process": self.event.subject,
            "data": data,
        }
