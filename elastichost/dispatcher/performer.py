"""Performs the effects that the core returns: starts, resizes, limits and signals the processes of jobs."""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec

from elastichost.clock import Clock
from elastichost.dispatcher.admission_probe import ExamineArguments
from elastichost.dispatcher.core.core import Core
from elastichost.dispatcher.core.effects import (
    ConfineJob,
    ExamineJob,
    FreezeJob,
    KillJob,
    LimitJob,
    ReniceJob,
    ResizeJob,
    StartJob,
    StopJob,
    ThawJob,
)
from elastichost.dispatcher.facts import FAILURE_FILE, JOB_FILE, JobObservation
from elastichost.dispatcher.isolation.limits import JobLimits
from elastichost.dispatcher.isolation.process_meter import HostProcesses
from elastichost.dispatcher.isolation.tiers import Isolation
from elastichost.dispatcher.job_process import JobArguments
from elastichost.dispatcher.processes import JobProcesses, send
from elastichost.dispatcher.resource_leases import Lender
from elastichost.host.priority import give_way
from elastichost.resources import HostInventory
from elastichost.run_files import RESOLVED_JOB_FILE

__all__ = ["Performer"]

Deed = ExamineJob | StartJob | ResizeJob | LimitJob | ConfineJob | ReniceJob | FreezeJob | ThawJob | StopJob | KillJob


