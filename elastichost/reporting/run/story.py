"""Computes the history of a run from its journal: plans, checkpoints, evaluations, decisions, faults. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, TypeVar

import msgspec

from elastichost.reporting.run.facts import Evaluation, EventNote, FaultRecord, PlanChange, Story, TimedActivity
from elastichost.reporting.run.sessions import Axis, Chapter
from elastichost.runs.events import (
    CheckpointAbandoned,
    CheckpointFailed,
    CheckpointStarted,
    CheckpointWritten,
    EvaluationFinished,
    EvaluationStarted,
    JournalLine,
    PlanChanged,
    PlanReached,
    ProcessLost,
    ProcessReady,
    ProcessRepinning,
    TunerDecided,
)
from elastichost.runs.events.text import text_of
from elastichost.tuner.policy.decision import Decision

__all__ = ["MOST_LISTED", "first_and_last", "note_of", "story_of", "tuner_decisions_of"]

MOST_LISTED = 600  # decisions or faults; if there are more, the first and last ones are kept
FAULTS = frozenset({"fault", "warning"})  # categories

SpanKind = Literal["checkpoint", "evaluation"]
Listed = TypeVar("Listed")


class _Placed(msgspec.Struct, frozen=True):
    """A journal line on the axis of running time. session: number of its session."""

    at_s: float
    session: int
    line: JournalLine

    @property
    def note(self) -> EventNote:
        return note_of(self.line, self.at_s)

    @property
    def category(self) -> str:
        return self.line.event.category


def note_of(line: JournalLine, at_s: float) -> EventNote:
    event = line.event
    return EventNote(at_s, line.time_utc, line.kind, event.category, event.subject, text_of(event))


def story_of(chapters: Sequence[Chapter], axis: Axis) -> Story:
    placed = [
        _Placed(axis.at_s(number, line.monotonic_s), number, line)
        for number, chapter in enumerate(chapters)
        for line in chapter.lines
    ]
    decisions = [one.note for one in placed if one.category == "decision"]
    faults = [
        FaultRecord(one.note, _back_after_s(placed, index))
        for index, one in enumerate(placed)
        if one.category in FAULTS
    ]
    kept_decisions, kept_faults = first_and_last(decisions, MOST_LISTED), first_and_last(faults, MOST_LISTED)
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


def first_and_last(found: Sequence[Listed], most: int) -> tuple[Listed, ...]:
    """All elements, or the first and last `most // 2` of them if there are more than `most`."""
    half = most // 2
    return tuple(found) if len(found) <= most else (*found[:half], *found[-half:])


def _plans(placed: Sequence[_Placed]) -> Iterator[PlanChange]:
    number = 0
    for index, one in enumerate(placed):
        plan = one.line.event
        if isinstance(plan, PlanChanged):
            number += 1
            outcome = _outcome(placed, index)
            yield PlanChange(number, one.at_s, plan.workers, plan.servers, plan.access, plan.reason, outcome)


def _outcome(placed: Sequence[_Placed], index: int) -> str:
    """The sentence of the event that ended this plan change; "" if another plan came first, or no such event."""
    for one in placed[index + 1 :]:
        if isinstance(one.line.event, PlanReached):
            return text_of(one.line.event)
        if isinstance(one.line.event, PlanChanged) or one.session != placed[index].session:
            break
    return ""


def _threads(placed: Sequence[_Placed]) -> Iterator[tuple[float, int]]:
    """(at_s, threads) of each worker that was pinned to other cores."""
    for one in placed:
        event = one.line.event
        if isinstance(event, ProcessRepinning) and event.process.role == "worker":
            yield one.at_s, event.threads


def _spans(placed: Sequence[_Placed], axis: Axis) -> Iterator[TimedActivity]:
    """Checkpoints and evaluations. One without an end lasts until the end of its session."""
    open_at: dict[SpanKind, _Placed] = {}
    for one in placed:
        event, ended = one.line.event, _ends_span(one)
        if ended is not None and (begun := open_at.pop(ended, None)) is not None:
            yield _span(ended, begun, one.at_s, text_of(event), axis)
        if isinstance(event, CheckpointStarted):
            open_at["checkpoint"] = one
        elif isinstance(event, EvaluationStarted):
            open_at["evaluation"] = one
    for kind, begun in open_at.items():
        yield _span(kind, begun, axis.total_s, f"{text_of(begun.line.event)}; no end in the journal", axis)


def _ends_span(one: _Placed) -> SpanKind | None:
    match one.line.event:
        case CheckpointWritten() | CheckpointFailed() | CheckpointAbandoned():
            return "checkpoint"
        case EvaluationFinished():
            return "evaluation"
        case _:
            return None


def _span(kind: SpanKind, begun: _Placed, until_s: float, text: str, axis: Axis) -> TimedActivity:
    session = axis.sessions[begun.session]
    until_s = min(until_s, session.at_s + session.duration_s)
    return TimedActivity(kind, begun.at_s, max(begun.at_s, until_s), text)


def _evaluations(placed: Sequence[_Placed]) -> Sequence[Evaluation]:
    """In ascending order of samples. Where the run went back to a checkpoint, only those that it made afterwards."""
    kept: list[Evaluation] = []
    for one in placed:
        event = one.line.event
        if isinstance(event, EvaluationFinished):
            while kept and kept[-1].samples >= event.samples:
                kept.pop()
            further = event.memory.figures.metrics if event.memory.figures is not None else {}
            kept.append(Evaluation(one.at_s, event.samples, event.auc, event.logloss, further))
    return kept


def _back_after_s(placed: Sequence[_Placed], index: int) -> float | None:
    """The seconds from the loss of a process until its next incarnation was ready; None if neither is recorded."""
    lost = placed[index]
    if not isinstance(lost.line.event, ProcessLost):
        return None
    for one in placed[index + 1 :]:
        if one.session != lost.session:
            return None
        if isinstance(one.line.event, ProcessReady) and one.line.event.subject == lost.line.event.subject:
            return one.line.monotonic_s - lost.line.monotonic_s
    return None


def tuner_decisions_of(chapters: Sequence[Chapter], axis: Axis) -> Iterator[tuple[float, Decision]]:
    """(at_s, decision) of the tuner from the journal, without the decisions of a tuner that only watches."""
    for number, chapter in enumerate(chapters):
        for line in chapter.lines:
            if isinstance(line.event, TunerDecided) and not line.event.only_watches:
                yield axis.at_s(number, line.monotonic_s), line.event.decision
