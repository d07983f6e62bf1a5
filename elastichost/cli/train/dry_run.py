"""`run --dry-run`: makes the checks of a start, builds the model and runs one batch in a separate process, and prints
what a start would run. It trains nothing and leaves no files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from rich.table import Table

from elastichost.cli.output import data_console, fact_lines, print_json, progress_console
from elastichost.human_readable import bytes_words, count_words, plural
from elastichost.resources import core_list

if TYPE_CHECKING:
    from elastichost.config.job import JobSpec
    from elastichost.plan import Plan
    from elastichost.specs import ModelSpec
    from elastichost.supervisor.startup.model_probe import DescribedModel
    from elastichost.supervisor.startup.preflight import Preparation
    from elastichost.tuner.memory.peak_memory import MemoryEstimate

__all__ = ["DryRunTable", "ModelFacts", "Rehearsal", "rehearse"]


class DryRunTable(msgspec.Struct, frozen=True):
    """An embedding table. rows 0: dynamic. dims: of its embeddings, more than one where the model has several of it."""

    name: str
    features: tuple[str, ...]
    ids: str
    rows: int
    dims: tuple[int, ...]
    precision: str
    optimizer: str
    lr: float


class ModelFacts(msgspec.Struct, frozen=True):
    """Counts of a model that was built and has run one batch forward and backward, and one forward as in evaluation."""

    dense_parameters: int
    embeddings: int
    batch_samples: int


class Rehearsal(msgspec.Struct, frozen=True):
    """What a start would do. memory_bytes: the job's budget. memory: the estimate of the peak. model: None for an
    emulated job, which has no model."""

    job: str
    train_samples: int
    test_samples: int
    tables: tuple[DryRunTable, ...]
    plan: Plan
    memory_bytes: int
    memory: MemoryEstimate
    dense_optimizer: str
    dense_lr: float
    model: ModelFacts | None
    warnings: tuple[str, ...]


def rehearse(job: JobSpec, *, as_json: bool) -> None:
    """Prints what a start would do. Raises the same errors as a start: ModelError, DataError, ConfigError."""
    found = _rehearsal(job)
    for warning in (*found.warnings, *_memory_warnings(found)):
        progress_console().print(f"warning  {warning}", style="yellow", soft_wrap=True)
    if as_json:
        memory = {**msgspec.to_builtins(found.memory), "host_bytes": found.memory.host_bytes}
        print_json({**msgspec.to_builtins(found), "memory": memory})
        return
    out = data_console()
    out.print(fact_lines(_lines(found, job.train.epochs)))
    out.print(_tables(found.tables))
    out.print(_processes(found.plan))
    out.print("dry run: nothing was trained, and no file was written", style="dim")


def _memory_warnings(found: Rehearsal) -> Iterator[str]:
    if found.memory.needed_bytes > found.memory_bytes:
        needed, allowed = bytes_words(found.memory.needed_bytes), bytes_words(found.memory_bytes)
        yield (
            f"the job is expected to need {needed}, but resources.memory allows {allowed}: when that is used, new ids "
            "get no row, and the run may end for lack of memory; raise resources.memory, or make tables or batches "
            "smaller"
        )


def _lines(found: Rehearsal, epochs: int) -> Iterator[tuple[str, str]]:
    yield "job", found.job
    yield "train", f"{count_words(found.train_samples)} samples" + (f", {epochs} epochs" if epochs > 1 else "")
    yield "test", f"{count_words(found.test_samples)} samples" if found.test_samples else "none"
    if found.model is not None:
        yield (
            "dense part",
            f"{count_words(found.model.dense_parameters)} parameters, {found.dense_optimizer}"
            + (f" (lr {found.dense_lr:g})"),
        )
        yield "checked", f"one batch of {plural(found.model.batch_samples, 'sample')} ran forward and backward"
    yield "plan", found.plan.reason
    estimate, *parts = found.memory.words()
    yield "memory", "\n".join((f"at most {bytes_words(found.memory_bytes)}; expected: {estimate}", *parts))


def _tables(tables: tuple[DryRunTable, ...]) -> Table:
    """One line for the tables that have the same settings."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for table in tables:
        rows = count_words(table.rows) if table.rows else "dynamic"
        dims = ", ".join(map(str, table.dims))
        optimizer = f"{table.optimizer} (lr {table.lr:g})"
        name = table.name if table.features == (table.name,) else f"{table.name} ({', '.join(table.features)})"
        alike.setdefault((table.ids, rows, dims, table.precision, optimizer), []).append(name)
    shown = _table("tables", "ids", "rows", "dim", "precision", "optimizer")
    for settings, names in alike.items():
        shown.add_row(", ".join(names), *settings)
    return shown


