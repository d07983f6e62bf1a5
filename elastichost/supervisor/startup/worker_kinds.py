"""Whether CPU workers may train beside workers with a GPU, in one run, or in their place."""

from __future__ import annotations

from collections.abc import Sequence

from elastichost.config.job import JobSpec
from elastichost.errors import GpuLostError, PreflightError
from elastichost.host.cpu_features import present_cpu, refuses_bfloat16
from elastichost.plan import Plan
from elastichost.resources import GpuDevice
from elastichost.tuner.placement.gpu_workers import has_both_kinds, most_workers

__all__ = ["check_after_loss", "check_kinds", "why_no_cpu_workers"]


def why_no_cpu_workers(job: JobSpec) -> str:
    """Why a job on GPUs may have no CPU workers; "" if it may."""
    if job.resources.model_memory == "gpu":
        return 'with resources.model_memory = "gpu" the model is in memory of the GPU while its worker trains'
    if job.train.mode == "sync":
        return 'with train.mode = "sync" the bits do not depend on the workers, and a CPU rounds otherwise than a GPU'
    if job.train.precision == "bfloat16" and (reason := refuses_bfloat16(present_cpu())):
        return f'train.precision = "bfloat16" would be slower than float32 on this CPU: {reason}'
    return ""


def check_kinds(job: JobSpec, plan: Plan, gpus: Sequence[GpuDevice]) -> tuple[str, ...]:
    """Checks the kinds of the workers of a first plan, and returns warnings. gpus: of the job. Raises PreflightError if
    the plan has CPU workers beside workers with a GPU, and the job may not have them."""
    most = most_workers(job.resources.workers, len(gpus))
    if job.resources.model_memory == "gpu":
        _check_model_on_gpu(plan, most)
    if has_both_kinds(plan.workers) and (why := why_no_cpu_workers(job)):
        raise PreflightError(
            f"resources.workers asks for {len(plan.workers)} workers and there is one for each GPU, so "
            f"{len(plan.workers) - len(gpus)} would train on the CPU: {why}",
            hint=f"set resources.workers = {len(gpus)}, or resources.gpus = 0",
        )
    warnings = []
    if has_both_kinds(plan.workers) and job.train.mode == "bounded":
        warnings.append(
            'train.mode = "bounded": workers with a GPU wait for the CPU workers, which train fewer batches'
        )
    if unused := ", ".join(str(gpu.index) for gpu in gpus[most:]):
        warnings.append(f"GPU {unused} has no worker: resources.workers allows {most}, and a GPU has one worker")
    return tuple(warnings)


def _check_model_on_gpu(plan: Plan, most_workers: int) -> None:
    where = 'resources.model_memory = "gpu" keeps the model in memory of one GPU'
    if plan.access != "direct":
        raise PreflightError(
            f"{where}, but workers here do not use rows in place (access: {plan.access})",
            hint='set resources.model_memory = "host", or train on one machine with train.access = "direct"',
        )
    if [spec.gpu is not None for spec in plan.workers] != [True]:
        raise PreflightError(
            f"{where}, and the first plan has no worker with a GPU, or more than one",
            hint='set resources.gpus = 1 and resources.workers = 1, or resources.model_memory = "host"',
        )
    if most_workers != 1:
        raise PreflightError(
            f"{where}, which has one worker, and the run may have {most_workers} workers",
            hint='set resources.workers = 1, or resources.model_memory = "host"',
        )


def check_after_loss(job: JobSpec, plan: Plan, reason: str) -> None:
    """Checks a plan without lost GPUs. reason: which are lost. Raises GpuLostError if no worker of the plan has a GPU,
    and the job may not train on the CPU."""
    if all(spec.gpu is None for spec in plan.workers) and (why := why_no_cpu_workers(job)):
        raise GpuLostError(f"{reason}, no other is left, and {why}", hint="repair the GPU, then resume the run")
