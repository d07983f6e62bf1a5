"""What a dispatcher is given to train: submissions, and a feed that submits more while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from elastichost.config.job import JobSpec
from elastichost.dispatcher.facts import JobStatus

__all__ = ["JobFeed", "Submission"]


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
