"""The sections of the job file that say how a run is kept: checkpoints, and the watch over its processes."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pydantic import model_validator

from elastichost.config.schema import CountFromOne, NotNegative, Positive, Section, refuse

__all__ = ["CheckpointSection", "SupervisionSection"]


class CheckpointSection(Section):
    """`[checkpoint]`: every_s 0: only at the end; directory "": in the run directory; mirror: a directory of another
    disk, or "HOST:/directory" of another machine of the run, to which every checkpoint is copied as well."""

    every_s: NotNegative = 60.0
    keep: CountFromOne = 2
    directory: str = ""
    mirror: str = ""

    @property
    def mirror_host(self) -> tuple[str, str] | None:
        """(host, directory) of a mirror on another machine; None: it is none, or here."""
        found = re.fullmatch(r"([\w.-]+):(/.*)", self.mirror)
        return (found[1], found[2]) if found is not None else None

    @property
    def mirror_path(self) -> Path | None:
        """Of a mirror on this machine."""
        return Path(self.mirror).absolute() if self.mirror and self.mirror_host is None else None

    @model_validator(mode="after")
    def _mirror_is_another(self) -> CheckpointSection:
        here = self.mirror_path
        if here is not None and self.directory and os.path.realpath(here) == os.path.realpath(self.directory):
            raise refuse("a mirror that is not checkpoint.directory itself")
        return self


class SupervisionSection(Section):
    """`[supervision]`: when a silent process counts as hung; how long rows outlive a killed supervisor (`resume`);
    after how long a worker that is far slower than the others is replaced, 0: never."""

    hang_timeout_s: Positive = 10.0
    start_timeout_s: Positive = 120.0
    keep_arena_s: NotNegative = 4.0
    straggler_s: NotNegative = 15.0
