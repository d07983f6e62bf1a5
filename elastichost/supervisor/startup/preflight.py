"""Everything that can be known to be wrong before anything is started, in about two seconds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elastichost.arena.files import MORE_ROOM
from elastichost.arena.host import SMALL_BYTES, arena_root, free_bytes
from elastichost.arena.least_room import SPARE_BYTES, first_rows_bytes
from elastichost.config.job import JobSpec
from elastichost.config.tables import resolve_tables, table_settings
from elastichost.datasets import open_reader
from elastichost.datasets.api import DatasetDescription
from elastichost.datasets.preflight import check_data
from elastichost.errors import ArenaFullError, DataError, PreflightError
from elastichost.host.environment import check_address_space
from elastichost.host.inventory import inventory
from elastichost.host.kernel_cache import kernel_cache
from elastichost.plan import Plan
from elastichost.resources import HostInventory, bounds_of, core_budget, gpu_budget, memory_budget_bytes
from elastichost.runs.journal_replay import EndedSize
from elastichost.specs import TableSpec
from elastichost.supervisor.startup.emulation import virtual_inventory
from elastichost.supervisor.startup.initial_plan import InitialPlan, begin
from elastichost.tuner.policy.frontier import require_nsga2
from elastichost.user_model.source import check_build_source
from elastichost.wire.crash import VARIABLE, parse_setting

__all__ = ["Preparation", "preflight"]


@dataclass(frozen=True, slots=True)
class Preparation:
    """What a run is made from; `test` is None when the job has no test data."""

    tables: tuple[TableSpec, ...]
    train: DatasetDescription
    test: DatasetDescription | None
    cores: tuple[int, ...]
    memory_bytes: int
    initial_plan: InitialPlan
    warnings: tuple[str, ...]

    @property
    def plan(self) -> Plan:
        """The first one, pinned."""
        return self.initial_plan.plan


def preflight(
    job: JobSpec,
    spare_bytes: int = 0,
    ended: EndedSize | None = None,
    lent: HostInventory | None = None,
    elsewhere: Mapping[int, tuple[int, ...]] | None = None,
) -> Preparation:
    """Checks model source, data, tables, memory and cores. spare_bytes: what an arena takes that this run goes on from;
    ended: the size it had. lent: what it may use of its host; None: all there is. elsewhere: cores of other machines,
    by their hosts; None: there are none, and none may join.

    Raises ConfigError, DataError, ModelError, ArenaFullError or PreflightError; nothing was created then.
    """
    check_address_space()
    parse_setting(os.environ.get(VARIABLE, ""))  # what does not exist would only be found by the processes
    if job.tuner.search == "nsga2" and job.tuner.mode != "off":
        require_nsga2()
    check_build_source(job.model.build, Path.cwd())
    tables = resolve_tables(job, _describe_train(job).key_kinds)
    checked = check_data(job, tables)
    is_emulated = job.emulate.enabled
    host = virtual_inventory(job.emulate) if is_emulated else lent or inventory()
    cores = core_budget(job.resources.cores, host.cores)
    memory_bytes = min(memory_budget_bytes(job.resources.memory, host.memory_bytes), host.memory_bytes)
    small = _check_room(job, () if is_emulated else tables, memory_bytes, spare_bytes)  # an emulated job has its own
    initial_plan = _begin(job, tables, checked.train, host, cores, ended, elsewhere)
    return Preparation(
        tables=tables,
        train=checked.train,
        test=None if is_emulated else checked.test,  # who learns nothing has nothing to be tested
        cores=cores,
        memory_bytes=memory_bytes,
        initial_plan=initial_plan,
        warnings=(*filter(None, [kernel_cache().problem]), *checked.warnings, *small, *initial_plan.warnings),
    )


def _describe_train(job: JobSpec) -> DatasetDescription:
    """Raises DataError with the problems of all the files, the test files' too, not only the first one found."""
    try:
        return open_reader(job, "train").describe()
    except DataError:
        check_data(job)
        raise


