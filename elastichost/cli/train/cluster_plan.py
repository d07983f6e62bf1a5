"""`plan JOB --for CLUSTER`: plans the job for a node of the cluster, and writes what starts it there."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from elastichost.atomic_write import write_atomically
from elastichost.cli.output import progress_console
from elastichost.cli.train.clusters.options import ClusterName, ClusterOptions
from elastichost.errors import ConfigError, PreflightError
from elastichost.human_readable import mib, plural
from elastichost.resources import GpuDevice, HostInventory, bounds_of, memory_budget_bytes
from elastichost.run_files import RESOLVED_JOB_FILE

if TYPE_CHECKING:
    from elastichost.cli.train.clusters.destination import Destination
    from elastichost.cli.train.clusters.request import NodeRequest
    from elastichost.config.job import JobSpec
    from elastichost.supervisor.startup.preflight import Preparation
    from elastichost.tuner.memory.peak_memory import MemoryEstimate
    from elastichost.tuner.plan_preview import PlanPreview

__all__ = ["write_cluster_plan"]

NODE_MEMORY_BYTES = 1 << 43  # of a node whose memory is not known: it limits nothing, and the request follows
GPU_BYTES = 16 << 30  # of a GPU that this machine does not have. Assumed: it changes no number of processes
JOB_IN_IMAGE = "/elastichost/job/job.toml"  # where the template for Kubernetes mounts it
MODULE = ("-m", "elastichost")
JOB_FILE = "job.toml"


def write_cluster_plan(
    path: Path, job: JobSpec, overrides: list[str], cluster: ClusterName, options: ClusterOptions
) -> None:
    """Writes the text to options.output. Raises the errors of a start, and ConfigError."""
    from elastichost.cli.train.clusters.manifest import manifest
    from elastichost.cli.train.clusters.request import node_request

    node, gpus = _node(job, options)
    prepared, preview, cores, estimate = _planned(job, node, options)
    request = node_request(
        estimate,
        cores=cores,
        gpus=gpus,
        nodes=options.nodes,
        asked_bytes=_asked_bytes(job),
        checkpoints_kept=job.checkpoint.keep,
        training_s=_training_s(job, prepared, preview),
        notice_s=options.notice or None,
    )
    there = _for_node(job, request)
    destination = _destination(job, cluster, options)
    words, files = _words(path, there, overrides, cluster, request, options.mount)
    remark = f"job {job.job.name}; {_sized(request)}"
    text = manifest(cluster.value, job.job.name, words, request, destination, files, remark)
    _write(text, options.output)
    progress_console().print(_sized(request), style="dim", soft_wrap=True)


def _write(text: str, output: str) -> None:
    if output == "-":
        typer.echo(text, nl=False)
        return
    try:
        write_atomically(Path(output), text.encode())
    except OSError as error:
        raise PreflightError(f"{output} cannot be written: {error.strerror}", hint="name another --output") from error


# --- the size of a node -----------------------------------------------------------------------------------------------


def _node(job: JobSpec, options: ClusterOptions) -> tuple[HostInventory, int]:
    """A node of the cluster as an inventory, and its number of GPUs. Raises ConfigError if that is not known."""
    from elastichost.host.inventory import inventory

    here = inventory()
    _, gpus = bounds_of(job.resources.gpus, options.gpus or len(here.gpus))
    gpus = options.gpus or gpus
    if options.gpus and job.resources.gpus == 0:
        raise ConfigError("--gpus: the job asks for none", hint="set resources.gpus")
    if job.resources.gpus == "auto" and not gpus:
        raise ConfigError('resources.gpus = "auto": this machine has none to plan with', hint="add --gpus N")
    virtual = tuple(GpuDevice(index, "of a node", GPU_BYTES) for index in range(len(here.gpus), gpus))
    cores = tuple(range(options.cores)) or here.cores
    return HostInventory(cores, NODE_MEMORY_BYTES, (*here.gpus, *virtual)[:gpus]), gpus


def _planned(
    job: JobSpec, node: HostInventory, options: ClusterOptions
) -> tuple[Preparation, PlanPreview | None, int, MemoryEstimate]:
    """The plan of the job on the node, the forecast, the cores to ask for, and the estimate of a node's memory."""
    from elastichost.cli.train.forecast import preview_of
    from elastichost.supervisor.launch.fork_server_client import LocalLauncher
    from elastichost.supervisor.launch.launcher import EMULATED, Entries
    from elastichost.supervisor.startup.memory_estimate import memory_facts
    from elastichost.supervisor.startup.preflight import preflight
    from elastichost.tuner.memory.peak_memory import estimate_peak

    entries = EMULATED if job.emulate.enabled else Entries()
    with LocalLauncher(entries.imports, entries.calls) as launcher:
        prepared = preflight(job, spare_bytes=NODE_MEMORY_BYTES, lent=node)  # the arena lies on the node, not here
        for warning in prepared.warnings:
            progress_console().print(f"warning  {warning}", style="yellow", soft_wrap=True)
        progress_console().print("building the model to estimate its memory (takes a few seconds)", style="dim")
        facts = memory_facts(job, prepared, launcher)
    preview = preview_of(job, prepared)
    cores = options.cores or _cores_of(job, prepared, preview)
    workers = max(len(prepared.plan.workers), _most_workers(job, prepared, cores))
    facts = msgspec.structs.replace(facts, workers=workers)
    if options.nodes > 1:  # each node holds its part of the rows, and serves it to the others
        part = {name: tuple(count / options.nodes for count in getattr(facts, name)) for name in ("rows", "ids")}
        facts = msgspec.structs.replace(facts, access="served", **part)
    estimate = estimate_peak(facts)
    if _asked_bytes(job) is None:  # words of the arena are as many as the memory of the node allows, so that counts
        estimate = estimate_peak(msgspec.structs.replace(facts, limit_bytes=2 * estimate.host_bytes))
    return prepared, preview, cores, estimate


