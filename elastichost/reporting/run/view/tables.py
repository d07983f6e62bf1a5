"""The tables in a report of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from elastichost.human_readable import bytes_words, count_words, duration_words, plural
from elastichost.reporting.render.markup import Markup, joined, tag
from elastichost.reporting.render.page_parts import Column, framed, row_of, table_of
from elastichost.reporting.run.facts import (
    EventNote,
    FaultRecord,
    HotBucket,
    MemoryStep,
    PlanChange,
    ProcessCourse,
    TunerDecision,
    TunerModelFacts,
)
from elastichost.reporting.run.view.words import moment_words
from elastichost.tuner.policy.policy import SpeedForecast

__all__ = [
    "bucket_table",
    "decision_table",
    "fact_list",
    "fault_table",
    "memory_table",
    "note_table",
    "parameter_table",
    "plan_table",
    "process_table",
]


def fact_list(facts: Iterable[tuple[str, str]], kind: str = "facts") -> Markup:
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in facts), class_=kind)


def plan_table(plans: Sequence[PlanChange]) -> Markup:
    columns: tuple[Column, ...] = (
        ("", "number"),
        ("at", "number"),
        ("workers", "number"),
        ("PS", "number"),
        ("why, and the result", "words"),
    )
    return table_of(columns, (_plan_row(one) for one in plans))


def _plan_row(one: PlanChange) -> tuple[str, ...]:
    outcome = tag("div", one.outcome, class_="quiet") if one.outcome else ""
    why = joined(one.reason, outcome)
    return str(one.number), moment_words(one.at_s), str(one.workers), str(one.servers), why


def process_table(processes: Sequence[ProcessCourse]) -> Markup:
    columns: tuple[Column, ...] = (
        ("process", "short"),
        ("incarnations", "number"),
        ("CPU, mean", "number"),
        ("waiting, mean", "number"),
        ("memory, peak", "number"),
    )
    return table_of(
        columns,
        (
            (
                one.process,
                str(one.incarnations),
                f"{one.mean_cpu_percent:.0f}%" if one.mean_cpu_percent is not None else "",
                f"{one.mean_waiting:.0%}",
                bytes_words(one.peak_memory_bytes),
            )
            for one in processes
        ),
    )


def decision_table(decisions: Sequence[TunerDecision]) -> Markup:
    """Two lines for each decision: the figures, and the reason."""
    columns: tuple[Column, ...] = (
        ("at", "number"),
        ("decision", "short"),
        ("", "short"),
        ("expected", "number"),
        ("measured afterwards", "number"),
        ("gain", "number"),
    )
    lines = (line for one in decisions for line in (row_of(columns, _figures(one), "open"), _why(one, len(columns))))
    return framed(columns, lines)


def _figures(one: TunerDecision) -> tuple[str, ...]:
    sizes = joined(*(tag("div", size) for size in str(one.configuration).split(", ")))
    return (
        moment_words(one.at_s),
        joined(tag("b", one.kind), tag("div", "not carried out", class_="quiet") if one.was_followed is False else ""),
        sizes,
        _forecast(one.expected),
        _forecast(one.measured),
        _gain(one.gain),
    )


def _why(one: TunerDecision, columns: int) -> Markup:
    stake = f" Expected saving: {duration_words(one.gain_s)}." if one.gain_s > 0 else ""
    return tag("tr", tag("td"), tag("td", f"{one.reason}.{stake}", class_="words", colspan=str(columns - 1)))


def _forecast(told: SpeedForecast | None) -> Markup:
    """The speed in samples/s with the 90 % interval below it."""
    if told is None:
        return Markup()
    low, high = (count_words(round(edge)) for edge in (told.low, told.high))
    lines = [f"{low} to {high}", *(["extrapolated"] if told.is_extrapolated else [])]
    return joined(count_words(round(told.samples_per_s)), *(tag("div", line, class_="quiet") for line in lines))


def _gain(gain: float | None) -> str:
    if gain is None:
        return ""
    return tag("span", f"{gain:+.1%}".replace("-", "\N{MINUS SIGN}"), class_="good" if gain >= 0 else "bad")


def note_table(notes: Sequence[EventNote], left_out: int) -> Markup:
    """The table of decisions in the journal. left_out: the number of decisions in the middle that it leaves out."""
    columns: tuple[Column, ...] = (("at", "number"), ("process", "short"), ("decision", "words"))
    rows: list[tuple[str, ...]] = [(moment_words(one.at_s), one.process, one.text) for one in notes]
    if left_out:
        rows.insert(len(rows) // 2, ("", "", tag("em", f"{plural(left_out, 'decision')} more, see journal.jsonl")))
    return table_of(columns, rows)


def fault_table(faults: Sequence[FaultRecord], left_out: int) -> Markup:
    columns: tuple[Column, ...] = (
        ("at", "number"),
        ("event", "short"),
        ("process", "short"),
        ("description", "words"),
        ("back after", "number"),
    )
    rows: list[tuple[str, ...]] = [_fault_row(one) for one in faults]
    if left_out:
        rows.insert(len(rows) // 2, ("", "", "", tag("em", f"{left_out:,} more, see journal.jsonl"), ""))
    return table_of(columns, rows)


def _fault_row(one: FaultRecord) -> tuple[str, ...]:
    note, back = one.note, "" if one.back_after_s is None else f"{one.back_after_s:.2f} s"
    return moment_words(note.at_s), note.kind.replace("_", " "), note.process, note.text, back


# The name on the page of each kind of memory step.
MEMORY_STEPS = {
    "budget": "budget",
    "evict": "rows dropped",
    "admit": "ids admitted later",
    "move": "buckets moved",
    "shrink": "fewer workers",
    "warn": "warning",
    "full": "memory full",
    "free": "memory free again",
    "note": "",
}


def memory_table(steps: Sequence[MemoryStep]) -> Markup:
    columns: tuple[Column, ...] = (
        ("at", "number"),
        ("event", "short"),
        ("why, and the effect", "words"),
        ("budget exceeded in", "number"),
    )
    return table_of(columns, (_memory_row(one) for one in steps))


def _memory_row(one: MemoryStep) -> tuple[str, ...]:
    effect = tag("div", one.effect, class_="quiet") if one.effect else ""
    ends = "" if one.exceeds_in_s is None else duration_words(one.exceeds_in_s)
    what = MEMORY_STEPS.get(one.kind, one.kind)
    return moment_words(one.at_s), tag("b", what), joined(one.text, effect), ends


def parameter_table(model: TunerModelFacts) -> Markup:
    columns: tuple[Column, ...] = (("parameter", "short"), ("value", "number"), ("sd of its log", "number"))
    spread = model.spread
    return table_of(
        columns,
        (
            (name, f"{value:.4g}", f"{spread[name]:.2f}" if name in spread else "")
            for name, value in model.parameters.items()
        ),
    )


def bucket_table(hottest: Sequence[HotBucket]) -> Markup:
    columns: tuple[Column, ...] = (("bucket", "short"), ("share of all keys", "number"), ("PS", "number"))
    return table_of(
        columns,
        (
            (
                f"{one.bucket} of table {one.table}",
                f"{one.share:.1%}",
                "" if one.server is None else f"server-{one.server}",
            )
            for one in hottest
        ),
    )
