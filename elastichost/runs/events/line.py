"""A line of journal.jsonl: an event, when it was, and what caused it. Pure values."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from elastichost.plan import ProcessId
from elastichost.runs.events import buckets, checkpoints, data, hosts, jobs, memory, plan, processes, run
from elastichost.runs.events.base import Event

__all__ = ["EVENT_CLASSES", "AnyEvent", "JournalLine"]

# Every kind, in the order of the modules and of the classes in them.
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
    """cause: the command, the loss of a process or of a host, the decision or the checkpoint from which the event
    follows: all lines with the same cause tell one story. "": nothing but the passing of time."""

    time_utc: str  # ISO 8601, to the millisecond
    monotonic_s: float  # of the machine that wrote it
    event: AnyEvent
    cause: str = ""

    @property
    def kind(self) -> str:
        return self.event.kind

    def flat(self) -> dict[str, Any]:
        """As `events --json` prints it, without its sentence: time_utc, monotonic_s, cause, kind, category, process
        (the subject's name, ""), and the event's other fields in `data`; of a process the incarnation is among
        these."""
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
