"""What a job asks of each node of a cluster: cores, memory, GPUs, disk and time. Pure."""

from __future__ import annotations

import math

import msgspec

from elastichost.tuner.memory.peak_memory import MemoryEstimate

__all__ = ["NodeRequest", "node_request"]

MIB = 1 << 20
ARENA_MARGIN = 1.25  # the number of ids of a dynamic table is estimated from a sample of the data
PROCESS_MARGIN = 1.15  # the estimate of heaps is too small by some percent for some models
SYSTEM_SHARE = 0.1  # of the budget, in addition: file system cache that is being written, the shell, Ray
LEAST_ARENA_BYTES = 256 * MIB
LEAST_NOTICE_S = 60
CHECKPOINT_BYTES_PER_S = 100e6  # of a shared file system. Assumed
RUN_FILES_BYTES = 1 << 30  # events, metrics and logs of a run
TIME_MARGIN, START_S = 1.5, 600.0  # of the predicted time; the start and one resume


class NodeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The resources of each of `nodes` nodes.

    budget_bytes: `resources.memory` of the job there; memory_bytes: what is asked of the cluster, which is more.
    arena_bytes: room for shared memory, a part of the budget. disk_bytes: of the run directory. notice_s: time from
    SIGTERM to the end, in which the run saves a checkpoint. time_s: predicted time with a margin; 0: not known."""

    nodes: int
    cores: int
    gpus: int
    memory_bytes: int
    budget_bytes: int
    arena_bytes: int
    disk_bytes: int
    notice_s: int
    time_s: int = 0

    @property
    def memory_mib(self) -> int:
        return self.memory_bytes // MIB

    @property
    def arena_mib(self) -> int:
        return self.arena_bytes // MIB

    @property
    def disk_gib(self) -> int:
        return -(-self.disk_bytes // (1 << 30))

    @property
    def minutes(self) -> int:
        """The time limit in whole minutes; 0: not known."""
        return -(-self.time_s // 60)


def node_request(
    estimate: MemoryEstimate,
    *,
    cores: int,
    gpus: int = 0,
    nodes: int = 1,
    asked_bytes: int | None = None,
    checkpoints_kept: int = 2,
    training_s: float | None = None,
    notice_s: int | None = None,
) -> NodeRequest:
    """Returns the request of a job whose processes on one node need `estimate`. asked_bytes: `resources.memory` of the
    job file as an amount; None: it is a share, and the budget follows from the estimate. training_s: predicted; None:
    not known. notice_s: None: long enough for a checkpoint."""
    arena = _whole(max(LEAST_ARENA_BYTES, estimate.arena_bytes * ARENA_MARGIN))
    needed = arena + (estimate.host_bytes - estimate.arena_bytes) * PROCESS_MARGIN
    budget = _whole(needed if asked_bytes is None else asked_bytes)
    saving_s = math.ceil(LEAST_NOTICE_S / 2 + arena / CHECKPOINT_BYTES_PER_S)
    return NodeRequest(
        nodes=nodes,
        cores=cores,
        gpus=gpus,
        memory_bytes=_whole(budget * (1 + SYSTEM_SHARE)),
        budget_bytes=budget,
        arena_bytes=min(arena, budget),
        disk_bytes=_whole((checkpoints_kept + 1) * nodes * estimate.arena_bytes + RUN_FILES_BYTES),
        notice_s=max(LEAST_NOTICE_S, saving_s) if notice_s is None else notice_s,
        time_s=0 if training_s is None else math.ceil(training_s * TIME_MARGIN + START_S),
    )


def _whole(size_bytes: float) -> int:
    """Rounded up to a whole number of MiB."""
    return math.ceil(size_bytes / MIB) * MIB
