"""Events about memory: the budget, forecasts, actions and their effects, rows that find no memory. Pure values."""

from __future__ import annotations

from typing import ClassVar, Literal

from elastichost.runs.events.base import Category, Event
from elastichost.tuner.memory.facts import MemoryKind

__all__ = [
    "Inaction",
    "LookupsWithoutRow",
    "MemoryActed",
    "MemoryActionMeasured",
    "MemoryBudgetLent",
    "MemoryBudgetSet",
    "MemoryForecastFailed",
    "MemoryFreed",
    "MemoryFull",
    "MemoryMoveRefused",
    "MemoryWarned",
]

Inaction = Literal["watch", "sync", "none_helps"]


class MemoryBudgetSet(Event, frozen=True):
    """What one host may use, and what uses it. names_host: there are several. forecast_bytes: the median and the upper
    bound of what jobs like this one needed to their end."""

    host: int
    budget_bytes: int
    rows_bytes: int
    private_bytes: int
    copies_bytes: int
    left_bytes: int
    names_host: bool = False
    files_free_bytes: int | None = None  # where the file system of the arena is the tighter bound
    forecast_bytes: tuple[float, float] | None = None


class MemoryBudgetLent(Event, frozen=True):
    """The host that runs many jobs lends this one so much from now on."""

    budget_bytes: int


class MemoryActed(Event, frozen=True):
    """The budget would be exceeded, and the supervisor does something about it. chance: of exceeding it within
    window_s; exceeds_in_s: when it is expected, None: not before the end."""

    action: MemoryKind
    host: int
    reason: str
    chance: float
    window_s: float
    exceeds_in_s: float | None
    horizon: int = 0  # samples since an id was seen, beyond which its row is evicted
    admit_after: int = 1  # sightings before an id gets a row
    workers: int = 1
    target: int = 0  # host
    share: float = 0.0  # of the host's rows

    category: ClassVar[Category] = "decision"


class MemoryWarned(Event, frozen=True):
    """The budget would be exceeded, and nothing is done about it, because of `inaction`: tuner.memory only
    watches; sync mode may drop no rows and leave no ids out; or no action helps."""

    host: int
    reason: str
    chance: float
    window_s: float
    exceeds_in_s: float | None
    inaction: Inaction = "none_helps"

    category: ClassVar[Category] = "warning"


class MemoryActionMeasured(Event, frozen=True):
    """What an action did, some time later. grown_bytes since then, where expected_bytes were foreseen without it."""

    action: MemoryKind
    grown_bytes: float
    expected_bytes: float
    samples: int
    dropped_rows: int
    rounds: int  # of eviction
    left_out: int  # lookups that found no row
    horizon: int


class MemoryMoveRefused(Event, frozen=True):
    """Buckets were to go to another host to save memory, and cannot. too_few: the host has too few of them; else
    something is changing hands already."""

    host: int
    too_few: bool

    category: ClassVar[Category] = "decision"


class MemoryFull(Event, frozen=True):
    """No memory is left on a host: new ids get no row until some is free. is_files: the file system of the arena is
    full, not the budget; repair: what a person can do about that."""

    host: int
    budget_bytes: int
    used_bytes: int
    private_bytes: int
    files_free_bytes: int
    is_files: bool
    repair: str = ""

    category: ClassVar[Category] = "warning"


class MemoryFreed(Event, frozen=True):
    """New ids get rows again. left_out: lookups that found none meanwhile."""

    left_out: int


class MemoryForecastFailed(Event, frozen=True):
    """Memory is not foreseen any more after a fault of the forecast; the budget holds all the same."""

    error_type: str
    message: str

    category: ClassVar[Category] = "warning"


class LookupsWithoutRow(Event, frozen=True):
    """At the end of a run that is not counted as done: too many lookups of training found no row for want of memory."""

    total: int
    without_row: int
    message: str

    category: ClassVar[Category] = "warning"
