"""The sections [checkpoint] and [supervision] of the job file: checkpoints, and the supervision of processes."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pydantic import Field, model_validator

from elastichost.config.base import Section, refuse
from elastichost.config.values import CountFromOne, NotNegative, Positive

__all__ = ["CheckpointSection", "SupervisionSection"]


class CheckpointSection(Section):
    """`[checkpoint]`: how often checkpoints are written, where, and how many are kept. One is always written at the end
    of a run."""

    every_s: NotNegative = Field(
        default=60.0,
        description="Shortest time in seconds from one checkpoint to the next. 0: only at the end of the run.",
    )
    keep: CountFromOne = Field(default=2, description="Number of checkpoints that are kept; older ones are deleted.")
    keep_best: str = Field(
        default="",
        description='A figure of the test data, such as "auc". When an evaluation finds a better value, a checkpoint '
        "of these weights is written, and the newest such one is kept beside the `keep` newest. No worker trains "
        'during an evaluation then. "": none.',
    )
    directory: str = Field(
        default="",
        description="Directory of the checkpoints, relative to the job file. Each run has its own subdirectory in "
        'it. "": in the run directory.',
    )
    mirror: str = Field(
        default="",
        description="Directory to which every checkpoint is also copied: a directory on another disk, relative to the "
        'job file, or "HOST:/directory" on another machine of the run. "": no copy.',
    )

    @property
    def mirror_host(self) -> tuple[str, str] | None:
        """(host, directory) of a mirror on another machine; None: there is no mirror, or it is on this machine."""
        found = re.fullmatch(r"([\w.-]+):(/.*)", self.mirror)
        return (found[1], found[2]) if found is not None else None

    @property
    def mirror_path(self) -> Path | None:
        """The directory of a mirror on this machine; None: there is no mirror, or it is on another machine."""
        return Path(self.mirror).absolute() if self.mirror and self.mirror_host is None else None

    @model_validator(mode="after")
    def _mirror_is_another(self) -> CheckpointSection:
        if re.match(r"[^/:]*@[^/:]*:", self.mirror):
            raise refuse('"HOST:/directory" with the name of a machine of the run, without a user')
        if "://" in self.mirror:
            raise refuse('a directory, or "HOST:/directory"; checkpoints are not copied to a store')
        here = self.mirror_path
        if here is not None and self.directory and os.path.realpath(here) == os.path.realpath(self.directory):
            raise refuse("a checkpoint.mirror that differs from checkpoint.directory")
        return self


class SupervisionSection(Section):
    """`[supervision]`: after which times the supervisor kills or replaces a process, and how long shared memory
    outlives the supervisor."""

    hang_timeout_s: Positive = Field(
        default=10.0,
        description="Seconds without progress after which the supervisor kills a process as hung. It waits longer "
        "after long silences (four times the longest) and before the first batch (three times as long). It waits 3 s "
        "for a stopped process, and for one that sleeps for more than four times its longest silence.",
    )
    start_timeout_s: Positive = Field(
        default=120.0,
        description="Time in seconds within which the model must be built, and a process must be ready after its "
        "start.",
    )
    keep_arena_s: NotNegative = Field(
        default=4.0,
        description="Time in seconds for which the rows stay in shared memory after the supervisor was killed. A "
        "`resume` within it loses nothing; a later one starts from a checkpoint. With several hosts, rows are not "
        "kept.",
    )
    straggler_s: NotNegative = Field(
        default=15.0,
        description="Time in seconds after which a worker that is slower than the others is reported (below 75 % of "
        "their median speed) or replaced (below 40 %). 0: never.",
    )
