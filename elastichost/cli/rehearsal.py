"""`run --dry-run`: everything that is checked before a start, and the plan a start would make. Starts nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from elastichost.cli.output import data_console, fact_lines, print_json, progress_console
from elastichost.wording import bytes_words, count_words

if TYPE_CHECKING:
    from elastichost.config import JobSpec
    from elastichost.plan import Plan
    from elastichost.specs import TableSpec

__all__ = ["Rehearsal", "rehearse"]


class Rehearsal(msgspec.Struct, frozen=True):
    """What a start would do, as far as it is known without building the model."""

    job: str
    train_samples: int
    test_samples: int
    tables: tuple[TableSpec, ...]
    plan: Plan
    memory_bytes: int  # the job's budget
    warnings: tuple[str, ...]


def rehearse(job: JobSpec, *, as_json: bool) -> None:
    """Prints what would happen. Raises the same typed errors as a start: ModelError, DataError, ConfigError."""
    found = _rehearsal(job)
    for warning in found.warnings:
        progress_console().print(f"warning  {warning}", style="yellow", markup=False)
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    data_console().print(fact_lines(_lines(found, job.train.epochs)))


def _lines(found: Rehearsal, epochs: int) -> Iterator[tuple[str, str]]:
    yield "job", found.job
    yield "train", f"{count_words(found.train_samples)} samples" + (f", {epochs} times" if epochs > 1 else "")
    yield "test", f"{count_words(found.test_samples)} samples" if found.test_samples else "none"
    yield "memory", f"at most {bytes_words(found.memory_bytes)}"
    yield "plan", found.plan.reason
    alike: dict[str, list[str]] = {}
    for table in found.tables:
        rows = "dynamic" if table.is_dynamic else f"{count_words(table.rows)} rows"
        name = table.name if table.features == (table.name,) else f"{table.name} ({', '.join(table.features)})"
        alike.setdefault(f"{rows}, {table.key_kind} ids", []).append(name)
    for kind, names in alike.items():
        yield "tables", f"{kind}: {', '.join(names)}"


def _rehearsal(job: JobSpec) -> Rehearsal:
    from elastichost.supervisor.preflight import preflight

    found = preflight(job)
    return Rehearsal(
        job=job.job.name,
        train_samples=found.train.samples,
        test_samples=found.test.samples if found.test is not None else 0,
        tables=found.tables,
        plan=found.plan,
        memory_bytes=found.memory_bytes,
        warnings=found.warnings,
    )
