"""What the journal of a run tells: plans, checkpoints, evaluations, decisions, faults. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec

from elastichost.metrics import JournalEvent, JournalValue
from elastichost.reporting.facts import Evaluation, Fault, Note, PlanChange, Span, Story
from elastichost.reporting.sessions import Axis, Chapter

__all__ = ["MOST_LISTED", "story_of", "tuner_decisions_of"]

MOST_LISTED = 600  # decisions or faults; of more the first and the last ones
ENDS_OF_CHECKPOINTS = frozenset({"checkpoint", "checkpoint_failed", "checkpoint_abandoned"})
TUNER, PLAN = "tuner: ", "plan: "
# What went wrong, and what was told of it; each counted by its kind.
FAULT_KINDS = frozenset(
    {
        "checkpoint_abandoned",
        "checkpoint_failed",
        "failed",
        "failure",
        "fork_server_lost",
        "hang",
        "host_lost",
        "killed",
        "left_behind",
        "move_aborted",
        "process_lost",
        "quarantine",
        "roll_back",
        "rows_rolled_back",
        "stalled",
        "torn_batch",
        "unreachable",
        "warning",
    }
)

Listed = TypeVar("Listed")


class _Placed(msgspec.Struct, frozen=True):
    """An event on the axis of running time; session: its number."""

    at_s: float
    session: int
    event: JournalEvent

    @property
    def note(self) -> Note:
        one = self.event
        return Note(self.at_s, one.time_utc, one.kind, one.process, one.text)

    def is_decision(self, word: str) -> bool:
        return self.event.kind == "decision" and self.event.text.startswith(word)


def story_of(chapters: Sequence[Chapter], axis: Axis) -> Story:
    placed = [
        _Placed(axis.at_s(number, event.monotonic_s), number, event)
        for number, chapter in enumerate(chapters)
        for event in chapter.events
    ]
    decisions = [one.note for one in placed if one.event.kind == "decision"]
    faults = [Fault(one.note, _back_after_s(placed, index)) for index, one in enumerate(placed) if _is_fault(one)]
    kept_decisions, kept_faults = _ends(decisions), _ends(faults)
    return Story(
        plans=tuple(_plans(placed)),
        threads=tuple(_threads(placed)),
        spans=tuple(_spans(placed, axis)),
        evaluations=tuple(_evaluations(placed)),
        decisions=kept_decisions,
        decisions_left_out=len(decisions) - len(kept_decisions),
        faults=kept_faults,
        faults_left_out=len(faults) - len(kept_faults),
        fault_counts=dict(sorted(Counter(one.note.kind for one in faults).items())),
    )


def _ends(found: Sequence[Listed]) -> tuple[Listed, ...]:
    """All, or the first and the last of too many."""
    half = MOST_LISTED // 2
    return tuple(found) if len(found) <= MOST_LISTED else (*found[:half], *found[-half:])


def _plans(placed: Sequence[_Placed]) -> Iterator[PlanChange]:
    number = 0
    for index, one in enumerate(placed):
        if not one.is_decision(PLAN):
            continue
        workers, servers = _whole(one.event.data.get("workers")), _whole(one.event.data.get("servers"))
        if workers is None or servers is None:
            continue
        number += 1
        access = str(one.event.data.get("access", ""))
        reason = one.event.text.removeprefix(PLAN)
        yield PlanChange(number, one.at_s, workers, servers, access, reason, _outcome(placed, index))


def _outcome(placed: Sequence[_Placed], index: int) -> str:
    """What was told of the change when it was over; "" when another plan came before, or nothing did."""
    for one in placed[index + 1 :]:
        if one.event.kind == "scaled":
            return one.event.text
        if one.is_decision(PLAN) or one.session != placed[index].session:
            break
    return ""


def _threads(placed: Sequence[_Placed]) -> Iterator[tuple[float, int]]:
    """Threads of a worker that was pinned anew."""
    for one in placed:
        threads = _whole(one.event.data.get("threads"))
        if one.event.kind == "decision" and one.event.process.startswith("worker") and threads is not None:
            yield one.at_s, threads


def _spans(placed: Sequence[_Placed], axis: Axis) -> Iterator[Span]:
    """What was begun and never ended lasts until its session does."""
    open_at: dict[str, _Placed] = {}
    for one in placed:
        kind, event = "", one.event
        if event.kind in ENDS_OF_CHECKPOINTS:
            kind = "checkpoint"
        elif event.kind == "evaluation":
            kind = "evaluation"
        if kind and (begun := open_at.pop(kind, None)) is not None:
            yield _span(kind, begun, one.at_s, event.text, axis)
        for word, begins in (("checkpoint: ", "checkpoint"), ("evaluate: ", "evaluation")):
            if one.is_decision(word):
                open_at[begins] = one
    for kind, begun in open_at.items():
        yield _span(kind, begun, axis.total_s, f"{begun.event.text}; its end was not seen", axis)


def _span(kind: str, begun: _Placed, until_s: float, text: str, axis: Axis) -> Span:
    session = axis.sessions[begun.session]
    until_s = min(until_s, session.at_s + session.duration_s)
    return Span("checkpoint" if kind == "checkpoint" else "evaluation", begun.at_s, max(begun.at_s, until_s), text)


def _evaluations(placed: Sequence[_Placed]) -> Iterator[Evaluation]:
    for one in placed:
        samples = _whole(one.event.data.get("samples"))
        if one.event.kind == "evaluation" and samples is not None:
            data = one.event.data
            yield Evaluation(one.at_s, samples, _real(data.get("auc")), _real(data.get("logloss")))


def _is_fault(one: _Placed) -> bool:
    return one.event.kind in FAULT_KINDS


def _back_after_s(placed: Sequence[_Placed], index: int) -> float | None:
    """Of a lost process: until it was ready again, in its next life."""
    lost = placed[index]
    if lost.event.kind != "process_lost":
        return None
    for one in placed[index + 1 :]:
        if one.session != lost.session:
            return None
        if one.event.kind == "ready" and one.event.process == lost.event.process:
            return one.event.monotonic_s - lost.event.monotonic_s
    return None


def tuner_decisions_of(chapters: Sequence[Chapter], axis: Axis) -> Iterator[tuple[float, str, dict[str, JournalValue]]]:
    """(at_s, reason, data) of each decision of the tuner that is in the journal."""
    for number, chapter in enumerate(chapters):
        for event in chapter.events:
            if event.kind == "decision" and event.text.startswith(TUNER) and "configuration" in event.data:
                yield axis.at_s(number, event.monotonic_s), event.text.removeprefix(TUNER), event.data


def _whole(value: JournalValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _real(value: JournalValue) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
