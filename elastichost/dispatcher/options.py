"""How a dispatcher is to work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from elastichost.tuner.colocation.policies import ColocationSettings

__all__ = ["AskedOptions", "HostOptions"]


class AskedOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the user asked for, in the words of the command line: `options.json`, with which a batch goes on."""

    policy: str
    policy_settings: tuple[str, ...] = ()
    memory: str = "80%"
    own_sizes: bool = False


@dataclass(frozen=True, slots=True)
class HostOptions:
    """directory: of the host; runs_under: the folder in which `runs/` is. memory_bytes: for all jobs together.
    ends_when_empty: a batch, not a host that waits for jobs; keeps_queue: jobs that are not over are for the next
    dispatcher in this directory. keeps_sizes: jobs run in the size that they would choose alone. asked: kept in the
    directory; goes_on: with a batch of which jobs may be over already."""

    directory: Path
    runs_under: Path
    memory_bytes: int
    settings: ColocationSettings
    ends_when_empty: bool = False
    keeps_queue: bool = False
    keeps_sizes: bool = False
    asked: AskedOptions | None = None
    goes_on: bool = False
