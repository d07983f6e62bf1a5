"""Prints the journal of a run: all events, or only events of given kinds or with a given cause."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import get_args

import msgspec

from elastichost.cli.output import data_console, print_json
from elastichost.cli.watch.run_view import event_line
from elastichost.errors import ConfigError, PreflightError
from elastichost.human_readable import did_you_mean
from elastichost.run_files import JOURNAL_FILE
from elastichost.runs.events import EVENT_CLASSES, Category, JournalLine, kind_of
from elastichost.runs.events.schema import line_schema
from elastichost.runs.events.text import text_of
from elastichost.runs.journal import read_journal
from elastichost.runs.tail import Tail

__all__ = ["Selection", "show_events", "show_schema"]


class Selection(msgspec.Struct, frozen=True):
    """Which events are shown. kinds: kinds and categories, empty for all. cause: "" for any. leases: also the leases,
    which have a file of their own beside the journal."""

    kinds: frozenset[str] = frozenset()
    cause: str = ""
    leases: bool = False

    @classmethod
    def of(cls, kinds: Collection[str], cause: str, *, leases: bool, follow: bool) -> Selection:
        """Raises ConfigError for an unknown kind or category, and for leases together with `follow`."""
        categories = get_args(Category)
        known = [*categories, *(kind_of(one.__name__) for one in EVENT_CLASSES)]
        for kind in kinds:
            if kind not in known:
                raise ConfigError(
                    f"unknown kind of event {kind!r}{did_you_mean(kind, known)}",
                    hint=f"docs/events.md lists all kinds; categories: {', '.join(categories)}",
                )
        of_leases = {"lease", *(kind_of(one.__name__) for one in EVENT_CLASSES if one.category == "lease")}
        leases = leases or bool(of_leases & set(kinds))
        if leases and follow:
            raise ConfigError(
                "leases cannot be followed", hint="leave out --follow: all leases up to now are then printed"
            )
        return cls(frozenset(kinds), cause, leases)

    def has(self, line: JournalLine) -> bool:
        if self.cause and line.cause != self.cause:
            return False
        return not self.kinds or bool({line.kind, line.event.category} & self.kinds)


def show_schema() -> None:
    """Prints the JSON Schema of a line of journal.jsonl on stdout."""
    sys.stdout.write(msgspec.json.encode(line_schema()).decode() + "\n")


def show_events(directory: Path, selection: Selection, is_over: Callable[[], bool], *, as_json: bool) -> None:
    """Prints the selected events, and new ones until `is_over` returns True. Raises PreflightError if the journal is
    missing or was written by another version."""
    path = directory / JOURNAL_FILE
    if not path.is_file():
        raise PreflightError(f"{path}: this run has no journal yet")
    out, count = data_console(), 0
    for line in _with_leases(path) if selection.leases else _followed(path, is_over):
        if not selection.has(line):
            continue
        count += 1
        if as_json:
            print_json({**line.flat(), "text": text_of(line.event)})
        else:
            out.print(event_line(line))
    if as_json:
        print_json({"run_dir": str(directory), "events": count})


def _with_leases(path: Path) -> Iterator[JournalLine]:
    try:
        yield from read_journal(path)
    except msgspec.DecodeError as error:
        raise _unreadable(f"{path}, or the leases beside it", error) from error


def _followed(path: Path, is_over: Callable[[], bool]) -> Iterator[JournalLine]:
    tail, number = Tail(path), 0
    while True:
        ended = is_over()  # checked before the file is read, so that the last lines are not missed
        for text in tail.new_lines():
            number += 1
            try:
                yield msgspec.json.decode(text, type=JournalLine)
            except msgspec.DecodeError as error:
                raise _unreadable(f"{path}, line {number}", error) from error
        if ended:
            return
        tail.wait()


def _unreadable(where: str, error: msgspec.DecodeError) -> PreflightError:
    return PreflightError(
        f"{where}: not an event of this elastichost version: {error}",
        hint="read it with the version that wrote it; versions.json in the run directory names that version",
    )
