"""What the supervisor and the agent of a host say to each other (`remote.framing`). First the supervisor's."""

from __future__ import annotations

import msgspec

from elastichost.arena.layout import ArenaLayout
from elastichost.host.cpu_features import CpuFeatures
from elastichost.plan import ProcessId
from elastichost.resources import HostInventory

__all__ = [
    "AgentOrder",
    "AgentWord",
    "ArenaMade",
    "ArenaRefused",
    "CheckpointKept",
    "End",
    "FilePiece",
    "FileWritten",
    "FilesSeen",
    "ForkServerEnded",
    "KeepCheckpoint",
    "Knock",
    "Knocked",
    "LibrariesReady",
    "Listen",
    "Listening",
    "LogText",
    "LookAtFiles",
    "MakeArena",
    "Measured",
    "Open",
    "Opened",
    "Ping",
    "Pong",
    "ProcessEnded",
    "ProcessRefused",
    "ProcessStarted",
    "ProcessUsage",
    "ReadFile",
    "ReceiveStream",
    "RemoveFile",
    "SendStream",
    "SignalProcess",
    "SourceFile",
    "SpawnProcess",
    "StreamReceived",
    "StreamSent",
    "Trouble",
    "Welcome",
    "WordsChanged",
    "WordsSet",
    "WriteFile",
]


class _Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag=True): ...


class SourceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that processes of the host need: its name in their run directory, and what is in it."""

    name: str
    data: bytes


class Open(_Said, frozen=True):
    """Begin: make the host's directories of this run, and have a fork server import. `host`: its number in the run."""

    run_id: str
    host: int
    files: tuple[SourceFile, ...]
    imports: tuple[str, ...]
    calls: tuple[str, ...]


class MakeArena(_Said, frozen=True):
    """Answered by ArenaMade or ArenaRefused."""

    layout: ArenaLayout


class SpawnProcess(_Said, frozen=True):
    """Answered by ProcessStarted or ProcessRefused; later comes ProcessEnded. arguments: JSON, secrets among them."""

    process: ProcessId
    entry: str
    arguments: bytes
    cores: tuple[int, ...]
    environment: dict[str, str]


class SignalProcess(_Said, frozen=True):
    process: ProcessId
    number: int


class WordsSet(_Said, frozen=True):
    """Of the memory board, what the supervisor writes: int32 positions and int64 values, little-endian."""

    positions: bytes
    values: bytes


class ReadFile(_Said, frozen=True):
    """A piece of a file below the run's directory, from this offset on. Answered by FilePiece."""

    number: int
    name: str
    offset: int


class WriteFile(_Said, frozen=True):
    """A piece of a file for the run's directory; the last one is answered by FileWritten."""

    name: str
    offset: int
    data: bytes
    is_last: bool


class RemoveFile(_Said, frozen=True):
    """Below the run's directory."""

    name: str


class Ping(_Said, frozen=True):
    number: int


class Listen(_Said, frozen=True):
    """Be reachable at this address for a moment, at any port. Answered by Listening."""

    address: str


class Knock(_Said, frozen=True):
    """See whether you reach this address. Answered by Knocked."""

    address: str
    port: int


class ReceiveStream(_Said, frozen=True):
    """Open a door at this address and count what comes in. Answered by Listening, then by StreamReceived."""

    address: str


class SendStream(_Said, frozen=True):
    """Send to this door for a moment. Answered by StreamSent."""

    address: str
    port: int


class LookAtFiles(_Said, frozen=True):
    """Absolute paths. Answered by FilesSeen."""

    paths: tuple[str, ...]


class KeepCheckpoint(_Said, frozen=True):
    """What has come into `incoming` becomes a checkpoint of this directory. Answered by CheckpointKept."""

    incoming: str
    directory: str
    count: int


class End(_Said, frozen=True):
    """End all processes, after so long by force, remove what is this run's, and exit."""

    grace_s: float


# --- agent -> supervisor ----------------------------------------------------------------------------------------------


class Welcome(_Said, frozen=True):
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


class Opened(_Said, frozen=True):
    """Directories of this run there."""

    arena: str
    sockets: str
    run_dir: str
    pid: int


class LibrariesReady(_Said, frozen=True):
    """The fork server has imported; `error` is "" or a traceback."""

    seconds: float
    threads: int
    error: str


class ForkServerEnded(_Said, frozen=True):
    """It was started again."""

    reason: str


class ArenaMade(_Said, frozen=True):
    pass


class ArenaRefused(_Said, frozen=True):
    """`error_type`: a class name of elastichost.errors."""

    error_type: str
    message: str
    hint: str


class ProcessStarted(_Said, frozen=True):
    process: ProcessId
    pid: int


class ProcessRefused(_Said, frozen=True):
    process: ProcessId
    reason: str


class ProcessEnded(_Said, frozen=True):
    """As `events.Exited`."""

    process: ProcessId
    pid: int
    code: int
    cpu_s: float


class LogText(_Said, frozen=True):
    """The end of what a process wrote; comes before its ProcessEnded."""

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


class Measured(_Said, frozen=True):
    """Once a second. own_private_bytes: of the agent and its fork server; the arena's are 0 while there is none."""

    processes: tuple[ProcessUsage, ...]
    own_private_bytes: int


class WordsChanged(_Said, frozen=True):
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


class Pong(_Said, frozen=True):
    number: int


class FilePiece(_Said, frozen=True):
    """`number`: of the ReadFile; `problem`: "" or why there is none."""

    number: int
    data: bytes
    is_last: bool
    problem: str = ""


class FileWritten(_Said, frozen=True):
    """`problem`: "" or why it could not be."""

    name: str
    problem: str


class Listening(_Said, frozen=True):
    """`problem`: "" or why it cannot."""

    port: int
    problem: str


class Knocked(_Said, frozen=True):
    """`problem`: "" or why it is not reached."""

    problem: str


class StreamReceived(_Said, frozen=True):
    """0: nothing came."""

    bytes_per_s: float


class StreamSent(_Said, frozen=True):
    """`problem`: "" or why it could not."""

    problem: str


class FilesSeen(_Said, frozen=True):
    """Of the same order; -1: it cannot be read there."""

    sizes_bytes: tuple[int, ...]


class CheckpointKept(_Said, frozen=True):
    """`problem`: "" or why it is not."""

    bytes: int
    problem: str


class Trouble(_Said, frozen=True):
    """The last word: the agent ends because of this."""

    error_type: str
    message: str
    hint: str


AgentOrder = (
    Open
    | MakeArena
    | SpawnProcess
    | SignalProcess
    | WordsSet
    | ReadFile
    | WriteFile
    | RemoveFile
    | Ping
    | Listen
    | Knock
    | ReceiveStream
    | SendStream
    | LookAtFiles
    | KeepCheckpoint
    | End
)
AgentWord = (
    Welcome
    | Opened
    | LibrariesReady
    | ForkServerEnded
    | ArenaMade
    | ArenaRefused
    | ProcessStarted
    | ProcessRefused
    | ProcessEnded
    | LogText
    | Measured
    | WordsChanged
    | FilePiece
    | FileWritten
    | Pong
    | Listening
    | Knocked
    | StreamReceived
    | StreamSent
    | FilesSeen
    | CheckpointKept
    | Trouble
)
