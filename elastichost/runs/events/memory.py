"""Events about memory: budget, forecasts, actions and their effects, ids without a row. Pure values."""

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
    """The memory budget of one host and its present use. names_host: the run has several hosts. forecast_bytes: median
    and upper bound of the memory that similar jobs needed up to their end."""

    host: int
    budget_bytes: int
    rows_bytes: int
    private_bytes: int
    copies_bytes: int
    left_bytes: int
    names_host: bool = False
    files_free_bytes: int | None = None  # set if the file system of the arena is the tighter bound
    forecast_bytes: tuple[float, float] | None = None


class MemoryBudgetLent(Event, frozen=True):
    """The dispatcher lends this job a new memory budget."""

    budget_bytes: int


class MemoryActed(Event, frozen=True):
    """The budget would be exceeded, and the supervisor acts. chance: probability of exceeding it within window_s
    seconds; exceeds_in_s: expected time until it is exceeded, None: not before the end of the run."""

    action: MemoryKind
    host: int
    reason: str
    chance: float
    window_s: float
    exceeds_in_s: float | None
    horizon: int = 0  # evict: a row is evicted when its id was not seen for this number of samples
    admit_after: int = 1  # admit: an id gets a row after this number of sightings
    workers: int = 1  # shrink: new number of workers
    target: int = 0  # move: host that receives buckets
    share: float = 0.0  # move: share of the host's rows that move

    category: ClassVar[Category] = "decision"


class MemoryWarned(Event, frozen=True):
    """The budget would be exceeded, and the supervisor does not act. inaction: "watch": tuner.memory = "watch"; "sync":
    sync mode must neither evict rows nor leave ids out; "none_helps": no action helps."""

    host: int
    reason: str
    chance: float
    window_s: float
    exceeds_in_s: float | None
    inaction: Inaction = "none_helps"

    category: ClassVar[Category] = "warning"


class MemoryActionMeasured(Event, frozen=True):
    """The effect of an action, measured some time later. grown_bytes: growth of memory since the action;
    expected_bytes: forecast of this growth without the action."""

    action: MemoryKind
    grown_bytes: float
    expected_bytes: float
    samples: int
    dropped_rows: int
    rounds: int  # eviction rounds
    left_out: int  # lookups that found no row
    horizon: int


class MemoryMoveRefused(Event, frozen=True):
    """Buckets should move to another host to save memory, but cannot. too_few: the host has too few buckets; else a
    hand-over or a move is already under way."""

    host: int
    too_few: bool

    category: ClassVar[Category] = "decision"


class MemoryFull(Event, frozen=True):
    """No memory is left on a host: new ids get no row until memory is free. is_files: the file system of the arena is
    full, not the budget; repair: what a person can do about a full file system."""

    host: int
    budget_bytes: int
    used_bytes: int
    private_bytes: int
    files_free_bytes: int
    is_files: bool
    repair: str = ""

    category: ClassVar[Category] = "warning"


class MemoryFreed(Event, frozen=True):
    """New ids get rows again. left_out: number of lookups that found no row in the meantime."""

    left_out: int


class MemoryForecastFailed(Event, frozen=True):
    """The memory forecast stopped after an internal error; the budget is still enforced."""

    error_type: str
    message: str

    category: ClassVar[Category] = "warning"


class LookupsWithoutRow(Event, frozen=True):
    """The run ends with status "incomplete": too many lookups of training found no row because memory was full."""

    total: int
    without_row: int
    message: str

    category: ClassVar[Category] = "warning"
