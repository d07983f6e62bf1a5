"""What the journal tells of memory: the budget, what was foreseen, what was done, and what that did. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from elastichost.metrics import JournalEvent, JournalValue
from elastichost.reporting.facts import MemoryStep
from elastichost.reporting.sessions import Axis, Chapter

__all__ = ["MOST_STEPS", "budget_bytes_of", "memory_steps_of"]

MOST_STEPS = 200  # of more the first and the last ones
ABOUT_MEMORY = "memory: "
WARNED, FULL, FREE, NOTED = "warn", "full", "free", "note"  # beside the kinds of decisions


def memory_steps_of(chapters: Sequence[Chapter], axis: Axis) -> tuple[MemoryStep, ...]:
    """In order; what an action did is told with it: with the first of those that were measured together."""
    found: list[MemoryStep] = []
    for number, chapter in enumerate(chapters):
        open_steps = dict[str, int]()  # kind -> the step whose effect is measured next
        for event in chapter.events:
            if event.kind == "memory" and "grown_bytes" in event.data:
                place = open_steps.pop(str(event.data.get("kind")), None)
                if place is not None:
                    effect = event.text.partition(" did: ")[2] or event.text
                    found[place] = msgspec.structs.replace(found[place], effect=effect)
                continue
            for step in _steps(event, axis.at_s(number, event.monotonic_s)):
                open_steps.setdefault(step.kind, len(found))
                found.append(step)
    half = MOST_STEPS // 2
    return tuple(found) if len(found) <= MOST_STEPS else (*found[:half], *found[-half:])


def budget_bytes_of(chapters: Sequence[Chapter]) -> int | None:
    """Of all hosts together, as it was told last; None: it was not."""
    budgets = dict[str, int]()
    for chapter in chapters:
        for event in chapter.events:
            budget = event.data.get("budget_bytes")
            if event.kind == "budget" and isinstance(budget, int):
                budgets[str(event.data.get("host", 0))] = budget
    return sum(budgets.values()) if budgets else None


def _steps(event: JournalEvent, at_s: float) -> Iterator[MemoryStep]:
    data, text = event.data, event.text.removeprefix(ABOUT_MEMORY)
    if event.kind == "budget":
        yield MemoryStep(at_s, "budget", text)
    elif event.kind == "memory":
        kind = data.get("kind", FREE if "left_out" in data else NOTED)
        yield MemoryStep(at_s, str(kind), text, _real(data.get("exceeds_in_s")), _real(data.get("chance")))
    elif event.kind == "warning" and event.text.startswith(ABOUT_MEMORY):
        kind = data.get("kind", FULL if "used_bytes" in data else NOTED)
        yield MemoryStep(at_s, str(kind), text, _real(data.get("exceeds_in_s")), _real(data.get("chance")))


def _real(value: JournalValue) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