def _processes(plan: Plan) -> Table:
    """One line for the processes that have the same cores, threads and GPU."""
    on_gpus = any(spec.gpu is not None for spec in plan.processes)
    shown = _table("process", "cores", "threads", *(("gpu",) if on_gpus else ()))
    alike: dict[tuple[str, ...], list[int]] = {}
    readers = [spec for spec in plan.processes if spec.role == "reader"]
    for spec in (*plan.workers, *plan.servers, *readers):
        role = "parameter server" if spec.role == "server" else spec.role
        gpu = (str(spec.gpu) if spec.gpu is not None else "",) if on_gpus else ()
        alike.setdefault((role, core_list(spec.cores) or "all", str(spec.threads), *gpu), []).append(spec.index)
    for (kind, *settings), indexes in alike.items():
        shown.add_row(f"{kind}{'s' * (len(indexes) > 1)} {core_list(tuple(indexes))}", *settings)
    return shown


def _table(*columns: str) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in columns:
        shown.add_column(name)
    return shown


def _rehearsal(job: JobSpec) -> Rehearsal:
    from elastichost.supervisor.launch.fork_server_client import LocalLauncher
    from elastichost.supervisor.launch.launcher import Entries
    from elastichost.supervisor.startup.memory_estimate import estimate_memory
    from elastichost.supervisor.startup.model_probe import describe_model
    from elastichost.supervisor.startup.preflight import preflight

    if job.emulate.enabled:
        prepared = preflight(job)
        return _facts(job, prepared, None, estimate_memory(job, prepared))
    entries = Entries()
    with LocalLauncher(entries.imports, entries.calls) as launcher:  # it imports libraries while preflight reads data
        prepared = preflight(job)
        with progress_console().status("building the model (importing torch takes a few seconds)"):
            built = describe_model(job, launcher, is_strict=True)
            return _facts(job, prepared, built, estimate_memory(job, prepared, launcher, described=built))


def _facts(job: JobSpec, prepared: Preparation, built: DescribedModel | None, memory: MemoryEstimate) -> Rehearsal:
    from elastichost.tuner.placement.readers import with_readers

    model = built.model if built is not None else None
    samples = min(job.train.batch_size, prepared.train.units[0].samples)
    dense = job.train.optimizer_dense
    return Rehearsal(
        job=job.job.name,
        train_samples=prepared.train.samples,
        test_samples=prepared.test.samples if prepared.test is not None else 0,
        tables=_table_facts(job, prepared, model),
        plan=with_readers(prepared.plan, job),
        memory_bytes=prepared.memory_bytes,
        memory=memory,
        dense_optimizer=dense.name,
        dense_lr=dense.lr,
        model=ModelFacts(model.dense.parameters, len(model.embeddings), samples) if model is not None else None,
        warnings=(*prepared.warnings, *(built.warnings if built is not None else ())),
    )


def _table_facts(job: JobSpec, prepared: Preparation, model: ModelSpec | None) -> tuple[DryRunTable, ...]:
    from elastichost.config.tables import table_settings

    found = []
    for table in prepared.tables:
        settings = table_settings(job, table.name)
        own = [one.dim for one in model.embeddings if one.table == table.index] if model is not None else []
        found.append(
            DryRunTable(
                name=table.name,
                features=table.features,
                ids=table.key_kind,
                rows=table.rows,
                dims=tuple(dict.fromkeys(own)) or (settings.dim,),
                precision=settings.precision,
                optimizer=settings.optimizer.name,
                lr=settings.optimizer.lr,
            )
        )
    return tuple(found)
