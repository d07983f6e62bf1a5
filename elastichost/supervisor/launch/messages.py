"""What the supervisor and the fork server say to each other: JSON over a SEQPACKET socket, one message a packet."""

from __future__ import annotations

import msgspec

__all__ = [
    "MAX_PACKET_BYTES",
    "Clean",
    "ForkReply",
    "ForkRequest",
    "Prepare",
    "Prepared",
    "Spawn",
    "SpawnRefused",
    "Spawned",
]

MAX_PACKET_BYTES = 128 * 1024


class _Packet(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    pass


class Prepare(_Packet, frozen=True):
    """Import `modules`, call `calls` ("module:function", no arguments), freeze the garbage collector."""

    modules: tuple[str, ...]
    calls: tuple[str, ...]


class Clean(_Packet, frozen=True):
    """What to remove, and nothing else, when the supervisor is gone: `directories` at once, each of `kept` after
    `keep_s`, if it still is the supervisor's then. Replaces what was said before."""

    directories: tuple[str, ...]
    kept: tuple[str, ...] = ()
    keep_s: float = 0.0


class Spawn(_Packet, frozen=True):
    """Fork a process that calls `entry` ("module:function") with `arguments` (JSON text). The log file's descriptor
    rides along. `environment` is added to the fork server's."""

    request: int
    name: str
    entry: str
    arguments: str
    cores: tuple[int, ...]
    environment: dict[str, str]
    oom_score_adjustment: int = 300


class Prepared(_Packet, frozen=True):
    """`error` is "" or a traceback; `threads` should be 1: only then is a fork of everything that runs."""

    seconds: float
    threads: int
    error: str = ""


class Spawned(_Packet, frozen=True):
    request: int
    pid: int


class SpawnRefused(_Packet, frozen=True):
    request: int
    error: str


ForkRequest = Prepare | Clean | Spawn
ForkReply = Prepared | Spawned | SpawnRefused
