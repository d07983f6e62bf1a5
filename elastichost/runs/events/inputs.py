"""Events about the input of a run: its knobs, and troubles of the source. Pure values."""

from __future__ import annotations

from typing import ClassVar

from elastichost.runs.events.base import Category, Event, ProcessEvent
from elastichost.tuner.input.facts import InputDecision
from elastichost.wire.control_work import SourceTrouble

__all__ = ["InputTuned", "SourceRecovered", "SourceTroubled"]


class InputTuned(Event, frozen=True):
    """The tuner decided about the input: the workers read with other knobs, or the present ones stay. only_watches: the
    decision is not carried out."""

    decision: InputDecision
    only_watches: bool = False

    category: ClassVar[Category] = "decision"


class SourceTroubled(ProcessEvent, frozen=True):
    """The source of a worker's training data gives no bytes, and the worker waits for it. source: the address. error:
    what the last request ended with. waited_s: seconds without a byte so far. requests: that failed since then."""

    trouble: SourceTrouble
    source: str
    error: str
    waited_s: float
    requests: int

    category: ClassVar[Category] = "fault"


class SourceRecovered(ProcessEvent, frozen=True):
    """Bytes arrive again. waited_s: seconds for which a worker had none. requests: that failed meanwhile."""

    source: str
    waited_s: float
    requests: int
