"""The state that all parts of a supervisor share, and the small effects they all need: send, note, count."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import Buffer

from elastichost.clock import Clock
from elastichost.config.job import JobSpec
from elastichost.errors import ProtocolError
from elastichost.host.procfs import KernelState, kernel_state
from elastichost.metrics import FrontierPoint, InputStatus
from elastichost.plan import Plan, ProcessId
from elastichost.runs.decisions import Recorder
from elastichost.runs.directory import RunDirectory
from elastichost.runs.events import AnyEvent, HostLost, ProcessUnreachable
from elastichost.runs.journal import Journal
from elastichost.runs.observer import RunObserver
from elastichost.runs.result import LostHost, RollBack
from elastichost.supervisor.core.core_assignment import capacity_of
from elastichost.supervisor.core.disk_space import DiskSpace
from elastichost.supervisor.core.fleet import Fleet, ProcessRecord
from elastichost.supervisor.core.reconciler import Death, Limits
from elastichost.supervisor.launch.events import AgentLost
from elastichost.supervisor.launch.fork_server_client import LocalLauncher
from elastichost.supervisor.launch.host_paths import Place
from elastichost.supervisor.launch.launcher import Entries
from elastichost.supervisor.remote.hosts import Machines
from elastichost.supervisor.remote.keyring import Keyring
from elastichost.supervisor.remote.multi_host_launcher import HostsLauncher
from elastichost.supervisor.remote.remote_launcher import RemoteLauncher
from elastichost.tuner.cluster.proposals import Proposal
from elastichost.wire.commands import CommandServer
from elastichost.wire.control import ControlMessage
from elastichost.wire.facts import ServerAddress
from elastichost.wire.security.keys import gate_at
from elastichost.wire.sockets import ControlServer

__all__ = ["RunContext", "exit_cause", "host_cause"]


@dataclass(slots=True)
class RunContext:
    """One run of one job, shared by all parts of its supervisor.

    directory: the run directory. sockets, arena, other_arenas (host number -> arena; for another machine the replica
    here): directories that are removed when the run ends. machines, keyring: None without other machines. elsewhere:
    host number -> directories and addresses, for each other machine in use.
    """

    job: JobSpec
    run_id: str
    job_id: int
    entries: Entries
    clock: Clock
    directory: RunDirectory
    sockets: Path
    arena: Path
    journal: Journal
    observer: RunObserver
    launcher: LocalLauncher | HostsLauncher
    control: ControlServer
    commands: CommandServer
    plan: Plan  # written by `controllers.plan` alone
    limits: Limits
    fleet: Fleet = field(default_factory=Fleet)
    recorder: Recorder = field(default_factory=Recorder)
    deaths: list[Death] = field(default_factory=list)
    size: tuple[int, int] = (0, 0)  # workers and PS of the newest plan that trains
    restarts: int = 0
    torn_batches: int = 0
    started_from: str = ""  # the checkpoint of another run that this run began from
    roll_backs: list[RollBack] = field(default_factory=list)
    lost_hosts: list[LostHost] = field(default_factory=list)
    last_decision: str = ""
    other_arenas: dict[int, Path] = field(default_factory=dict)
    frontier: tuple[FrontierPoint, ...] = ()  # predicted by the tuner's model
    input: InputStatus | None = None  # None: no worker trains yet
    proposal: Proposal | None = None  # of the tuner; open until it is granted or stale
    is_measured: bool = True  # False: the tuner has not measured the present plan yet
    shares_host: bool = False  # other runs use this host too: a dispatcher started this one
    machines: Machines | None = None
    keyring: Keyring | None = None
    elsewhere: dict[int, Place] = field(default_factory=dict)
    space: DiskSpace = field(default_factory=DiskSpace)
    lost_source: str = ""  # address of the training data that a worker has given up
    supervisor_pid: int = field(default_factory=os.getpid)
    supervisor_number: int = 1  # counts the supervisors of the run: each resume starts one
    cause: str = ""  # cause of journal lines written now (`JournalLine.cause`)
    plan_cause: str = ""  # cause of the newest plan
    _causes: int = 0

    @property
    def control_address(self) -> str:
        return f"ipc://{self.sockets}/control"

    @property
    def arenas(self) -> tuple[Path, ...]:
        """The arena directories of all hosts."""
        return (self.arena, *self.other_arenas.values())

    @property
    def cores_elsewhere(self) -> dict[int, tuple[int, ...]]:
        """Host number -> cores, for each other machine in use."""
        return {host: place.cores for host, place in self.elsewhere.items()}

    def uses(self, host: int) -> bool:
        """Whether the run uses this host; False for a lost machine."""
        return host == 0 or self.machines is None or host in self.elsewhere

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Bandwidth of the slowest link to a host in use; 0.0: none was measured."""
        links = self.machines.links if self.machines is not None else {}
        speeds = (link.slowest_bytes_per_s for host, link in links.items() if host in self.elsewhere)
        return min((speed for speed in speeds if speed > 0), default=0.0)

    @property
    def hosts(self) -> int:
        """Number of hosts, lost ones included: every host number is below it."""
        return 1 + max(self.other_arenas, default=0)

    def hear(self, host: int, launcher: RemoteLauncher) -> None:
        """Adds a machine: its launcher can start processes from now on."""
        assert isinstance(self.launcher, HostsLauncher)
        self.launcher.there[host] = launcher

    def lose(self, event: AgentLost) -> None:
        """Records that a machine is lost. The run does not use it any more."""
        self.note(HostLost(event.host, event.name, event.reason), host_cause(event.host))
        self.elsewhere.pop(event.host, None)

    def detach_host(self, host: int) -> None:
        """Removes the launcher of a machine: its events are ignored from now on."""
        assert isinstance(self.launcher, HostsLauncher)
        self.launcher.there.pop(host, None)

    def capacity(self, cores_here: int) -> tuple[int, ...]:
        """Cores of each host, 0 for a lost one. (): there are no other machines, so all workers run on host 0."""
        return capacity_of(cores_here, self.cores_elsewhere, self.hosts) if self.machines is not None else ()

    def all_cores(self, cores_here: int) -> int:
        """Number of cores of all hosts that workers may run on."""
        return sum(self.capacity(cores_here)) or cores_here

    def cpu_elsewhere_s(self, record: ProcessRecord) -> float | None:
        """CPU seconds of a process on another machine, 0 while none are reported. None: it runs on this machine."""
        if self.machines is None or record.spec.host not in self.elsewhere:
            return None
        usage = self.machines.usage(record.spec.host, record.process)
        return usage.cpu_s if usage is not None else 0.0

    def kernel_state(self, record: ProcessRecord) -> KernelState | None:
        """Kernel state of a process; up to a second old for one on another machine. None: it has ended, or nothing was
        reported yet."""
        if self.machines is None or record.spec.host not in self.elsewhere:
            return kernel_state(record.pid)
        usage = self.machines.usage(record.spec.host, record.process)
        return KernelState(usage.state, round(100 * usage.cpu_s)) if usage is not None and usage.state else None

    def place(self, host: int) -> Place:
        """Directories and addresses that processes of this host use."""
        if host in self.elsewhere:
            return self.elsewhere[host]
        gate = gate_at(self.machines.address) if self.machines is not None else ""
        arena = self.other_arenas.get(host, self.arena)
        paths = (str(arena), str(self.sockets), str(self.directory.path))
        return Place(*paths, self.control_address, gate)

    def place_elsewhere(self, process: ProcessId) -> Place | None:
        """The same for a process on another machine. None: it runs on this machine, or it is not the newest
        incarnation."""
        record = self.fleet.find(process)
        return self.elsewhere.get(record.spec.host) if record is not None else None

    def address_of(self, record: ProcessRecord | None, process: ProcessId) -> ServerAddress:
        """The addresses of a PS: for processes of its own host and for others."""
        if record is None:
            return ServerAddress(process.index, process.incarnation, "")
        key = self.keyring.public(process) if self.keyring is not None else ""
        return ServerAddress(process.index, process.incarnation, record.address, record.spec.host, record.outer, key)

    def now_s(self) -> float:
        return self.clock.now_s()

    def send(self, process: ProcessId, message: ControlMessage, frames: Sequence[Buffer] = ()) -> bool:
        """Returns False, with an event, when that incarnation cannot be reached: it is ending, and its exit event
        follows."""
        try:
            self.control.send(process, message, frames)
        except ProtocolError as error:
            self.note(ProcessUnreachable(process, type(message).__name__, str(error)))
            return False
        return True

    def send_all(self, processes: Iterable[ProcessId], message: ControlMessage, frames: Sequence[Buffer] = ()) -> None:
        for process in processes:
            self.send(process, message, frames)

    def note(self, event: AnyEvent, cause: str | None = None) -> None:
        """Writes an event to the journal, which passes it to the observer. cause None: `self.cause`."""
        self.journal.write(event, self.cause if cause is None else cause)

    def new_cause(self, kind: str) -> str:
        """A cause that no line of this run's journal has yet: "balance-1.4" is the fourth one of supervisor 1."""
        self._causes += 1
        return f"{kind}-{self.supervisor_number}.{self._causes}"

    @contextmanager
    def caused_by(self, cause: str) -> Iterator[None]:
        """Journal lines that are written within this context have this cause."""
        before, self.cause = self.cause, cause
        try:
            yield
        finally:
            self.cause = before


def host_cause(host: int) -> str:
    """The cause of all events that follow from the loss of a machine."""
    return f"host-lost-{host}"


def exit_cause(process: ProcessId) -> str:
    """The cause of all events that follow from the end of an incarnation. It depends on the process id alone."""
    return f"exit-{process}"
