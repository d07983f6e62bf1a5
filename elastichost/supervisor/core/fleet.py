"""The newest incarnation of each process of a run, folded from launch events and messages of the processes. Pure.

Rules:

1. A name ("worker-0") has one record, that of its newest incarnation. A newer incarnation replaces the record.
2. A message or event of an older incarnation finds no record, so it has no effect.
3. The state of a record changes only by a transition of `lifecycle`.

Theory of operation. The controllers call `request` when they ask for a process, `apply` for each launch event or
message that changes its state, and `heartbeat` for signs of progress. `observed` gives the facts on which the
reconciler decides, `ProcessRecord.status` those that a screen shows. When a process is killed, its record stays, in
state `failed` or `exited`, until the next incarnation replaces it: the incarnation number must never repeat. A resumed
run restores these numbers from the journal (`remember`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import Literal, cast

from elastichost.metrics import ProcessStatus
from elastichost.plan import ProcessId, ProcessSpec, Role
from elastichost.supervisor.core.lifecycle import LIVE, LifecycleEvent, State, next_state
from elastichost.supervisor.core.liveness import Signs
from elastichost.supervisor.core.reconciler import Failure, ObservedProcess
from elastichost.wire.control import HeartbeatMsg
from elastichost.wire.facts import WAITS_FOR_SOURCE, StepSample

__all__ = ["Fleet", "ProcessRecord"]

WINDOW_S = 5.0  # heartbeats are kept this long
MOST_BEATS = 128  # bound of the window; a process that behaves sends ten in this time


@dataclass(slots=True)
class ProcessRecord:
    """The newest incarnation of one process."""

    process: ProcessId
    spec: ProcessSpec
    since_s: float
    moved_s: float
    state: State = State.REQUESTED
    pid: int = 0
    address: str = ""
    outer: str = ""  # its address for processes of other machines
    failure: Failure | None = None
    progress: int = -1
    doing: str = ""
    no_space: str = ""  # why it cannot commit: its disk is full
    gpu_memory_bytes: int = 0
    asked: ProcessSpec | None = None  # cores and threads of the last RepinMsg, until the process confirms them
    kill_kind: Literal["exit", "hang", "start", "slow", "unwanted"] = "exit"
    kill_reason: str = ""
    cause: str = ""  # the cause of its start (`JournalLine.cause`)
    kill_at_s: float | None = None  # when SIGKILL is due; None: it was sent, or none is due
    signs: Signs = field(default_factory=Signs)
    window: deque[tuple[float, StepSample]] = field(default_factory=lambda: deque(maxlen=MOST_BEATS))

    @property
    def is_live(self) -> bool:
        return self.state in LIVE

    @property
    def can_work(self) -> bool:
        return self.state in (State.READY, State.RUNNING)

    @property
    def samples_per_s(self) -> float:
        """Rate over the last WINDOW_S of wall time."""
        seconds = sum(sample.seconds for _, sample in self.window)
        return sum(sample.samples for _, sample in self.window) / seconds if seconds else 0.0

    @property
    def losses(self) -> tuple[float, int]:
        """(sum of the loss, number of samples) over the last WINDOW_S."""
        return sum(s.loss_sum for _, s in self.window), sum(s.samples for _, s in self.window)

    @property
    def wait_fraction(self) -> float:
        """Share of the last WINDOW_S in which a PS was idle, or a worker waited for input or peers; 0 to 1."""
        seconds = sum(sample.seconds for _, sample in self.window)
        if not seconds:
            return 0.0
        if self.process.role == "server":
            return max(0.0, 1 - sum(sample.busy_s for _, sample in self.window) / seconds)
        return min(1.0, sum(sample.wait_input_s + sample.wait_peers_s for _, sample in self.window) / seconds)

    @property
    def input_wait_fraction(self) -> float:
        """Share of the last WINDOW_S in which a worker waited for input; 0 to 1."""
        seconds = sum(sample.seconds for _, sample in self.window)
        return min(1.0, sum(sample.wait_input_s for _, sample in self.window) / seconds) if seconds else 0.0

    @property
    def message_bytes_per_s(self) -> float:
        """Bytes that it sent and received in messages, per second of the last WINDOW_S."""
        seconds = sum(sample.seconds for _, sample in self.window)
        return sum(s.bytes_sent + s.bytes_received for _, s in self.window) / seconds if seconds else 0.0

    @property
    def virtual_cpu_percent(self) -> float | None:
        """CPU use of an emulated process in percent of one core, from its cost model; None: the process is real."""
        known = [(sample.cpu_s, sample.seconds) for _, sample in self.window if sample.cpu_s is not None]
        seconds = sum(of_one for _, of_one in known)
        return 100 * sum(cpu_s for cpu_s, _ in known) / seconds if seconds else None

    @property
    def compute_ms(self) -> float:
        """Mean time of forward and backward per batch over the last WINDOW_S."""
        steps = sum(sample.steps for _, sample in self.window)
        return 1000 * sum(sample.compute_s for _, sample in self.window) / steps if steps else 0.0

    def status(self) -> ProcessStatus:
        """Status of the process, without the CPU and memory that the process meter adds."""
        state = self.doing if self.state == State.RUNNING and self.doing else self.state.value
        return ProcessStatus(
            role=self.process.role,
            index=self.process.index,
            incarnation=self.process.incarnation,
            pid=self.pid or None,
            state=state,
            cores=self.spec.cores,
            samples_per_s=self.samples_per_s,
            wait_fraction=self.wait_fraction,
            compute_ms=self.compute_ms,
            gpu_memory_bytes=self.gpu_memory_bytes,
            input_wait_fraction=self.input_wait_fraction,
            message_bytes_per_s=self.message_bytes_per_s,
        )


class Fleet:
    """The records of all processes, by name."""

    def __init__(self) -> None:
        self._records: dict[str, ProcessRecord] = {}

    def request(self, process: ProcessId, spec: ProcessSpec, now_s: float) -> ProcessRecord:
        """Adds an incarnation that the launcher is asked to start; it replaces the one before."""
        record = ProcessRecord(process, spec, now_s, now_s)
        self._records[process.name] = record
        return record

    def remember(self, process: ProcessId, now_s: float) -> None:
        """Adds an incarnation that has ended, so that the next one gets a higher number."""
        spec = ProcessSpec(role=cast(Role, process.role), index=process.index, cores=(), threads=1)
        self.request(process, spec, now_s).state = State.EXITED

    def find(self, process: ProcessId | None) -> ProcessRecord | None:
        """The record of this incarnation; None when it is not the newest one, so that its messages are dropped."""
        record = self._records.get(process.name) if process is not None else None
        return record if record is not None and record.process == process else None

    def named(self, role: str, index: int) -> ProcessRecord | None:
        return self._records.get(f"{role}-{index}")

    def apply(self, record: ProcessRecord, event: LifecycleEvent, now_s: float) -> None:
        """Moves a process to its next state. Raises IllegalTransitionError."""
        state = next_state(str(record.process), record.state, event)
        if state != record.state:
            record.state, record.since_s, record.moved_s = state, now_s, now_s

    def heartbeat(self, record: ProcessRecord, beat: HeartbeatMsg, now_s: float) -> None:
        """Takes the figures of a heartbeat, and its progress as a sign of life. The start of a worker that waits for
        its source takes as long as the source does: its time to start begins anew."""
        if record.state == State.CONNECTED and beat.state == WAITS_FOR_SOURCE:
            record.since_s = now_s
        if beat.progress > record.progress:
            has_worked, longest_s = record.signs.has_worked, record.signs.longest_s
            longest_s = max(longest_s, now_s - record.moved_s) if has_worked else 0.0
            has_worked = has_worked or beat.sample.steps > 0 or beat.sample.requests > 0
            record.signs = Signs(longest_s=longest_s, has_worked=has_worked)
            record.progress, record.moved_s = beat.progress, now_s
        record.doing, record.gpu_memory_bytes, record.no_space = beat.state, beat.gpu_memory_bytes, beat.no_space
        record.window.append((now_s, beat.sample))
        while now_s - record.window[0][0] > WINDOW_S:
            record.window.popleft()

    def repinned(self, record: ProcessRecord, cores: tuple[int, ...]) -> bool:
        """The process has confirmed these cores. Returns False when it has since been sent other cores, or was sent
        none."""
        if record.asked is None or record.asked.cores != cores:
            return False
        record.spec, record.asked = record.asked, None
        return True

    def extend_deadlines(self, seconds: float) -> None:
        """Shifts all deadlines: silence does not count while the supervisor itself stood still, for the processes may
        have stood still too."""
        for record in self:
            record.since_s += seconds
            record.moved_s += seconds

    def __iter__(self) -> Iterator[ProcessRecord]:
        return iter(self._records.values())

    def live(self, role: str) -> tuple[ProcessRecord, ...]:
        return tuple(record for record in self if record.process.role == role and record.is_live)

    def working(self, role: str) -> tuple[ProcessRecord, ...]:
        """Processes of a role that are ready or running, sorted by index."""
        records = [record for record in self if record.process.role == role and record.can_work]
        return tuple(sorted(records, key=lambda record: record.process.index))

    def ending(self, role: str) -> int:
        """Number of live processes of a role that reported an error or are being killed."""
        return sum(record.state in (State.REPORTING, State.KILLING) for record in self.live(role))

    def observed(self) -> tuple[ObservedProcess, ...]:
        return tuple(
            ObservedProcess(
                record.process,
                record.state,
                record.since_s,
                record.moved_s,
                record.failure,
                record.spec,
                record.asked,
                record.signs,
            )
            for record in self
        )

    def accept_failures(self, wanted: Set[str]) -> None:
        """Forgets the errors of processes that have ended and are not in `wanted` ("worker-1"): the run goes on without
        them, so they must not end it later, when it drains or wants a process of this name again."""
        for record in self:
            if not record.is_live and record.process.name not in wanted:
                record.failure = None

    def forget(self, role: str) -> None:
        """Drops the records of a role that is not needed any more (the probe)."""
        self._records = {name: record for name, record in self._records.items() if record.process.role != role}
