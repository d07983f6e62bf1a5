"""What the supervisor and the fork server say to each other: JSON over a SEQPACKET socket, one message a packet."""

from __future__ import annotations

import msgspec

__all__ = [
    "MAX_PACKET_BYTES",
    "CleanMsg",
    "ForkReply",
    "ForkRequest",
    "PrepareMsg",
    "PreparedMsg",
    "SpawnMsg",
    "SpawnRefusedMsg",
    "SpawnedMsg",
]

MAX_PACKET_BYTES = 128 * 1024


class _Packet(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True):
    pass


class PrepareMsg(_Packet, frozen=True):
    """Import `modules`, call `calls` ("module:function", no arguments), freeze the garbage collector."""

    modules: tuple[str, ...]
    calls: tuple[str, ...]


class CleanMsg(_Packet, frozen=True):
    """What to remove, and nothing else, when the supervisor is gone: `directories` at once, each of `kept` after
    `keep_s`, if it still is the supervisor's then. Replaces what was said before."""

    directories: tuple[str, ...]
    kept: tuple[str, ...] = ()
    keep_s: float = 0.0


class SpawnMsg(_Packet, frozen=True):
    """Fork a process that calls `entry` ("module:function") with `arguments` (JSON text). The log file's descriptor
    rides along. `environment` is added to the fork server's."""

    request: int
    name: str
    entry: str
    arguments: str
    cores: tuple[int, ...]
    environment: dict[str, str]
    oom_score_adjustment: int = 300


class PreparedMsg(_Packet, frozen=True):
    """`error` is "" or a traceback; `threads` should be 1: only then is a fork of everything that runs."""

    seconds: float
    threads: int
    error: str = ""


class SpawnedMsg(_Packet, frozen=True):
    request: int
    pid: int


class SpawnRefusedMsg(_Packet, frozen=True):
    request: int
    error: str


ForkRequest = PrepareMsg | CleanMsg | SpawnMsg
ForkReply = PreparedMsg | SpawnedMsg | SpawnRefusedMsg
