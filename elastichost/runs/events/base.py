"""The base classes of events: every event has a kind, a category, a durability and a subject. Pure.

An event is a frozen struct. Its kind is the name of its class in snake case (`ProcessLost` -> "process_lost"). msgspec
writes the kind as the tag of the struct, so a line of the journal decodes to the class that was written. No sentence is
stored: `events.text.text_of` renders one from the fields.
"""

from __future__ import annotations

import re
from typing import ClassVar, Literal

import msgspec

from elastichost.plan import ProcessId

__all__ = ["Category", "Durability", "Event", "JobEvent", "ProcessEvent", "kind_of"]

# decision: the supervisor, the tuner or the dispatcher chose something. fault: something failed or was lost. warning:
# something that a person may want to change. lease: samples were leased to a worker. progress: everything else.
Category = Literal["progress", "decision", "fault", "warning", "lease"]
# later: the operating system chooses when to write it to the disk. soon: on the disk within half a second. at_once: on
# the disk before the supervisor continues.
Durability = Literal["later", "soon", "at_once"]


def kind_of(class_name: str) -> str:
    """The kind of an event class: ProcessLost -> process_lost."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", class_name).lower()


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag=kind_of):
    """Something that happened or was decided in a run or on a host.

    is_replayed: a resume reads events of this kind, so the journal never drops them while the disk is full."""

    category: ClassVar[Category] = "progress"
    durability: ClassVar[Durability] = "later"
    is_replayed: ClassVar[bool] = False

    @property
    def kind(self) -> str:
        """The tag of the struct."""
        return kind_of(type(self).__name__)

    @property
    def subject(self) -> str:
        """Name of the process or job that the event is about; "" for the run or the host as a whole."""
        return ""


class ProcessEvent(Event, frozen=True):
    """An event about one incarnation of a process."""

    process: ProcessId

    @property
    def subject(self) -> str:
        return self.process.name


class JobEvent(Event, frozen=True):
    """An event about one job of a dispatcher."""

    job: str

    @property
    def subject(self) -> str:
        return self.job