def _cores_of(job: JobSpec, prepared: Preparation, preview: PlanPreview | None) -> int:
    """A core for each thread of a worker and for each PS of the best plan; all cores that the job may use where the
    tuner has no forecast yet and will look for the best plan."""
    usable = len(prepared.cores)
    if preview is not None:
        best = preview.forecasts[0].configuration
        return min(usable, best.workers * best.worker_cores + best.servers)
    if prepared.initial_plan.request.bounds is not None and job.tuner.mode != "off":
        return usable
    plan = prepared.plan
    return min(usable, sum(spec.threads for spec in plan.workers) + len(plan.servers))


def _most_workers(job: JobSpec, prepared: Preparation, cores: int) -> int:
    """The number of workers for which there must be memory: the tuner may use one for each core."""
    bounds = prepared.initial_plan.request.bounds
    if bounds is None or job.tuner.mode == "off":
        return len(prepared.plan.workers)
    return min(bounds.most.workers, cores)


def _asked_bytes(job: JobSpec) -> int | None:
    """`resources.memory` as an amount; None: it is a share of a node's memory."""
    setting = job.resources.memory
    if isinstance(setting, str) and setting.rstrip().endswith("%"):
        return None
    return memory_budget_bytes(setting, NODE_MEMORY_BYTES)


def _training_s(job: JobSpec, prepared: Preparation, preview: PlanPreview | None) -> float | None:
    """The predicted time of the job; None: no similar job was measured."""
    if preview is None:
        return None
    return prepared.train.samples * job.train.epochs / max(preview.forecasts[0].samples_per_s, 1e-9)


