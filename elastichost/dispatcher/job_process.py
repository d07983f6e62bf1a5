"""The process of a job's supervisor on a host with many jobs. It runs the job as `elastichost run` would, on the part
of the host that it is lent.

It is forked from a process that has imported torch. It forks its own fork server in turn, so nothing is imported again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from elastichost.checkpoint.format import latest
from elastichost.checkpoint.places import CheckpointSource, checkpoint_source, read_identity
from elastichost.config.job import JobSpec, load_job
from elastichost.config.sections.tuner import FirstPlanSettings
from elastichost.dispatcher.child import leave_failure, leave_unforeseen, work_in
from elastichost.dispatcher.facts import Size
from elastichost.dispatcher.isolation.tiers import enter
from elastichost.errors import CheckpointError, ElastichostError
from elastichost.host.priority import give_way_oneself
from elastichost.resources import HostInventory
from elastichost.run_files import JOURNAL_FILE
from elastichost.supervisor import run_job
from elastichost.supervisor.launch.servers import fork_or_start

__all__ = ["JobArguments", "main"]


class JobArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of the process. job_file: the resolved job file. lent: the cores, memory and GPUs that the job may
    use. size: None: the supervisor chooses the size itself. resume: the run directory holds a run to continue. nice: 0
    to 19. doors: control files of the job's groups, for `isolation.tiers.enter`. log: the file of its output."""

    job_file: str
    folder: str
    working_directory: str
    run_dir: str
    lent: HostInventory
    size: Size | None = None
    resume: bool = False
    nice: int = 0
    doors: tuple[str, ...] = ()
    log: str = ""


def main(arguments_json: bytes) -> int:
    """The entry of the process. Returns the exit code that `elastichost run` would end with."""
    arguments = msgspec.json.decode(arguments_json, type=JobArguments)
    for problem in enter(arguments.doors):  # first, so that all processes that it starts are in the groups too
        print(f"the job is not fully isolated: {problem}", file=sys.stderr)
    try:
        work_in(arguments.working_directory)
        if arguments.nice:
            give_way_oneself(arguments.nice)
        return _train(fitted(load_job(Path(arguments.job_file), environ={}), arguments), arguments)
    except ElastichostError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return leave_failure(Path(arguments.folder), error)
    except Exception as error:
        leave_unforeseen(Path(arguments.folder), error, arguments.log)
        raise


def _train(job: JobSpec, arguments: JobArguments) -> int:
    """Trains the job and returns the exit code. If the run directory holds a run, it is continued. If there is neither
    an arena nor a checkpoint to continue from, the run starts from the beginning, and the old run directory is
    renamed."""
    run_dir, lent = Path(arguments.run_dir), arguments.lent
    if arguments.resume or (run_dir / JOURNAL_FILE).exists():
        try:
            return run_job(job, run_dir, None, run_dir, lent=lent, start_server=fork_or_start).exit_code
        except CheckpointError as error:
            identity = read_identity(run_dir)
            source = checkpoint_source(run_dir, identity, job) if identity is not None else CheckpointSource(())
            if latest(*source.places, verify=False, run_id=source.run_id) is not None:
                raise
            print(f"the run starts from the beginning: {error.message}", file=sys.stderr)
        aside = (run_dir.with_name(f"{run_dir.name}.{number}") for number in range(1, 1000))
        run_dir.rename(next(path for path in aside if not path.exists()))
    return run_job(job, run_dir, None, None, lent=lent, start_server=fork_or_start).exit_code


def fitted(job: JobSpec, arguments: JobArguments) -> JobSpec:
    """Returns the job with the size and the memory that it is lent. With a lent size its tuner proposes
    instead of acting, because the dispatcher decides the size; it knows what the other jobs need."""
    resources = job.resources.model_copy(update={"memory": arguments.lent.memory_bytes})
    job = job.model_copy(update={"resources": resources})
    size = arguments.size
    if size is None or job.tuner.mode == "off":
        return job
    first = FirstPlanSettings(workers=size.workers, servers=size.servers, worker_cores=size.worker_cores)
    mode = "propose" if job.tuner.mode == "act" else job.tuner.mode
    return job.model_copy(update={"tuner": job.tuner.model_copy(update={"first_plan": first, "mode": mode})})
