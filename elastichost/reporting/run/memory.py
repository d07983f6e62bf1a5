"""Reads memory events from the journal: budgets, forecasts, actions and their measured effects. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from elastichost.reporting.run.facts import MemoryStep
from elastichost.reporting.run.sessions import Axis, Chapter
from elastichost.reporting.run.story import first_and_last
from elastichost.runs.events import (
    AnyEvent,
    LookupsWithoutRow,
    MemoryActed,
    MemoryActionMeasured,
    MemoryBudgetLent,
    MemoryBudgetSet,
    MemoryForecastFailed,
    MemoryFreed,
    MemoryFull,
    MemoryMoveRefused,
    MemoryWarned,
)
from elastichost.runs.events.text import text_of

__all__ = ["MOST_STEPS", "budget_bytes_of", "memory_steps_of"]

MOST_STEPS = 200  # if there are more, the first and last ones are kept


def memory_steps_of(chapters: Sequence[Chapter], axis: Axis) -> tuple[MemoryStep, ...]:
    """The memory steps in order. The measured effect of an action is added to its step. If several actions were
    measured together, it is added to the first of them."""
    found: list[MemoryStep] = []
    for number, chapter in enumerate(chapters):
        open_steps = dict[str, int]()  # kind -> the step of the next measured effect
        for line in chapter.lines:
            if isinstance(line.event, MemoryActionMeasured):
                place = open_steps.pop(line.event.action, None)
                if place is not None:
                    found[place] = msgspec.structs.replace(found[place], effect=text_of(line.event))
                continue
            for step in _steps(line.event, axis.at_s(number, line.monotonic_s)):
                open_steps.setdefault(step.kind, len(found))
                found.append(step)
    return first_and_last(found, MOST_STEPS)


def budget_bytes_of(chapters: Sequence[Chapter]) -> int | None:
    """The last recorded budget of all hosts together, in bytes; None if none was recorded."""
    budgets = dict[int, int]()
    for chapter in chapters:
        for line in chapter.lines:
            match line.event:
                case MemoryBudgetSet(host=host, budget_bytes=budget):
                    budgets[host] = budget
                case MemoryBudgetLent(budget_bytes=budget):
                    budgets[0] = budget
    return sum(budgets.values()) if budgets else None


def _steps(event: AnyEvent, at_s: float) -> Iterator[MemoryStep]:
    match event:
        case MemoryBudgetSet() | MemoryBudgetLent():
            yield MemoryStep(at_s, "budget", text_of(event))
        case MemoryActed():
            yield MemoryStep(at_s, event.action, text_of(event), event.exceeds_in_s, event.chance)
        case MemoryWarned():
            yield MemoryStep(at_s, "warn", text_of(event), event.exceeds_in_s, event.chance)
        case MemoryFull():
            yield MemoryStep(at_s, "full", text_of(event))
        case MemoryFreed():
            yield MemoryStep(at_s, "free", text_of(event))
        case MemoryMoveRefused() | MemoryForecastFailed() | LookupsWithoutRow():
            yield MemoryStep(at_s, "note", text_of(event))