def _sized(request: NodeRequest) -> str:
    """What is asked of each node, in words."""
    time = f", {plural(request.minutes, 'minute')} at most" if request.minutes else ""
    gpus = f", {plural(request.gpus, 'GPU')}" if request.gpus else ""
    return (
        f"{plural(request.nodes, 'node')} with {plural(request.cores, 'core')}, {mib(request.memory_bytes)} of memory "
        f"(of them {mib(request.arena_bytes)} for shared memory){gpus}{time}"
    )


# --- the job there ----------------------------------------------------------------------------------------------------


def _for_node(job: JobSpec, request: NodeRequest) -> JobSpec:
    """The job with the resources that it asks for. A job on a node without limits of its own sees the whole node."""
    resources = job.resources.model_copy(update=_resources(request))
    return job.model_copy(update={"resources": resources})


def _resources(request: NodeRequest) -> dict[str, int]:
    return {"cores": request.cores, "memory": request.budget_bytes, "gpus": request.gpus}


def _destination(job: JobSpec, cluster: ClusterName, options: ClusterOptions) -> Destination:
    from elastichost.cli.train.clusters.destination import Destination, parse_mount

    is_kubernetes = cluster is ClusterName.KUBERNETES
    default = f"/runs/{job.job.name}" if is_kubernetes else f"runs/{job.job.name}"
    run_dir = Path(options.run_dir or default)
    if is_kubernetes and (not run_dir.is_absolute() or len(run_dir.parts) < 3):
        raise ConfigError(
            f"--run-dir {run_dir}: a pod needs an absolute path below the directory where the volume is mounted",
            hint="for example --run-dir /runs/NAME, which mounts the volume at /runs",
        )
    return Destination(
        run_dir=str(run_dir if is_kubernetes else run_dir.absolute()),
        working_directory=str(Path.cwd()),
        program=options.program
        or ("elastichost" if is_kubernetes else f"{shlex.quote(sys.executable)} -m elastichost"),
        programs="" if is_kubernetes or options.program else str(Path(sys.executable).parent),
        image=options.image,
        namespace=options.namespace,
        run_claim=options.run_claim,
        mounts=tuple(parse_mount(text) for text in options.mount),
        partition=options.partition,
        account=options.account,
        time_limit=options.time,
        ray_address=options.ray_address,
    )


def _words(
    path: Path,
    there: JobSpec,
    overrides: list[str],
    cluster: ClusterName,
    request: NodeRequest,
    mounts: list[str],
) -> tuple[list[str], Mapping[str, str]]:
    """The words after `elastichost run`, and the files that the job needs there. Nodes of Slurm see the files of this
    machine; the others get the resolved job and the source of the model, the metric functions and the reader."""
    from elastichost.cli.train.clusters.destination import parse_mount
    from elastichost.cli.train.clusters.source_text import source_text
    from elastichost.supervisor.remote.job_bundle import files_for_others

    if cluster is ClusterName.SLURM:
        given = [*overrides, *(f"resources.{name}={value}" for name, value in _resources(request).items())]
        return [str(path.absolute()), *(word for one in given for word in ("--set", one))], {}
    bundle = {one.name: source_text(one.name, one.data) for one in files_for_others(there, Path.cwd())}
    files = {JOB_FILE: bundle.pop(RESOLVED_JOB_FILE), **bundle}
    if cluster is ClusterName.KUBERNETES:
        _warn_of_unmounted(there, [parse_mount(text).path for text in mounts])
        return [JOB_IN_IMAGE], files
    return [f"../{JOB_FILE}" if len(files) > 1 else JOB_FILE], files


def _warn_of_unmounted(job: JobSpec, mounted: list[str]) -> None:
    """Names the first data file that no volume of the pod holds. The image may hold it; an address needs no volume."""
    from elastichost.datasets.files.stamps import is_url

    for path in (*job.data.train, *job.data.test):
        if not is_url(path) and not any(Path(path).is_relative_to(place) for place in mounted):
            text = f"warning  {path}: no --mount CLAIM:PATH contains it; the image must have it at this path"
            progress_console().print(text, style="yellow", soft_wrap=True)
            return