class Performer:
    """Performs effects. keeps_sizes: each job keeps the size that it chooses alone. seen: job -> newest observation,
    which the loop updates."""

    def __init__(
        self,
        core: Core,
        crew: JobProcesses,
        lender: Lender,
        isolation: Isolation,
        inventory: HostInventory,
        keeps_sizes: bool,
        clock: Clock,
    ) -> None:
        self._core, self._crew, self._lender, self._isolation = core, crew, lender, isolation
        self._inventory, self._keeps_sizes, self._clock = inventory, keeps_sizes, clock
        self._later: dict[str, float] = {}  # job -> when its examination starts
        self._limits: dict[str, JobLimits] = {}
        self.seen: dict[str, JobObservation] = {}
        self._reniced: dict[int, int] = {}  # pid -> nice value that could not be set yet

    def ended(self, job: str) -> int:
        """Forgets a job whose supervisor has ended, and releases its groups. Returns the number of its processes that
        the kernel killed at the memory limit of its cgroup."""
        self.seen.pop(job, None)
        self._lender.forget(job)
        self._limits.pop(job, None)
        used = self._isolation.usage(job)
        self._isolation.release(job)
        return used.oom_kills if used is not None else 0

    def turn(self) -> None:
        """Starts delayed examinations, and tries again to set nice values. Call it every turn."""
        for job in [job for job, at_s in self._later.items() if at_s <= self._clock.now_s()]:
            del self._later[job]
            self._examine(job)
        self._reniced = {pid: nice for pid, nice in self._reniced.items() if not give_way(pid, nice)}

    def perform(self, effect: Deed) -> tuple[str, ...]:
        """Performs one effect. Returns sentences about what failed; the job continues in any case."""
        match effect:
            case ExamineJob(job, after_s):
                if after_s > 0:
                    self._later[job] = self._clock.now_s() + after_s
                else:
                    self._examine(job)
            case StartJob():
                return self._spawn(effect)
            case ResizeJob():
                return self._resize(effect)
            case LimitJob(job, charged_bytes, threads):
                return self._fence(job, memory_bytes=charged_bytes, threads=threads)
            case ConfineJob(job, cores):
                return self._fence(job, cores=cores)
            case ReniceJob(job, nice):
                self._reniced.update(dict.fromkeys(self.pids(job), nice))  # `turn` sets them
                return self._fence(job, nice=nice)
            case FreezeJob(job):
                send(self.pids(job), signal.SIGSTOP)  # the supervisor first, so that it sees no process as hung
            case ThawJob(job):
                send(self.pids(job)[::-1], signal.SIGCONT)
            case StopJob(job):
                send(self.pids(job)[::-1], signal.SIGCONT)
                self._crew.signal(job, signal.SIGTERM)
            case KillJob(job):
                self._later.pop(job, None)
                self._crew.end_examination(job)
                self._crew.signal(job, signal.SIGKILL)
        return ()

    def pids(self, job: str) -> tuple[int, ...]:
        """All processes of a job, the supervisor first. If its supervisor has ended: those of the last observation."""
        root, seen = self._crew.pids.get(job), self.seen.get(job)
        tree = HostProcesses().tree(root) if root is not None else None
        if tree is not None:
            return tree.pids
        return seen.pids if seen is not None else ()

    def _examine(self, job: str) -> None:
        folder = self._core.folder(job)
        arguments = ExamineArguments(
            job=job,
            folder=str(folder),
            working_directory=self._core.request(job).working_directory,
            host=self._inventory,
            keeps_sizes=self._keeps_sizes,
            log=str(folder / "check.log"),
        )
        (folder / FAILURE_FILE).unlink(missing_ok=True)
        self._crew.examine(job, msgspec.json.encode(arguments), Path(arguments.log))

    def _spawn(self, spawn: StartJob) -> tuple[str, ...]:
        folder, lent = self._core.folder(spawn.job), spawn.lent
        request = self._core.request(spawn.job)
        gpus = tuple(
            msgspec.structs.replace(gpu, memory_bytes=lent.gpu_memory_bytes, total_bytes=gpu.memory_bytes)
            for gpu in self._inventory.gpus
            if gpu.index == lent.gpu
        )
        self._limits[spawn.job] = limits = JobLimits(
            spawn.charged_bytes, spawn.threads, spawn.nice, self._fewer(lent.cores)
        )
        problems = self._isolation.admit(spawn.job, None, limits)
        arguments = JobArguments(
            job_file=str(folder / JOB_FILE),
            folder=str(folder),
            working_directory=request.working_directory,
            run_dir=request.run_dir,
            lent=HostInventory(lent.cores, lent.memory_bytes, gpus),
            size=spawn.size,
            resume=spawn.resume and (Path(request.run_dir) / RESOLVED_JOB_FILE).exists(),
            nice=spawn.nice,
            doors=self._isolation.doors(spawn.job),
            log=str(folder / f"supervisor.{spawn.incarnation}.log"),
        )
        (folder / FAILURE_FILE).unlink(missing_ok=True)
        self._crew.start(spawn.job, spawn.incarnation, arguments, Path(arguments.log))
        return problems

    def _resize(self, resize: ResizeJob) -> tuple[str, ...]:
        problems = self._fence(resize.job, cores=resize.cores) if resize.cores is not None else ()
        seen = self.seen.get(resize.job)
        self._lender.lend(seen.status.commands if seen is not None and seen.status is not None else "", resize)
        return problems

    def _fewer(self, cores: tuple[int, ...]) -> tuple[int, ...]:
        """The cores for a job's limits; () stands for all cores of the host."""
        return () if cores == self._inventory.cores else cores

    def _fence(
        self,
        job: str,
        *,
        nice: int | None = None,
        cores: tuple[int, ...] | None = None,
        memory_bytes: int | None = None,
        threads: int | None = None,
    ) -> tuple[str, ...]:
        """Changes the limits of a job's groups. None: unchanged. Returns sentences about what failed."""
        before = self._limits.get(job)
        if before is None:
            return ()
        self._limits[job] = limits = JobLimits(
            memory_bytes=before.memory_bytes if memory_bytes is None else memory_bytes,
            threads=before.threads if threads is None else threads,
            nice=before.nice if nice is None else nice,
            cores=before.cores if cores is None else self._fewer(cores),
        )
        return self._isolation.change(job, limits) if limits != before else ()
