"""The sections of the job file that say how a run is kept: checkpoints, and the watch over its processes."""

from __future__ import annotations

from pydantic import model_validator

from elastichost.config_schema import CountFromOne, NotNegative, Positive, Section, refuse

__all__ = ["CheckpointSection", "SupervisionSection"]


class CheckpointSection(Section):
    """`[checkpoint]`: every_s 0: only at the end; directory "": in the run directory; mirror: a directory of another
    disk, to which every checkpoint is copied as well."""

    every_s: NotNegative = 60.0
    keep: CountFromOne = 2
    directory: str = ""
    mirror: str = ""

    @model_validator(mode="after")
    def _mirror_is_another(self) -> CheckpointSection:
        if self.mirror and self.mirror == self.directory:
            raise refuse("a mirror that is not checkpoint.directory itself")
        return self


class SupervisionSection(Section):
    """`[supervision]`: when a silent process counts as hung; how long rows outlive a killed supervisor (`resume`);
    after how long a worker that is far slower than the others is replaced, 0: never."""

    hang_timeout_s: Positive = 10.0
    start_timeout_s: Positive = 120.0
    keep_arena_s: NotNegative = 4.0
    straggler_s: NotNegative = 15.0
