"""Writes a model from memory of a GPU back to its arena, when the worker that trained there has died:
`python -m elastichost.gpu.memory.write_back ARENA SUPERVISOR_PID`.

The supervisor runs it before a checkpoint, while no worker trains, and this process ends with it: a resumed run may use
the arena. CUDA_VISIBLE_DEVICES selects the GPU. The record of the arena then has the version of the dense vector from
before the copy. Exit code MODEL_LOST: it is gone. Any other error leaves it where it is.
"""

from __future__ import annotations

import os
import signal
import sys

from elastichost.host.prctl import set_parent_death_signal
from elastichost.host.stop_signals import ignore_termination

if __name__ == "__main__":  # before the slow imports
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ignore_termination()
    set_parent_death_signal(signal.SIGKILL)
    if os.getppid() != int(sys.argv[2]):
        sys.exit(1)

from pathlib import Path

import msgspec

from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.arena.recovery.device_residence import read_residence, write_residence
from elastichost.errors import ElastichostError, ModelLostError
from elastichost.gpu.availability import is_interpreted
from elastichost.gpu.memory.arena_copies import download, mapped
from elastichost.gpu.memory.held_memory import take_memory

__all__ = ["MODEL_LOST", "main"]

MODEL_LOST = 20  # no exit code of an error (`errors.ExitCode`)


def main(directory: Path) -> int:
    """Returns 0 when the model is in the arena. Raises GpuMemoryError when the GPU cannot be used now."""
    resident = read_residence(directory)
    if resident is None:
        return 0
    held = take_memory(directory, resident.token)
    if held is None:
        print(f"no process holds the model in memory of GPU {resident.device} any more")
        return MODEL_LOST
    with Arena.attach(directory) as arena:
        version = DenseStore(arena).version()
        memory = mapped(arena, is_cuda=not is_interpreted(), descriptors=held.descriptors)
        held.close()
        try:
            download(arena, memory, lambda: None)
        except ModelLostError as error:
            print(error.message)
            return MODEL_LOST
        memory.close()
    if read_residence(directory) == resident:
        write_residence(directory, msgspec.structs.replace(resident, written_version=version))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except ElastichostError as error:
        print(error.message)
        sys.exit(int(error.exit_code))
