"""The options of a dispatcher."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from elastichost.tuner.colocation.policies import ColocationSettings

__all__ = ["AskedOptions", "HostOptions"]


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
