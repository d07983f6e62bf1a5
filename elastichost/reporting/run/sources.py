"""Reads the files of a run directory as far as possible, and collects what is missing as gaps.

The run may still be training, may have been killed during a write, or may be of an older version. Other verbs refuse
such files; the report leaves out the unreadable part and lists it as a gap.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from elastichost.errors import PreflightError
from elastichost.metrics import RunStatus
from elastichost.reporting.run.facts import Gap
from elastichost.run_files import JOURNAL_FILE, RESOLVED_JOB_FILE, RESULT_FILE, STATUS_FILE, VERSIONS_FILE
from elastichost.runs.decisions import DECISIONS_FILE
from elastichost.runs.events import JournalLine
from elastichost.runs.result import Lookups, ProcessCounts, SampleCounts, TestFigures
from elastichost.tuner.records import Record

__all__ = ["JobFacts", "ResultFacts", "Sources", "open_sources"]

Decoded = TypeVar("Decoded")
# Events of every lease and message: they are most of a journal, and the report does not show them.
SKIPPED_KINDS = frozenset({"process_connected", "lease_granted", "leases_settled"})


class JobFacts(msgspec.Struct, frozen=True):
    """Settings from the job file; "" and None where it has none. memory: resources.memory as written. tuner:
    tuner.mode. content: the whole file."""

    name: str = ""
    mode: str = ""
    batch_size: int | None = None
    epochs: int | None = None
    memory: str | int = ""
    tuner: str = ""
    content: dict[str, Any] = {}


class ResultFacts(msgspec.Struct, frozen=True):
    """Values from `result.json`, of which older versions write only some."""

    status: str = ""
    samples: SampleCounts | None = None
    lookups: Lookups = Lookups()
    test: TestFigures | None = None
    samples_per_s: float | None = None
    wall_s: float = 0.0
    processes: ProcessCounts | None = None
    arena_bytes: int | None = None
    torn_batches: int | None = None
    checkpoint: str = ""
    message: str = ""


class Sources:
    """One run directory; `gaps` grows while its files are read."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.gaps: list[Gap] = []

    def job(self) -> JobFacts:
        name = RESOLVED_JOB_FILE
        text = self._text(name, "the job's settings")
        if text is None:
            return JobFacts()
        try:
            return _job(tomllib.loads(text))
        except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            self.miss(name, f"cannot be read: {error}")
            return JobFacts()

    def versions(self) -> dict[str, str]:
        return self._json(VERSIONS_FILE, dict[str, str], "the versions of the software") or {}

    def result(self, *, is_expected: bool) -> ResultFacts | None:
        """The result, None if it is missing. That is a gap only if `is_expected`."""
        path = self.run / RESULT_FILE
        if not is_expected and not path.exists():
            return None
        return self._json(path.name, ResultFacts, "the result of the run")

    def status(self) -> RunStatus | None:
        return self._json(STATUS_FILE, RunStatus, "the last state of the run")

    def journal(self) -> Iterator[JournalLine]:
        """The lines of the journal in order, without SKIPPED_KINDS."""
        what = "the history of the run"
        for line in self._lines(JOURNAL_FILE, msgspec.json.Decoder(JournalLine), what):
            if line.kind not in SKIPPED_KINDS:
                yield line

    def records(self) -> Iterator[Record]:
        """The records of the tuner in order."""
        decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
        yield from self._lines(DECISIONS_FILE, decoder, "the tuner's input")

    def miss(self, source: str, text: str) -> None:
        self.gaps.append(Gap(source, text))

    def _text(self, name: str, what: str) -> str | None:
        try:
            return (self.run / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            self.miss(name, f"no such file, so the report lacks {what}")
        except OSError as error:
            self.miss(name, f"cannot be read: {error.strerror or error}")
        return None

    def _json(self, name: str, kind: type[Decoded], what: str) -> Decoded | None:
        text = self._text(name, what)
        if text is None:
            return None
        try:
            return msgspec.json.decode(text, type=kind)
        except msgspec.DecodeError as error:
            self.miss(name, f"cannot be read: {error}")
            return None

    def _lines(self, name: str, decoder: msgspec.json.Decoder[Decoded], what: str) -> Iterator[Decoded]:
        """Decodes the lines of a file. A last line without a newline is being written, or was cut by a crash; it is
        left out without a gap. Every other undecodable line is left out and counted in a gap."""
        unread, why, count = 0, "", 0
        try:
            with (self.run / name).open("rb") as file:
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    try:
                        decoded = decoder.decode(line)
                    except (msgspec.DecodeError, UnicodeDecodeError) as error:
                        unread, why = unread + 1, why or str(error)
                        continue
                    count += 1
                    yield decoded
        except FileNotFoundError:
            self.miss(name, f"no such file, so the report lacks {what}")
            return
        except OSError as error:
            self.miss(name, f"cannot be read: {error.strerror or error}")
        if unread:
            lines = f"{unread} line{'s' * (unread != 1)}"
            self.miss(name, f"{lines} left out, because this version cannot read them; first error: {why}")
        elif not count:
            self.miss(name, f"empty, so the report lacks {what}")


def _job(content: dict[str, Any]) -> JobFacts:
    def section(name: str) -> dict[str, Any]:
        found = content.get(name)
        return found if isinstance(found, dict) else {}

    train, own = section("train"), section("job")
    given = {
        "name": own.get("name"),
        "mode": train.get("mode"),
        "batch_size": train.get("batch_size"),
        "epochs": train.get("epochs"),
        "memory": section("resources").get("memory"),
        "tuner": section("tuner").get("mode"),
        "content": content,
    }
    return msgspec.convert({name: value for name, value in given.items() if value is not None}, JobFacts)


def open_sources(run: Path) -> Sources:
    """The sources of a run. Raises PreflightError if the directory does not exist."""
    if not run.is_dir():
        raise PreflightError(f"{run}: no such directory", hint="name a run directory, for example one under runs/")
    return Sources(run)
