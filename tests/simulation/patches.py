"""The names of the project's modules that are replaced by simulated ones while histories run. All others are real."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from elastichost.ps.applied_log import AppliedLog
from tests.simulation import computing, memory, network, rows, supervision
from tests.simulation.world import active

__all__ = ["simulated"]

_CLOCK = {"time": network.SIMULATED_TIME}
_WAITING = {**_CLOCK, "wait_readable": network.wait_readable}
_OF_PROCESS = {"gpu_memory_bytes": lambda device: 0, "move_training": lambda asked: None}


def _checkpoints() -> Any:
    return active().checkpoints


class _Log(AppliedLog):
    """The real log. Killed processes leave descriptors open, which all belong to this one process, so they are closed
    at the end."""

    def __init__(self, run_dir: Any) -> None:
        super().__init__(run_dir)
        self._is_open = True
        active().left_open.append(self.close)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            super().close()


class _NoMoving:
    """Stands for `ps.transfer.both_ends.BucketTransfers` when all buckets are on one host."""

    clients = ()

    def __init__(self, *facts: object) -> None:
        """No bucket ever moves."""

    def turn(self, now_s: float) -> bool:
        return False

    def take_over(self, buckets: object) -> bool:
        return True

    def forget(self) -> None:
        """Does nothing: there are no copies."""

    close = forget


class _NoReporter:
    """Stands for `supervisor.status.Reporter`."""

    def __init__(self, run: object, gpus: object) -> None:
        self.elapsed_s, self.arena_bytes, self.private_bytes = 0.0, 0, dict[int, int]()
        self.peak_bytes = self.peak_workers = 0
        self.problems: dict[str, str] = {}
        self.lost_gpus = frozenset[int]()

    def tick(self, *facts: object) -> None:
        """Does nothing: no status is read."""

    def report(self, *facts: object, thoroughly: bool = False) -> None:
        """Does nothing."""


_FILES = {"MappedFile": memory.MemoryFile}
_REPLACED: dict[str, dict[str, Any]] = {
    "elastichost.arena.memory_board": {**_FILES, **_CLOCK},
    "elastichost.arena.recovery.staging": _FILES,
    "elastichost.arena.recovery.undo": _FILES,
    "elastichost.arena.watermarks": _FILES,
    "elastichost.wire.sockets": {"DataClient": network.SimDataClient},
    "elastichost.worker.channels.channel": _WAITING,
    "elastichost.worker.access.row_channels": _WAITING,
    "elastichost.worker.commit.lease_commit": _WAITING,
    "elastichost.worker.commit.mixed_commit": _CLOCK,
    "elastichost.worker.commit.peer_clock": _CLOCK,
    "elastichost.worker.commit.step_channel": _CLOCK,
    # A loop that polls very often would cause most of the events; here its sources wake it instead.
    "elastichost.worker.sync.sync_worker": {
        **_WAITING,
        "Pipeline": computing.SimPipeline,
        "seed_generators": lambda device, seed: None,
        "POLL_S": 0.2,
    },
    "elastichost.worker.lifecycle": {
        **_WAITING,
        "os": network.SIMULATED_OS,
        "ControlClient": network.SimControlClient,
    },
    "elastichost.worker.lease_worker": _WAITING,
    "elastichost.worker.loop": {
        **_CLOCK,
        **_OF_PROCESS,
        "Pipeline": computing.SimPipeline,
        "build_parts": computing.build_parts,
    },
    "elastichost.worker.sync.sync_loop": {**_OF_PROCESS, "build_sync_parts": computing.build_sync_parts},
    "elastichost.ps.loop": {
        **_CLOCK,
        "os": network.SIMULATED_OS,
        "Path": memory.MemoryPath,
        "Arena": memory.SimArena,
        "RowStore": rows.SimRowStore,
        "SnapshotWriter": supervision.SimSnapshotWriter,
        "DataServer": network.SimDataServer,
        "ControlClient": network.SimControlClient,
        "Waiter": network.SimWaiter,
        "AppliedLog": _Log,
        "BucketTransfers": _NoMoving,
        "move_to_cores": lambda cores: None,
    },
    "elastichost.supervisor.run_start": {
        "Arena": memory.SimArena,
        "create_directory": lambda path, owner: None,
        "owner_of": lambda pid, directory: None,
        "free_bytes": lambda path: 1 << 30,
    },
    "elastichost.supervisor.controllers.checkpoints": {
        "new_staging": lambda directory, number, writer: _checkpoints().new_staging(directory, number),
        "commit": lambda staging, final, manifest: _checkpoints().commit(staging, final, manifest),
        "retain": lambda directory, keep, newest, run_id, copying: (),
        "remove_tree": lambda directory: None,
    },
    "elastichost.supervisor.phases.training": {"CHANGING_TICK_S": 0.05},
    "elastichost.supervisor.supervisor": {
        "Reporter": _NoReporter,
        "result_of": lambda run, prepared, components, reporter, status, code: (status, code),
    },
}


@contextmanager
def simulated() -> Iterator[None]:
    """Histories may run within this context."""
    before: list[tuple[Any, str, Any]] = []

    def put(module: Any, name: str, value: Any) -> None:
        before.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    def crash_point(name: str) -> None:
        active().crash_point(name)

    try:
        for module_name, names in _REPLACED.items():
            for name, value in names.items():
                put(import_module(module_name), name, value)
        for module_name, module in list(sys.modules.items()):
            is_other = module_name.startswith("elastichost.") and module_name != "elastichost.wire.crash"
            if is_other and hasattr(module, "crash_point"):
                put(module, "crash_point", crash_point)
        yield
    finally:
        for module, name, value in reversed(before):
            setattr(module, name, value)
