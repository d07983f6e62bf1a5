"""Events about other machines: they join, they are lost. Pure values."""

from __future__ import annotations

from typing import ClassVar

from elastichost.runs.events.base import Category, Durability, Event
from elastichost.runs.result import LostHost

__all__ = ["HostJoinAbandoned", "HostJoinAsked", "HostJoined", "HostLost", "HostsFileNotWritten", "RowsRolledBack"]


class HostJoinAsked(Event, frozen=True):
    """A command asks these machines to join."""

    hosts: tuple[str, ...]

    category: ClassVar[Category] = "decision"


class HostJoinAbandoned(Event, frozen=True):
    """The machines that were asked do not join."""

    reason: str

    category: ClassVar[Category] = "decision"


class HostJoined(Event, frozen=True):
    """The machine is host number `host` of this run from now on."""

    host: int
    name: str

    durability: ClassVar[Durability] = "at_once"


class HostLost(Event, frozen=True):
    """The machine is not used any more, and all processes there count as ended."""

    host: int
    name: str
    reason: str

    category: ClassVar[Category] = "fault"
    durability: ClassVar[Durability] = "at_once"


class RowsRolledBack(Event, frozen=True):
    """Rows of a lost machine come from a checkpoint, or are initial ones again."""

    loss: LostHost

    category: ClassVar[Category] = "fault"
    durability: ClassVar[Durability] = "at_once"


class HostsFileNotWritten(Event, frozen=True):
    """hosts.json could not be written: a resume would take the machines there were before."""

    path: str
    error: str

    category: ClassVar[Category] = "warning"
