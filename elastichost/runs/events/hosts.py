"""Events about other machines that join a run or are lost. Pure values."""

from __future__ import annotations

from typing import ClassVar

from elastichost.runs.events.base import Category, Durability, Event
from elastichost.runs.result import LostHost

__all__ = ["HostJoinAbandoned", "HostJoinAsked", "HostJoined", "HostLost", "HostsFileNotWritten", "RowsRolledBack"]


class HostJoinAsked(Event, frozen=True):
    """A command requests that these machines join the run."""

    hosts: tuple[str, ...]

    category: ClassVar[Category] = "decision"


class HostJoinAbandoned(Event, frozen=True):
    """The requested machines do not join the run."""

    reason: str

    category: ClassVar[Category] = "decision"


class HostJoined(Event, frozen=True):
    """The machine joined the run as host number `host`."""

    host: int
    name: str

    durability: ClassVar[Durability] = "at_once"


class HostLost(Event, frozen=True):
    """The machine is no longer used, and all its processes count as ended."""

    host: int
    name: str
    reason: str

    category: ClassVar[Category] = "fault"
    durability: ClassVar[Durability] = "at_once"


class RowsRolledBack(Event, frozen=True):
    """Rows of a lost machine were restored from a checkpoint, or have their initial values again."""

    loss: LostHost

    category: ClassVar[Category] = "fault"
    durability: ClassVar[Durability] = "at_once"


class HostsFileNotWritten(Event, frozen=True):
    """hosts.json could not be written: a resume would use the previous list of machines."""

    path: str
    error: str

    category: ClassVar[Category] = "warning"
