"""Checks a job, its data and this host before anything is started. Takes about two seconds."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from elastichost.config.job import JobSpec
from elastichost.config.metric_names import metric_of
from elastichost.config.sections.emulate import EmulateSection
from elastichost.config.sections.loggers import PACKAGES
from elastichost.config.tables import resolve_tables
from elastichost.datasets import open_reader
from elastichost.datasets.api import DatasetDescription
from elastichost.datasets.files import NOT_PINNED, PinnedFiles
from elastichost.datasets.preflight import check_data
from elastichost.errors import DataError, PreflightError, SourceGoneError
from elastichost.host.cpu_features import present_cpu, refuses_bfloat16
from elastichost.host.environment import check_address_space
from elastichost.host.inventory import inventory
from elastichost.host.kernel_cache import kernel_cache
from elastichost.host.nvml.devices import VISIBLE
from elastichost.host.torch_packages import check_packages
from elastichost.human_readable import mib
from elastichost.plan import Plan
from elastichost.quality.own_metrics import check_functions
from elastichost.resources import HostInventory, OtherHost, bounds_of, core_budget, gpu_budget, memory_budget_bytes
from elastichost.runs.journal_replay import EndedSize
from elastichost.specs import TableSpec
from elastichost.supervisor.startup.initial_plan import InitialPlan, begin
from elastichost.supervisor.startup.room import NO_HOSTS, check_room
from elastichost.supervisor.startup.worker_kinds import check_kinds
from elastichost.tuner.policy.frontier import require_nsga2
from elastichost.user_model.source import check_build_source
from elastichost.wire.crash import VARIABLE, parse_setting

__all__ = ["Preparation", "preflight", "virtual_inventory"]


@dataclass(frozen=True, slots=True)
class Preparation:
    """The results of the checks, with which a run is started. cores, memory_bytes: the job's budgets. test: None if the
    job has no test data or is emulated. files: of the data, as they are now. others: host number -> the other
    machine."""

    tables: tuple[TableSpec, ...]
    train: DatasetDescription
    test: DatasetDescription | None
    cores: tuple[int, ...]
    memory_bytes: int
    initial_plan: InitialPlan
    warnings: tuple[str, ...]
    files: PinnedFiles = NOT_PINNED
    others: Mapping[int, OtherHost] = field(default_factory=dict)

    @property
    def plan(self) -> Plan:
        """The first plan, pinned to cores."""
        return self.initial_plan.plan


def preflight(
    job: JobSpec,
    spare_bytes: int = 0,
    ended: EndedSize | None = None,
    lent: HostInventory | None = None,
    elsewhere: Mapping[int, OtherHost] | None = None,
    pinned: PinnedFiles = NOT_PINNED,
) -> Preparation:
    """Checks model source, data, tables, memory, cores and GPUs, and chooses the first plan. Creates nothing.

    spare_bytes: bytes of the arena of the run that is resumed; they count as free. ended: size of that run. lent: the
    part of this host that the run may use; None: all of it. elsewhere: host number -> the other machine; None: there
    are no other machines, and none may join. pinned: the files of the run that is resumed.
    Raises ConfigError, DataError, ModelError, ArenaFullError or PreflightError.
    """
    check_address_space()
    parse_setting(os.environ.get(VARIABLE, ""))  # otherwise only the started processes would find an unknown name
    if job.tuner.search == "nsga2" and job.tuner.mode != "off":
        require_nsga2()
    if not job.emulate.enabled:
        _check_packages()
        if job.train.precision == "bfloat16":
            _check_precision(job)
    _check_loggers(job)
    check_build_source(job.model.build, Path.cwd())
    _check_own_metrics(job)
    tables = resolve_tables(job, _describe_train(job, pinned).key_kinds)
    checked = check_data(job, tables, pinned)
    is_emulated = job.emulate.enabled
    host = virtual_inventory(job.emulate) if is_emulated else lent or inventory()
    cores = core_budget(job.resources.cores, host.cores)
    memory_bytes = memory_budget_bytes(job.resources.memory, host.memory_bytes)
    others = {number: one.cores for number, one in elsewhere.items()} if elsewhere is not None else None
    initial_plan = _begin(job, tables, checked.train, host, cores, ended, others)
    with_rows = () if is_emulated else tables
    small = check_room(job, with_rows, initial_plan.plan, memory_bytes, spare_bytes, elsewhere or NO_HOSTS)
    return Preparation(
        tables=tables,
        train=checked.train,
        test=None if is_emulated else checked.test,  # an emulated job learns nothing that could be evaluated
        cores=cores,
        memory_bytes=memory_bytes,
        initial_plan=initial_plan,
        warnings=(
            *filter(None, [kernel_cache().problem]),
            *checked.warnings,
            *small,
            *_more_than_host(job.resources.memory, host.memory_bytes),
            *initial_plan.warnings,
        ),
        files=checked.files,
        others=elsewhere or NO_HOSTS,
    )


def virtual_inventory(emulate: EmulateSection) -> HostInventory:
    """Cores and memory (bytes) of all virtual hosts of an emulated run. Cores are numbered host after host."""
    memory_bytes = memory_budget_bytes(emulate.memory_per_host, 1 << 62)
    cores = range(emulate.hosts * emulate.cores_per_host)
    return HostInventory(cores=tuple(cores), memory_bytes=emulate.hosts * memory_bytes)


def _check_precision(job: JobSpec) -> None:
    """Raises PreflightError if workers without a GPU would compute in bfloat16 on a CPU without units for it."""
    least_gpus, _ = bounds_of(job.resources.gpus, 0)
    if least_gpus == 0 and (reason := refuses_bfloat16(present_cpu())):
        raise PreflightError(
            f'train.precision = "bfloat16" would be slower than float32 here: {reason}',
            hint='set train.precision = "float32"; bfloat16 needs a CPU with AMX or AVX512-BF16, or GPUs',
        )


def _check_packages() -> None:
    packages = check_packages()
    if packages.problem:
        raise PreflightError(f"{packages.found}: {packages.problem}", hint=packages.repair)


def _check_own_metrics(job: JobSpec) -> None:
    """Raises ModelError if a metric function of the user fails on a few samples: the run would only say so after its
    first evaluation."""
    functions = [text for text in job.evaluate.metrics if (one := metric_of(text)) is not None and one.kind == "own"]
    if functions and job.data.has_test and not job.emulate.enabled:
        with tempfile.TemporaryDirectory(prefix="elastichost-metrics-") as directory:
            check_functions(functions, Path(directory) / "trial")


def _check_loggers(job: JobSpec) -> None:
    """Raises PreflightError if the package of a logger is not installed: the run would only say so at its end."""
    for name in job.logging.to:
        package = PACKAGES.get(name, "")
        if package and importlib.util.find_spec(package) is None:
            raise PreflightError(
                f"logging.to names {name!r}, and the package {package} is not installed",
                hint=f"pip install 'elastichost[{name}]', or leave {name!r} out",
            )


def _describe_train(job: JobSpec, pinned: PinnedFiles) -> DatasetDescription:
    """Describes the training data. Raises DataError with every problem of all files, including the test files."""
    try:
        return open_reader(job, "train", pinned=pinned).describe()
    except SourceGoneError:
        raise
    except DataError:
        check_data(job, pinned=pinned)
        raise


def _more_than_host(setting: str | int, host_bytes: int) -> tuple[str, ...]:
    """The warning for a budget, stated as an amount, that is larger than the memory of the host."""
    if str(setting).rstrip().endswith("%") or memory_budget_bytes(setting, sys.maxsize) <= host_bytes:
        return ()
    return (f"resources.memory = {setting} is more than this host has: the budget is {mib(host_bytes)}",)


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
        visible = os.environ.get(VISIBLE)
        limited = "" if visible is None else f" ({VISIBLE} is {visible!r})"
        raise PreflightError(
            f"resources.gpus asks for {least} GPU{'s' * (least != 1)}, but this host offers {len(host.gpus)}{limited}",
            hint="run `elastichost doctor` to check the driver and the GPUs; resources.gpus = 0 trains on the CPU",
        )
    least_gpu = min(gpus, key=lambda gpu: gpu.memory_bytes, default=None)
    fraction = 1.0
    if least_gpu is not None:  # torch limits a process to a share of the whole GPU
        budget = memory_budget_bytes(resources.gpu_memory, least_gpu.memory_bytes)
        fraction = budget / least_gpu.memory_bytes * least_gpu.share
    found = begin(job, tables, train, cores, gpus, fraction, ended, elsewhere)
    return replace(found, warnings=(*found.warnings, *check_kinds(job, found.plan, gpus)))
