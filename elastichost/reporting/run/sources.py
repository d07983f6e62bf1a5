"""Reads the files of a run directory as far as they can be read, and tells what is missing.

A run may still go on, may have been killed within a write, or may be of an older version: what a verb that acts on a
run refuses, a report leaves out and says so.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from elastichost.errors import PreflightError
from elastichost.metrics import RunStatus, read_status
from elastichost.reporting.run.facts import Gap
from elastichost.runs.decisions import DECISIONS_FILE
from elastichost.runs.events import JournalLine
from elastichost.runs.result import Lookups, ProcessCounts, SampleCounts, TestFigures
from elastichost.tuner.records import Record

__all__ = ["JobFacts", "ResultFacts", "Sources", "open_sources"]

Decoded = TypeVar("Decoded")
# Of every sample and every message: for machines, and most of a journal.
SKIPPED_KINDS = frozenset({"process_connected", "lease_granted", "leases_settled"})


class JobFacts(msgspec.Struct, frozen=True):
    """Of the job file; "" and None where it does not tell. memory: resources.memory as it was written;
    tuner: what it may do."""

    name: str = ""
    mode: str = ""
    batch_size: int | None = None
    epochs: int | None = None
    memory: str | int = ""
    tuner: str = ""


class ResultFacts(msgspec.Struct, frozen=True):
    """Of `result.json`: what all versions have written, and what newer ones add."""

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
        name = "job.resolved.toml"
        text = self._text(name, "the job's settings")
        if text is None:
            return JobFacts()
        try:
            return _job(tomllib.loads(text))
        except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            self.miss(name, f"it cannot be read: {error}")
            return JobFacts()

    def versions(self) -> dict[str, str]:
        return self._json("versions.json", dict[str, str], "the versions of what ran") or {}

    def result(self, *, is_expected: bool) -> ResultFacts | None:
        """None: there is none, which is a gap when the run has ended."""
        path = self.run / "result.json"
        if not is_expected and not path.exists():
            return None
        return self._json(path.name, ResultFacts, "how the run ended")

    def status(self) -> RunStatus | None:
        try:
            return read_status(self.run)
        except PreflightError as error:
            self.miss("status.json", error.message.partition(": ")[2])
            return None

    def journal(self) -> Iterator[JournalLine]:
        """In order, but for lines that tell of every lease."""
        what = "what happened and what was decided"
        for line in self._lines("journal.jsonl", msgspec.json.Decoder(JournalLine), what):
            if line.kind not in SKIPPED_KINDS:
                yield line

    def records(self) -> Iterator[Record]:
        """Of the tuner's decisions, in order."""
        decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
        yield from self._lines(DECISIONS_FILE, decoder, "what the tuner saw")

    def miss(self, source: str, text: str) -> None:
        self.gaps.append(Gap(source, text))

    def _text(self, name: str, what: str) -> str | None:
        try:
            return (self.run / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            self.miss(name, f"there is no such file: {what} is not known")
        except OSError as error:
            self.miss(name, f"it cannot be read: {error.strerror or error}")
        return None

    def _json(self, name: str, kind: type[Decoded], what: str) -> Decoded | None:
        text = self._text(name, what)
        if text is None:
            return None
        try:
            return msgspec.json.decode(text, type=kind)
        except msgspec.DecodeError as error:
            self.miss(name, f"it cannot be read: {error}")
            return None

    def _lines(self, name: str, decoder: msgspec.json.Decoder[Decoded], what: str) -> Iterator[Decoded]:
        """A last line without its end is being written, or was cut short by a crash: it is left out, and that is no
        gap. Other lines that cannot be read are."""
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
            self.miss(name, f"there is no such file: {what} is not known")
            return
        except OSError as error:
            self.miss(name, f"it cannot be read: {error.strerror or error}")
        if unread:
            lines = f"{unread} line{'s' * (unread != 1)}"
            self.miss(name, f"{lines} cannot be read by this version and are left out; the first: {why}")
        elif not count:
            self.miss(name, f"it is empty: {what} is not known")


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
    }
    return msgspec.convert({name: value for name, value in given.items() if value is not None}, JobFacts)


def open_sources(run: Path) -> Sources:
    """Raises PreflightError when there is no such directory."""
    if not run.is_dir():
        raise PreflightError(f"{run}: there is no such directory", hint="name a run directory; `runs/` holds them")
    return Sources(run)
