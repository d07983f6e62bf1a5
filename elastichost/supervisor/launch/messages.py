"""What the supervisor and the fork server send to each other: JSON over a SEQPACKET socket, one message a packet."""

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
    """Import `modules`, call each of `calls` ("module:function", without arguments), freeze the garbage collector.
    Answered by PreparedMsg."""

    modules: tuple[str, ...]
    calls: tuple[str, ...]


class CleanMsg(_Packet, frozen=True):
    """Remove this when the supervisor's end of the socket closes: `directories` at once, and each of `kept` after
    `keep_s` seconds if the supervisor still owns it then. Replaces an earlier CleanMsg. Not answered."""

    directories: tuple[str, ...]
    kept: tuple[str, ...] = ()
    keep_s: float = 0.0


class SpawnMsg(_Packet, frozen=True):
    """Fork a process that calls `entry` ("module:function") with `arguments` (JSON text). Answered by SpawnedMsg or
    SpawnRefusedMsg with the same `request`. The packet carries the descriptor of the log file. cores: () for all.
    environment: variables added to those of the fork server."""

    request: int
    name: str
    entry: str
    arguments: str
    cores: tuple[int, ...]
    environment: dict[str, str]
    oom_score_adjustment: int = 300


class PreparedMsg(_Packet, frozen=True):
    """The imports are done, after `seconds`. error: "" or a traceback. threads: of the fork server; it should be 1,
    because a fork copies only the calling thread."""

    seconds: float
    threads: int
    error: str = ""


class SpawnedMsg(_Packet, frozen=True):
    """The process was forked."""

    request: int
    pid: int


class SpawnRefusedMsg(_Packet, frozen=True):
    """The process could not be forked. number: errno of the error; 0: it was none of the operating system."""

    request: int
    error: str
    number: int = 0


ForkRequest = PrepareMsg | CleanMsg | SpawnMsg
ForkReply = PreparedMsg | SpawnedMsg | SpawnRefusedMsg
