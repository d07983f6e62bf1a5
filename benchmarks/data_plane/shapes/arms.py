"""The arms of a shape: elastichost with one worker for each core, and two forms of torchrec, in both precisions.

A peer is one arm for each of its modes, but one group of processes with one set of tables: large tables would not fit
into memory four times, and starting takes longer than measuring.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import psutil

from benchmarks.data_plane.lineup import Entry
from benchmarks.data_plane.process_arm import ProcessArm
from benchmarks.peers.common import PeerMode
from benchmarks.workload.job_file import Precision
from benchmarks.workload.shape import Shape

__all__ = ["PRECISIONS", "ModeArm", "admitted", "modes_of", "shape_entries"]

PRECISIONS: tuple[Precision, ...] = get_args(Precision)
PROCESS_BYTES = 400 * 2**20  # a process that trains, without its rows
RESERVE_BYTES = 2**30
DMP_PROCESSES = 2


def shape_entries() -> dict[str, Entry]:
    """How the groups of processes are started, by name."""
    cores = len(os.sched_getaffinity(0))
    ours = {
        f"ours_{precision}": Entry(
            "elastichost", f"elastichost, {cores} workers", workers=cores, fused=None, precision=precision
        )
        for precision in PRECISIONS
    }
    return {
        **ours,
        "tbe": Entry("forked", "fbgemm TBE, 1 process", "tbe"),
        "dmp": Entry("forked", "torchrec DistributedModelParallel, 2 processes", "dmp", spins=True),
    }


def modes_of(process: str) -> dict[str, PeerMode]:
    """The arms of a peer, each with its mode; empty for elastichost."""
    cores = len(os.sched_getaffinity(0))
    threads = {"tbe": {"tbe1": 1, f"tbe{cores}": cores}, "dmp": {"dmp": max(1, cores // DMP_PROCESSES)}}
    return {
        f"{name}_{precision}": PeerMode(count, is_bfloat16=precision == "bfloat16")
        for precision in PRECISIONS
        for name, count in threads.get(process, {}).items()
    }


def admitted(entries: Mapping[str, Entry], shape: Shape) -> tuple[dict[str, Entry], dict[str, str]]:
    """The entries whose memory fits beside that of the entries before them, and the reasons for the others."""
    free_bytes = psutil.virtual_memory().available - RESERVE_BYTES
    taken, left_out = {}, {}
    for name, entry in entries.items():
        processes = entry.workers + 1 if entry.kind == "elastichost" else DMP_PROCESSES if name == "dmp" else 1
        needed_bytes = shape.table_bytes + 4 * shape.tables * shape.rows + processes * PROCESS_BYTES
        if needed_bytes > free_bytes:
            told = f"{needed_bytes / 2**30:.1f} GiB are needed, {max(0, free_bytes) / 2**30:.1f} GiB are left"
            left_out[name] = f"left out: {told}"
            continue
        free_bytes -= needed_bytes
        taken[name] = entry
    return taken, left_out


@dataclass(frozen=True)
class ModeArm:
    """A peer in one of its modes; implements `windows.Arm`."""

    name: str
    processes: ProcessArm
    mode: PeerMode

    def resume(self) -> None:
        self.processes.set_mode(self.mode)
        self.processes.resume()

    def pause(self) -> None:
        self.processes.pause()

    def samples(self) -> int:
        return self.processes.samples()

    def cpu_s(self) -> Mapping[str, float]:
        return self.processes.cpu_s()

    def check(self) -> None:
        self.processes.check()

    def memory_bytes(self) -> Mapping[str, int]:
        return self.processes.memory_bytes()
