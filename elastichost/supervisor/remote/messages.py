"""What the supervisor and the agent of a host send to each other (`remote.framing`): first the messages of the
supervisor, then those of the agent."""

from __future__ import annotations

import msgspec

from elastichost.arena.layout import ArenaLayout
from elastichost.host.cpu_features import CpuFeatures
from elastichost.plan import ProcessId
from elastichost.resources import HostInventory

__all__ = [
    "PIECE_BYTES",
    "AgentOrder",
    "AgentWord",
    "ArenaMadeMsg",
    "ArenaRefusedMsg",
    "CheckpointKeptMsg",
    "EndMsg",
    "FilePieceMsg",
    "FileWrittenMsg",
    "FilesStattedMsg",
    "ForkServerEndedMsg",
    "KeepCheckpointMsg",
    "LibrariesReadyMsg",
    "ListenMsg",
    "ListeningMsg",
    "LogRefusedMsg",
    "LogTextMsg",
    "MakeArenaMsg",
    "MeasuredMsg",
    "OpenMsg",
    "OpenedMsg",
    "PingMsg",
    "PongMsg",
    "PortProbedMsg",
    "ProbePortMsg",
    "ProcessEndedMsg",
    "ProcessRefusedMsg",
    "ProcessStartedMsg",
    "ProcessUsage",
    "ReadFileMsg",
    "ReceiveStreamMsg",
    "RemoveFileMsg",
    "SendStreamMsg",
    "SignalProcessMsg",
    "SourceFile",
    "SpawnProcessMsg",
    "StatFilesMsg",
    "StreamReceivedMsg",
    "StreamSentMsg",
    "TroubleMsg",
    "WelcomeMsg",
    "WordsChangedMsg",
    "WordsSetMsg",
    "WriteFileMsg",
]

# Bytes of a file in one message. At 10 Mbit/s a piece takes 0.2 s, which is as long as other messages wait for it.
PIECE_BYTES = 256 * 1024


class _Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True): ...


class SourceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that processes of the host need. name: its path in the run's directory there; data: its content."""

    name: str
    data: bytes


class OpenMsg(_Said, frozen=True):
    """Make the directories of this run with these files, and start a fork server. Answered by OpenedMsg, and later by
    LibrariesReadyMsg. host: number of the host in the run. imports, calls: modules that the fork server imports, and
    functions that it calls, before it forks."""

    run_id: str
    host: int
    files: tuple[SourceFile, ...]
    imports: tuple[str, ...]
    calls: tuple[str, ...]


class MakeArenaMsg(_Said, frozen=True):
    """Make the arena; it replaces an earlier one. Answered by ArenaMadeMsg or ArenaRefusedMsg."""

    layout: ArenaLayout


class SpawnProcessMsg(_Said, frozen=True):
    """Start a process. Answered by ProcessStartedMsg, and by ProcessEndedMsg when it ends, or by ProcessRefusedMsg.
    arguments: JSON, which contains secret keys. cores: () for all. environment: added to that of the fork server."""

    process: ProcessId
    entry: str
    arguments: bytes
    cores: tuple[int, ...]
    environment: dict[str, str]


class SignalProcessMsg(_Said, frozen=True):
    """Send the signal `number` to a process."""

    process: ProcessId
    number: int


class WordsSetMsg(_Said, frozen=True):
    """Set these words of the memory board, which the supervisor writes: int32 positions and int64 values,
    little-endian."""

    positions: bytes
    values: bytes


class ReadFileMsg(_Said, frozen=True):
    """Read a piece of a file below the run's directory, from this offset on. Answered by FilePieceMsg with the same
    number."""

    number: int
    name: str
    offset: int


class WriteFileMsg(_Said, frozen=True):
    """Write a piece of a file below the run's directory. The last piece, and one that fails, is answered by
    FileWrittenMsg."""

    name: str
    offset: int
    data: bytes
    is_last: bool


class RemoveFileMsg(_Said, frozen=True):
    """Remove a file below the run's directory. Not answered."""

    name: str


class PingMsg(_Said, frozen=True):
    """Show that the supervisor is alive. Answered by PongMsg with the same number."""

    number: int


class ListenMsg(_Said, frozen=True):
    """Listen at any free port of this address, until the next such order. Answered by ListeningMsg."""

    address: str


class ProbePortMsg(_Said, frozen=True):
    """Try to connect to this address. Answered by PortProbedMsg."""

    address: str
    port: int


class ReceiveStreamMsg(_Said, frozen=True):
    """Listen at this address, and measure the speed of the stream that comes. Answered by ListeningMsg, then by
    StreamReceivedMsg unless it cannot listen."""

    address: str


class SendStreamMsg(_Said, frozen=True):
    """Send a stream to this address for a moment. Answered by StreamSentMsg."""

    address: str
    port: int


class StatFilesMsg(_Said, frozen=True):
    """Look up the sizes of the files at these absolute paths. Answered by FilesStattedMsg."""

    paths: tuple[str, ...]


class KeepCheckpointMsg(_Said, frozen=True):
    """Keep the checkpoint in `incoming` (below the run's directory) in the run directory `directory`, which keeps the
    newest `count` checkpoints. Answered by CheckpointKeptMsg."""

    incoming: str
    directory: str
    count: int


class EndMsg(_Said, frozen=True):
    """End all processes with SIGKILL, remove the directories of this run, and exit."""


# --- agent -> supervisor ----------------------------------------------------------------------------------------------


class WelcomeMsg(_Said, frozen=True):
    """The agent's first message. versions: of Python and the main packages. arena_root: the parent directory of arenas.
    address, caller: the addresses of this host and of the supervisor's machine in the ssh connection; "" without
    ssh."""

    name: str
    versions: dict[str, str]
    inventory: HostInventory
    arena_root: str
    arena_free_bytes: int
    time_s: float  # since 1970
    address: str
    caller: str
    cpu: CpuFeatures


