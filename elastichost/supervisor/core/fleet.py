"""What is known of the processes of a run, folded from the fork server's events and their own messages.

No I/O: facts in, facts out. `reconcile` decides on them, `metrics.ProcessStatus` shows them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, cast

from elastichost.metrics import ProcessStatus
from elastichost.plan import ProcessId, ProcessSpec, Role
from elastichost.supervisor.core.lifecycle import LIVE, LifecycleEvent, State, next_state
from elastichost.supervisor.core.liveness import Signs
from elastichost.supervisor.core.reconciler import Failure, ObservedProcess
from elastichost.wire.control import HeartbeatMsg
from elastichost.wire.facts import StepSample

__all__ = ["Fleet", "ProcessRecord"]

WINDOW_S = 5.0
MOST_BEATS = 128  # within it; there are ten of them


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
    outer: str = ""  # where other machines reach it
    failure: Failure | None = None
    progress: int = -1
    doing: str = ""
    no_space: str = ""  # why it can commit nothing: its disk is full
    gpu_memory_bytes: int = 0
    asked: ProcessSpec | None = None  # the cores and threads it was told to take, until it says that it has
    kill_kind: Literal["exit", "hang", "start", "slow", "unwanted"] = "exit"
    kill_reason: str = ""
    cause: str = ""  # what it was started for: `JournalLine.cause`
    kill_at_s: float | None = None  # when SIGKILL is due; None: it was sent, or is not wanted
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
        """Over the last seconds of wall time."""
        seconds = sum(sample.seconds for _, sample in self.window)
        return sum(sample.samples for _, sample in self.window) / seconds if seconds else 0.0

    @property
    def losses(self) -> tuple[float, int]:
        """(sum of the loss, samples) over the last seconds."""
        return sum(s.loss_sum for _, s in self.window), sum(s.samples for _, s in self.window)

    @property
    def wait_fraction(self) -> float:
        seconds = sum(sample.seconds for _, sample in self.window)
        if not seconds:
            return 0.0
        if self.process.role == "server":
            return max(0.0, 1 - sum(sample.busy_s for _, sample in self.window) / seconds)
        return min(1.0, sum(sample.wait_input_s + sample.wait_peers_s for _, sample in self.window) / seconds)

    @property
    def virtual_cpu_percent(self) -> float | None:
        """Of one core, by its costs; None: it is not emulated, and the kernel knows."""
        known = [(sample.cpu_s, sample.seconds) for _, sample in self.window if sample.cpu_s is not None]
        seconds = sum(of_one for _, of_one in known)
        return 100 * sum(cpu_s for cpu_s, _ in known) / seconds if seconds else None

    @property
    def compute_ms(self) -> float:
        steps = sum(sample.steps for _, sample in self.window)
        return 1000 * sum(sample.compute_s for _, sample in self.window) / steps if steps else 0.0

    def status(self) -> ProcessStatus:
        """Without what the meter adds: CPU and memory."""
        state = self.doing if self.state == State.RUNNING and self.doing else self.state.value
        return ProcessStatus(
            role=self.process.role,
            index=self.process.index,
            incarnation=self.process.incarnation,
            pid=self.pid,
            state=state,
            cores=self.spec.cores,
            samples_per_s=self.samples_per_s,
            wait_fraction=self.wait_fraction,
            compute_ms=self.compute_ms,
            gpu_memory_bytes=self.gpu_memory_bytes,
        )


class Fleet:
    """All processes, by name; a newer incarnation takes the place of an older one."""

    def __init__(self) -> None:
        self._records: dict[str, ProcessRecord] = {}

    def request(self, process: ProcessId, spec: ProcessSpec, now_s: float) -> ProcessRecord:
        record = ProcessRecord(process, spec, now_s, now_s)
        self._records[process.name] = record
        return record

    def remember(self, process: ProcessId, now_s: float) -> None:
        """An incarnation of an earlier supervisor's: it has ended, and the next one is the one after it."""
        spec = ProcessSpec(role=cast(Role, process.role), index=process.index, cores=(), threads=1)
        self.request(process, spec, now_s).state = State.EXITED

    def find(self, process: ProcessId | None) -> ProcessRecord | None:
        """None for an incarnation that is not the newest one: nothing it says counts any more."""
        record = self._records.get(process.name) if process is not None else None
        return record if record is not None and record.process == process else None

    def named(self, role: str, index: int) -> ProcessRecord | None:
        return self._records.get(f"{role}-{index}")

    def apply(self, record: ProcessRecord, event: LifecycleEvent, now_s: float) -> None:
        """Raises IllegalTransitionError."""
        state = next_state(str(record.process), record.state, event)
        if state != record.state:
            record.state, record.since_s, record.moved_s = state, now_s, now_s

    def heartbeat(self, record: ProcessRecord, beat: HeartbeatMsg, now_s: float) -> None:
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
        """The process runs on these cores now. False when it was asked for others meanwhile, or for none."""
        if record.asked is None or record.asked.cores != cores:
            return False
        record.spec, record.asked = record.asked, None
        return True

    def extend_deadlines(self, seconds: float) -> None:
        """Nobody answers for a time in which the supervisor itself stood still, perhaps with everybody else."""
        for record in self:
            record.since_s += seconds
            record.moved_s += seconds

    def __iter__(self) -> Iterator[ProcessRecord]:
        return iter(self._records.values())

    def live(self, role: str) -> tuple[ProcessRecord, ...]:
        return tuple(record for record in self if record.process.role == role and record.is_live)

    def working(self, role: str) -> tuple[ProcessRecord, ...]:
        """Ready or running, by index."""
        records = [record for record in self if record.process.role == role and record.can_work]
        return tuple(sorted(records, key=lambda record: record.process.index))

    def ending(self, role: str) -> int:
        """How many are about to end unasked: they reported an error, or are being killed."""
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

    def forget(self, role: str) -> None:
        """Drops records of a role that has ended for good (the probe)."""
        self._records = {name: record for name, record in self._records.items() if record.process.role != role}
