"""`run --dry-run`: makes the checks of a start, builds the model and runs one batch in a separate process, and prints
the plan of a start. It trains nothing and leaves no files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from elastichost.cli.output import data_console, fact_lines, print_json, progress_console
from elastichost.human_readable import bytes_words, count_words

if TYPE_CHECKING:
    from elastichost.config.job import JobSpec
    from elastichost.plan import Plan
    from elastichost.specs import TableSpec

__all__ = ["ModelFacts", "Rehearsal", "rehearse"]


class ModelFacts(msgspec.Struct, frozen=True):
    """Counts of a model that was built and has run one batch forward and backward, and one forward as in evaluation."""

    dense_parameters: int
    embeddings: int
    batch_samples: int


class Rehearsal(msgspec.Struct, frozen=True):
    """What a start would do. `model` is None for an emulated job, which has no model."""

    job: str
    train_samples: int
    test_samples: int
    tables: tuple[TableSpec, ...]
    plan: Plan
    memory_bytes: int  # the job's budget
    model: ModelFacts | None
    warnings: tuple[str, ...]


def rehearse(job: JobSpec, *, as_json: bool) -> None:
    """Prints what a start would do. Raises the same errors as a start: ModelError, DataError, ConfigError."""
    found = _rehearsal(job)
    for warning in found.warnings:
        progress_console().print(f"warning  {warning}", style="yellow", markup=False)
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    data_console().print(fact_lines(_lines(found, job.train.epochs)))


def _lines(found: Rehearsal, epochs: int) -> Iterator[tuple[str, str]]:
    yield "job", found.job
    yield "train", f"{count_words(found.train_samples)} samples" + (f", {epochs} epochs" if epochs > 1 else "")
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
    if found.model is not None:
        built = f"{count_words(found.model.dense_parameters)} dense parameters, {found.model.embeddings} embeddings"
        yield "model", f"{built}; one batch of {found.model.batch_samples} samples ran forward and backward"


def _rehearsal(job: JobSpec) -> Rehearsal:
    from elastichost.supervisor.startup.model_probe import describe_model
    from elastichost.supervisor.startup.preflight import preflight

    found = preflight(job)
    model = None
    if not job.emulate.enabled:
        with progress_console().status("building the model (importing torch takes a few seconds)"):
            built = describe_model(job, is_strict=True).model
        samples = min(job.train.batch_size, found.train.units[0].samples)
        model = ModelFacts(built.dense.parameters, len(built.embeddings), samples)
    return Rehearsal(
        job=job.job.name,
        train_samples=found.train.samples,
        test_samples=found.test.samples if found.test is not None else 0,
        tables=found.tables,
        plan=found.plan,
        memory_bytes=found.memory_bytes,
        model=model,
        warnings=found.warnings,
    )