class OpenedMsg(_Said, frozen=True):
    """The directories of this run are made. pid: of the agent."""

    arena: str
    sockets: str
    run_dir: str
    pid: int


class LibrariesReadyMsg(_Said, frozen=True):
    """The fork server has imported, as `launch.messages.PreparedMsg` says."""

    seconds: float
    threads: int
    error: str


class ForkServerEndedMsg(_Said, frozen=True):
    """The fork server ended unexpectedly, and another one was started."""

    reason: str


class ArenaMadeMsg(_Said, frozen=True):
    """The arena is made."""


class ArenaRefusedMsg(_Said, frozen=True):
    """The arena could not be made. error_type: the name of a class of elastichost.errors."""

    error_type: str
    message: str
    hint: str


class ProcessStartedMsg(_Said, frozen=True):
    """As `launch.events.Started`."""

    process: ProcessId
    pid: int


class ProcessRefusedMsg(_Said, frozen=True):
    """As `launch.events.StartFailed`."""

    process: ProcessId
    reason: str


class ProcessEndedMsg(_Said, frozen=True):
    """As `launch.events.Exited`."""

    process: ProcessId
    pid: int
    code: int
    cpu_s: float


class LogRefusedMsg(_Said, frozen=True):
    """As `launch.events.LogNotOpened`. Sent before the ProcessStartedMsg."""

    process: ProcessId
    log: str
    error: str


class LogTextMsg(_Said, frozen=True):
    """The end of the log of a process, at most 64 KiB. Sent before its ProcessEndedMsg."""

    process: ProcessId
    text: bytes


class ProcessUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """As `host.process_meter.Usage`. cpu_s: CPU seconds since the process began. state: the letter of its kernel state
    (`host.procfs.kernel_state`), "" if it has ended."""

    process: ProcessId
    cpu_s: float
    cpu_percent: float | None
    pss_bytes: int
    private_bytes: int
    rss_bytes: int
    context_switches: int
    state: str = ""


class MeasuredMsg(_Said, frozen=True):
    """Measurements of the host's processes, once a second. own_private_bytes: private memory of the agent and its fork
    server."""

    processes: tuple[ProcessUsage, ...]
    own_private_bytes: int


class WordsChangedMsg(_Said, frozen=True):
    """Words of the arena that have changed since the last such message: int32 positions, int64 values, little-endian.

    header: of the bucket headers. board: of the memory board, those that PS write. begun: of the watermarks.
    used_bytes, index_bytes, free_bytes: of the arena's files, of its index file, and free in their file system,
    measured after the words were read.
    """

    used_bytes: int
    index_bytes: int
    free_bytes: int
    header_positions: bytes
    header_values: bytes
    board_positions: bytes
    board_values: bytes
    begun_positions: bytes
    begun_values: bytes


class PongMsg(_Said, frozen=True):
    """The answer to a PingMsg."""

    number: int


class FilePieceMsg(_Said, frozen=True):
    """A piece of a file. number: of the ReadFileMsg. problem: "", or why it could not be read."""

    number: int
    data: bytes
    is_last: bool
    problem: str = ""


class FileWrittenMsg(_Said, frozen=True):
    """A file is written. problem: "", or why it could not be written."""

    name: str
    problem: str


class ListeningMsg(_Said, frozen=True):
    """The agent listens at a port. problem: "", or why it cannot listen; the port is 0 then."""

    port: int
    problem: str


class PortProbedMsg(_Said, frozen=True):
    """The agent has tried to connect. problem: "", or why it could not."""

    problem: str


class StreamReceivedMsg(_Said, frozen=True):
    """The speed of the stream that came; 0: none came, or too little of it."""

    bytes_per_s: float


class StreamSentMsg(_Said, frozen=True):
    """A stream was sent. problem: "", or why it could not be sent."""

    problem: str


class FilesStattedMsg(_Said, frozen=True):
    """The sizes of the files of a StatFilesMsg, in the same order; -1: the file cannot be read."""

    sizes_bytes: tuple[int, ...]


class CheckpointKeptMsg(_Said, frozen=True):
    """A checkpoint of this size is kept. problem: "", or why it is not kept."""

    bytes: int
    problem: str


class TroubleMsg(_Said, frozen=True):
    """The agent's last message: the error because of which it ends."""

    error_type: str
    message: str
    hint: str


AgentOrder = (
    OpenMsg
    | MakeArenaMsg
    | SpawnProcessMsg
    | SignalProcessMsg
    | WordsSetMsg
    | ReadFileMsg
    | WriteFileMsg
    | RemoveFileMsg
    | PingMsg
    | ListenMsg
    | ProbePortMsg
    | ReceiveStreamMsg
    | SendStreamMsg
    | StatFilesMsg
    | KeepCheckpointMsg
    | EndMsg
)
AgentWord = (
    WelcomeMsg
    | OpenedMsg
    | LibrariesReadyMsg
    | ForkServerEndedMsg
    | ArenaMadeMsg
    | ArenaRefusedMsg
    | ProcessStartedMsg
    | ProcessRefusedMsg
    | ProcessEndedMsg
    | LogRefusedMsg
    | LogTextMsg
    | MeasuredMsg
    | WordsChangedMsg
    | FilePieceMsg
    | FileWrittenMsg
    | PongMsg
    | ListeningMsg
    | PortProbedMsg
    | StreamReceivedMsg
    | StreamSentMsg
    | FilesStattedMsg
    | CheckpointKeptMsg
    | TroubleMsg
)