def _check_room(job: JobSpec, tables: tuple[TableSpec, ...], memory_bytes: int, spare_bytes: int) -> tuple[str, ...]:
    """What tables need at least; the model may add more, which is checked when it is known. Returns warnings."""
    needed = sum(_table_bytes(job, table) for table in tables if not table.is_dynamic)
    dynamic = sum(_first_rows_bytes(job, table) for table in tables if table.is_dynamic)
    root = arena_root()
    if not root.is_dir() or not os.access(root, os.W_OK | os.X_OK):
        raise PreflightError(
            f"{root}: is no directory that can be written; the rows of a run are kept there",
            hint="set ELASTICHOST_ARENA_DIR to a directory you may write to, or leave it out: /dev/shm",
        )
    free = free_bytes(root) + spare_bytes
    if needed > free:
        raise ArenaFullError(
            f"the fixed tables need {needed / 1e6:,.1f} MB in {root}, {free / 1e6:,.1f} MB are free",
            hint=MORE_ROOM,
        )
    if dynamic and needed + dynamic + SPARE_BYTES > free:
        raise ArenaFullError(
            f"the job needs at least {(needed + dynamic + SPARE_BYTES) / 1e6:,.1f} MB in {root} to begin with (fixed "
            f"tables, the first rows of dynamic ones, and pushes that wait), {free / 1e6:,.1f} MB are free",
            hint=MORE_ROOM,
        )
    if needed > memory_bytes:
        raise ArenaFullError(
            f"the fixed tables need {needed / 1e6:,.1f} MB, resources.memory allows {memory_bytes / 1e6:,.1f} MB",
            hint="raise resources.memory, or give the largest tables fewer rows",
        )
    if not dynamic or free >= min(memory_bytes, SMALL_BYTES):
        return ()
    return (
        f"{root} has {free / 1e6:,.1f} MB free, and rows of dynamic tables are kept there: when it is full, new ids "
        f"get no row ({MORE_ROOM})",
    )


def _first_rows_bytes(job: JobSpec, table: TableSpec) -> int:
    """Of a dynamic table that has one embedding at least."""
    return first_rows_bytes(1, int(table_settings(job, table.name).optimizer.name != "sgd"))


def _table_bytes(job: JobSpec, table: TableSpec) -> int:
    settings = table_settings(job, table.name)
    padded = (settings.dim + 3) // 4 * 4
    state = {"sgd": 0, "adagrad": padded, "rowwise_adagrad": 1}[settings.optimizer.name]
    return table.rows * ((2 if settings.precision == "bfloat16" else 4) * padded + 4 * state)


def _begin(
    job: JobSpec,
    tables: tuple[TableSpec, ...],
    train: DatasetDescription,
    host: HostInventory,
    cores: tuple[int, ...],
    ended: EndedSize | None,
    elsewhere: Mapping[int, tuple[int, ...]] | None,
) -> InitialPlan:
    resources = job.resources
    gpus = gpu_budget(resources.gpus, host.gpus)
    least, _ = bounds_of(resources.gpus, 0)
    if len(gpus) < least:
        raise PreflightError(
            f"resources.gpus asks for {least} GPU{'s' * (least != 1)}, {len(host.gpus)} can be seen",
            hint="`elastichost doctor` says what it sees of driver and GPUs; resources.gpus = 0 trains on the CPU",
        )
    least_gpu = min(gpus, key=lambda gpu: gpu.memory_bytes, default=None)
    fraction = 1.0
    if least_gpu is not None:  # torch holds a process to a share of the whole device
        budget = memory_budget_bytes(resources.gpu_memory, least_gpu.memory_bytes)
        fraction = budget / least_gpu.memory_bytes * least_gpu.share
    return begin(job, tables, train, cores, gpus, fraction, ended, elsewhere)
