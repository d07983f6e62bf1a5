"""What a dispatcher is started with: its options, its first jobs, and a feed that submits more while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from elastichost.config.job import JobSpec
from elastichost.dispatcher.facts import JobStatus
from elastichost.tuner.colocation.policies import ColocationSettings

__all__ = ["AskedOptions", "HostOptions", "JobFeed", "Submission"]


class AskedOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options of the command line as the user wrote them. `options.json` holds them, so that `resume` continues a
    batch with the same options."""

    policy: str
    policy_settings: tuple[str, ...] = ()
    memory: str = "80%"
    own_sizes: bool = False


@dataclass(frozen=True, slots=True)
class HostOptions:
    """The options of a dispatcher.

    directory: its directory. runs_under: the directory that contains `runs/`. memory_bytes: memory that all jobs
    together may use. ends_when_empty: it ends when all jobs have ended (a batch). keeps_queue: unfinished jobs are
    written to the directory for the next dispatcher there. keeps_sizes: each job keeps the size that it chooses alone.
    asked: written to the directory. goes_on: it continues a batch, of which some jobs may have ended already."""

    directory: Path
    runs_under: Path
    memory_bytes: int
    settings: ColocationSettings
    ends_when_empty: bool = False
    keeps_queue: bool = False
    keeps_sizes: bool = False
    asked: AskedOptions | None = None
    goes_on: bool = False


@dataclass(frozen=True, slots=True)
class Submission:
    """A job to train. working_directory: the directory from which its modules are imported. name: the wanted name in
    the queue; "": the name in the job file. weight: a job with weight 2 counts like two jobs with weight 1."""

    spec: JobSpec
    working_directory: Path
    name: str = ""
    weight: float = 1.0


class JobFeed(Protocol):
    """Gives a dispatcher jobs while it runs. The dispatcher calls it in each of its turns."""

    def take(self, jobs: tuple[JobStatus, ...]) -> Sequence[Submission]:
        """Takes the status of all jobs in the directory of the dispatcher, also of those that ended under an earlier
        one, and returns the jobs to submit. Each has a name that no job here has. A folder of that name is taken over:
        an earlier dispatcher was killed before the job was in its queue."""

    @property
    def is_over(self) -> bool:
        """Whether it will submit no more jobs."""
