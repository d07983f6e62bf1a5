"""`plan JOB`: predicts the first plan of a run, the best plan that the tuner expects and what limits its speed, its
confidence, and the peak of memory, and times a training step in each precision. It learns nothing: it builds the model
in processes that then end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import typer
from rich.table import Table

from elastichost.cli.gpu_words import gpu_words
from elastichost.cli.options import JobArgument, Overrides
from elastichost.cli.output import AsJson, data_console, fact_lines, print_json, progress_console
from elastichost.cli.train.clusters import options as of_cluster
from elastichost.errors import ElastichostError
from elastichost.human_readable import count_words, duration_words

if TYPE_CHECKING:
    from elastichost.config.job import JobSpec
    from elastichost.supervisor.startup.preflight import Preparation
    from elastichost.tuner.memory.peak_memory import MemoryEstimate
    from elastichost.tuner.models.queueing import BatchParts
    from elastichost.tuner.plan_preview import PlanPreview
    from elastichost.tuner.policy.policy import SpeedForecast
    from elastichost.wire.facts import StepTime

__all__ = ["register"]

ROWS = 8


def register(app: typer.Typer) -> None:
    app.command("plan")(plan)


def plan(
    context: typer.Context,
    job: JobArgument,
    overrides: Overrides = [],  # noqa: B006 typer copies it
    as_json: AsJson = False,
    cluster: of_cluster.ForOption = None,
    output: of_cluster.OutputOption = "-",
    run_dir: of_cluster.RunDirOption = "",
    cores: of_cluster.CoresOption = 0,
    gpus: of_cluster.GpusOption = 0,
    nodes: of_cluster.NodesOption = 1,
    notice: of_cluster.NoticeOption = 0,
    program: of_cluster.ProgramOption = "",
    image: of_cluster.ImageOption = "",
    namespace: of_cluster.NamespaceOption = "",
    run_claim: of_cluster.ClaimOption = "",
    mount: of_cluster.MountOption = [],  # noqa: B006 typer copies it
    partition: of_cluster.PartitionOption = "",
    account: of_cluster.AccountOption = "",
    time: of_cluster.TimeOption = "",
    ray_address: of_cluster.RayAddress = "",
) -> None:
    """Predict a job's plan, speed and memory; write it for a cluster.

    That is: how many workers and parameter servers (PS) the tuner would choose, the confidence of that prediction, the
    second best plan, the times of input, computing, PS and link of a batch, the parts of the peak of memory, and how
    long the dense part of a training step takes in float32 and in bfloat16, and with other batch sizes. With --for,
    manifests of Kubernetes, a batch script of Slurm or a submission to Ray are written instead, sized by the plan and
    the estimate of memory."""
    from elastichost.cli.train.cluster_plan import write_cluster_plan
    from elastichost.cli.train.forecast import preview_of
    from elastichost.config.job import load_job

    asked = of_cluster.options_of(context.params)
    of_cluster.check_options(cluster, asked, as_json=as_json)
    spec = load_job(job, overrides)
    if cluster is not None:
        write_cluster_plan(job, spec, overrides, cluster, asked)
        return
    prepared, memory, times = _look_ahead(spec)
    for warning in prepared.warnings:
        progress_console().print(f"warning  {warning}", style="yellow", soft_wrap=True)
    found = preview_of(spec, prepared)
    if as_json:
        print_json(_facts(spec, prepared, found, memory, times))
        return
    out = data_console()
    lines = [*_lines(spec, prepared, found), ("peak memory", "\n".join(memory.words())), *_advice(spec, times)]
    out.print(fact_lines(lines))
    if found is not None:
        out.print(_table(found))


def _look_ahead(job: JobSpec) -> tuple[Preparation, MemoryEstimate, tuple[StepTime, ...]]:
    """Makes the checks of a start, estimates memory, and times training steps (none of an emulated model, and of one
    that fails). Raises the same errors as a start."""
    from elastichost.supervisor.launch.fork_server_client import LocalLauncher
    from elastichost.supervisor.launch.launcher import Entries
    from elastichost.supervisor.startup.memory_estimate import estimate_memory
    from elastichost.supervisor.startup.model_probe import time_steps
    from elastichost.supervisor.startup.preflight import preflight

    if job.emulate.enabled:
        prepared = preflight(job)
        return prepared, estimate_memory(job, prepared), ()
    entries = Entries()
    with LocalLauncher(entries.imports, entries.calls) as launcher:  # it imports libraries while preflight reads data
        prepared = preflight(job)
        progress_console().print("building the model to estimate its memory (takes a few seconds)", style="dim")
        memory = estimate_memory(job, prepared, launcher)
        progress_console().print("timing its training steps (takes a few seconds)", style="dim")
        try:
            return prepared, memory, time_steps(job, launcher).step_times
        except ElastichostError as error:  # a run may go well: the first samples may be bad ones
            progress_console().print(f"warning  no step was timed: {error}", style="yellow")
            return prepared, memory, ()


def _advice(job: JobSpec, times: tuple[StepTime, ...]) -> list[tuple[str, str]]:
    from elastichost.cli.train.step_advice import advice
    from elastichost.host.cpu_features import bfloat16_unit, present_cpu, refuses_bfloat16

    cpu = present_cpu()
    return advice(times, job.train.precision, job.train.batch_size, bfloat16_unit(cpu), refuses_bfloat16(cpu))


def _lines(job: JobSpec, prepared: Preparation, found: PlanPreview | None) -> list[tuple[str, str]]:
    samples = prepared.train.samples * job.train.epochs
    lines = [("job", job.job.name), ("samples", count_words(samples)), ("starts with", prepared.plan.reason)]
    if gpus := prepared.initial_plan.request.gpus:
        lines.append(("GPUs", "\n".join(gpu_words(prepared.plan, gpus))))
    if job.tuner.mode == "off":
        return [*lines, ("then", 'keeps this plan, because tuner.mode = "off"')]
    if prepared.initial_plan.request.features is None:
        return [*lines, ("then", "keeps this plan, because the job file fixes the number of processes")]
    if found is None:
        text = "no forecast: no similar job was measured before; the tuner measures this job during its first seconds"
        return [*lines, ("then", text)]
    best, second = found.forecasts[0], (*found.forecasts, None)[1]
    lines.append(("best", f"{best.configuration}: {_speed(best)}, {duration_words(samples / best.samples_per_s)}"))
    if second is not None:
        share = second.samples_per_s / best.samples_per_s - 1
        lines.append(("second best", f"{second.configuration}: {_speed(second)} ({share:+.0%})"))
    if found.parts is not None:
        lines.append(("a batch", _parts(found.parts)))
    many = len(found.measured)
    seen = f"{many} configuration{'s' * (many != 1)} of this job measured before" if many else "similar jobs only"
    sure = (
        f"{found.confidence:.0%}; {seen}; measurements determine {found.rank} of the speed model's "
        f"{found.parameters} parameters"
    )
    return [*lines, ("confidence", sure)]


def _parts(parts: BatchParts) -> str:
    """The times of the parts of a batch and their shares of its time; what takes most of it limits the speed."""
    known = {"input": parts.input_s, "computing": parts.compute_s, "PS": parts.servers_s, "link": parts.link_s}
    words = [
        f"{name} {1e3 * seconds:.3g} ms ({seconds / parts.batch_s:.0%})"
        for name, seconds in known.items()
        if seconds is not None
    ]
    missing = {"input": "input not measured", "link": "no link: workers and PS share memory"}
    words += [why for name, why in missing.items() if known[name] is None]
    most = max(known, key=lambda name: known[name] or 0.0)
    return f"{1e3 * parts.batch_s:.3g} ms, with parts that overlap: {', '.join(words)}; the limit is {most}"


def _speed(forecast: SpeedForecast) -> str:
    return (
        f"{count_words(round(forecast.samples_per_s))} samples/s "
        f"(90 % interval: {count_words(round(forecast.low))} to {count_words(round(forecast.high))})"
    )


def _table(found: PlanPreview) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("workers", "PS", "threads each", "expected samples/s", "90 % interval", ""):
        table.add_column(name, justify="left" if not name else "right")
    for one in found.forecasts[:ROWS]:
        c = one.configuration
        remark = "measured before" if c in found.measured else "extrapolated: nothing similar was measured"
        if c not in found.measured and not one.is_extrapolated:
            remark = ""
        interval = f"{count_words(round(one.low))} to {count_words(round(one.high))}"
        rate = count_words(round(one.samples_per_s))
        table.add_row(str(c.workers), str(c.servers), str(c.worker_cores), rate, interval, remark)
    if (more := len(found.forecasts) - ROWS) > 0:
        table.add_row("", "", "", f"and {more} more", "", "")
    return table


def _facts(
    job: JobSpec,
    prepared: Preparation,
    found: PlanPreview | None,
    memory: MemoryEstimate,
    times: tuple[StepTime, ...],
) -> dict[str, object]:
    return {
        "job": job.job.name,
        "samples": prepared.train.samples * job.train.epochs,
        "first_plan": msgspec.to_builtins(prepared.plan),
        "gpus": msgspec.to_builtins(prepared.initial_plan.request.gpus),
        "similar_jobs": len(prepared.initial_plan.request.records),
        "foresight": msgspec.to_builtins(found),
        "memory": {
            "host_bytes": memory.host_bytes,
            "gpu_bytes": memory.gpu_bytes,
            **msgspec.to_builtins(memory),
        },
        "step_times": [
            {"precision": time.precision, "samples": time.samples, "seconds": time.seconds} for time in times
        ],
    }
