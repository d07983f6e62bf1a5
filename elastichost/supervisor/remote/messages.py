"""What the supervisor and the agent of a host say to each other (`remote.framing`). First the supervisor's."""

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

# Of a file. At 10 Mbit/s a fifth of a second: what else is to be said does not wait longer.
PIECE_BYTES = 256 * 1024


class _Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True): ...


class SourceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that processes of the host need: its name in their run directory, and what is in it."""

    name: str
    data: bytes


class OpenMsg(_Said, frozen=True):
    """Begin: make the host's directories of this run, and have a fork server import. `host`: its number in the run."""

    run_id: str
    host: int
    files: tuple[SourceFile, ...]
    imports: tuple[str, ...]
    calls: tuple[str, ...]


class MakeArenaMsg(_Said, frozen=True):
    """Answered by ArenaMadeMsg or ArenaRefusedMsg."""

    layout: ArenaLayout


class SpawnProcessMsg(_Said, frozen=True):
    """Answered by ProcessStartedMsg or ProcessRefusedMsg; later comes ProcessEndedMsg. arguments: JSON, secrets among
    them."""

    process: ProcessId
    entry: str
    arguments: bytes
    cores: tuple[int, ...]
    environment: dict[str, str]


class SignalProcessMsg(_Said, frozen=True):
    process: ProcessId
    number: int


class WordsSetMsg(_Said, frozen=True):
    """Of the memory board, what the supervisor writes: int32 positions and int64 values, little-endian."""

    positions: bytes
    values: bytes


class ReadFileMsg(_Said, frozen=True):
    """A piece of a file below the run's directory, from this offset on. Answered by FilePieceMsg."""

    number: int
    name: str
    offset: int


class WriteFileMsg(_Said, frozen=True):
    """A piece of a file for the run's directory; the last one is answered by FileWrittenMsg."""

    name: str
    offset: int
    data: bytes
    is_last: bool


class RemoveFileMsg(_Said, frozen=True):
    """Below the run's directory."""

    name: str


class PingMsg(_Said, frozen=True):
    number: int


class ListenMsg(_Said, frozen=True):
    """Be reachable at this address for a moment, at any port. Answered by ListeningMsg."""

    address: str


class ProbePortMsg(_Said, frozen=True):
    """See whether you reach this address. Answered by PortProbedMsg."""

    address: str
    port: int


class ReceiveStreamMsg(_Said, frozen=True):
    """Open a door at this address and count what comes in. Answered by ListeningMsg, then by StreamReceivedMsg."""

    address: str


class SendStreamMsg(_Said, frozen=True):
    """Send to this door for a moment. Answered by StreamSentMsg."""

    address: str
    port: int


class StatFilesMsg(_Said, frozen=True):
    """Absolute paths. Answered by FilesStattedMsg."""

    paths: tuple[str, ...]


class KeepCheckpointMsg(_Said, frozen=True):
    """What has come into `incoming` becomes a checkpoint of this directory. Answered by CheckpointKeptMsg."""

    incoming: str
    directory: str
    count: int


class EndMsg(_Said, frozen=True):
    """End all processes, after so long by force, remove what is this run's, and exit."""

    grace_s: float


# --- agent -> supervisor ----------------------------------------------------------------------------------------------


class WelcomeMsg(_Said, frozen=True):
    """The first word. `versions`: of packages that matter; `address`, `caller`: where ssh came in, and from, or ""."""

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
    """Directories of this run there."""

    arena: str
    sockets: str
    run_dir: str
    pid: int


class LibrariesReadyMsg(_Said, frozen=True):
    """The fork server has imported; `error` is "" or a traceback."""

    seconds: float
    threads: int
    error: str


class ForkServerEndedMsg(_Said, frozen=True):
    """It was started again."""

    reason: str


class ArenaMadeMsg(_Said, frozen=True):
    pass


class ArenaRefusedMsg(_Said, frozen=True):
    """`error_type`: a class name of elastichost.errors."""

    error_type: str
    message: str
    hint: str


class ProcessStartedMsg(_Said, frozen=True):
    process: ProcessId
    pid: int


class ProcessRefusedMsg(_Said, frozen=True):
    process: ProcessId
    reason: str


class ProcessEndedMsg(_Said, frozen=True):
    """As `events.Exited`."""

    process: ProcessId
    pid: int
    code: int
    cpu_s: float


class LogTextMsg(_Said, frozen=True):
    """The end of what a process wrote; comes before its ProcessEndedMsg."""

    process: ProcessId
    text: bytes


class ProcessUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """As `meter.Usage`. cpu_s: since it began; state: the kernel's letter (`kernel_state`), "" if it has ended."""

    process: ProcessId
    cpu_s: float
    cpu_percent: float | None
    pss_bytes: int
    private_bytes: int
    rss_bytes: int
    context_switches: int
    state: str = ""


class MeasuredMsg(_Said, frozen=True):
    """Once a second. own_private_bytes: of the agent and its fork server; the arena's are 0 while there is none."""

    processes: tuple[ProcessUsage, ...]
    own_private_bytes: int


class WordsChangedMsg(_Said, frozen=True):
    """Of the arena: int32 positions and int64 values, little-endian, and what its files took when these were read."""

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
    number: int


class FilePieceMsg(_Said, frozen=True):
    """`number`: of the ReadFileMsg; `problem`: "" or why there is none."""

    number: int
    data: bytes
    is_last: bool
    problem: str = ""


class FileWrittenMsg(_Said, frozen=True):
    """`problem`: "" or why it could not be."""

    name: str
    problem: str


class ListeningMsg(_Said, frozen=True):
    """`problem`: "" or why it cannot."""

    port: int
    problem: str


class PortProbedMsg(_Said, frozen=True):
    """`problem`: "" or why it is not reached."""

    problem: str


class StreamReceivedMsg(_Said, frozen=True):
    """0: nothing came."""

    bytes_per_s: float


class StreamSentMsg(_Said, frozen=True):
    """`problem`: "" or why it could not."""

    problem: str


class FilesStattedMsg(_Said, frozen=True):
    """Of the same order; -1: it cannot be read there."""

    sizes_bytes: tuple[int, ...]


class CheckpointKeptMsg(_Said, frozen=True):
    """`problem`: "" or why it is not."""

    bytes: int
    problem: str


class TroubleMsg(_Said, frozen=True):
    """The last word: the agent ends because of this."""

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
