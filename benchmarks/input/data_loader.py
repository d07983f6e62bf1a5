"""torch's DataLoader over the same files: each of its processes reads every n-th unit, with a connection of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from benchmarks.input.arms import ArmSettings
from benchmarks.input.pipeline_run import BATCH_SIZE
from elastichost.datasets.reader import UnitReader
from elastichost.datasets.reader_factory import make_decoder
from elastichost.datasets.settings import DataSettings

__all__ = ["measure_data_loader", "tuned_processes"]

PREFETCH = 4  # batches that each process prepares ahead


class Units(IterableDataset[int]):
    """The units of the files, round and round, as tensors; gives (samples of the batch)."""

    def __init__(self, settings: DataSettings) -> None:
        self._settings = settings

    def __iter__(self) -> Iterator[Any]:
        torch.set_num_threads(1)
        info = get_worker_info()
        number, of = (0, 1) if info is None else (info.id, info.num_workers)
        decoder = make_decoder(self._settings)
        assert decoder is not None
        reader = UnitReader(decoder)
        units = reader.describe().units
        while True:
            for unit in units[number % len(units) :: of]:
                for batch in reader.batches(unit, 0, unit.samples, BATCH_SIZE):
                    arrays = (batch.dense, batch.keys, batch.lengths, batch.labels)
                    yield tuple(torch.from_numpy(array) for array in arrays)


def measure_data_loader(arm: ArmSettings, processes: int, window_s: float) -> float:
    """Samples/s that the consumer takes from a loader with this number of processes."""
    more: dict[str, Any] = {"prefetch_factor": PREFETCH, "multiprocessing_context": "spawn"} if processes else {}
    loader = DataLoader(Units(arm.settings), batch_size=None, num_workers=processes, **more)
    batches = iter(loader)
    for _ in range(2 * max(1, processes)):  # every process has started
        next(batches)
    began_s = free_s = time.perf_counter()
    samples = 0
    while (now_s := time.perf_counter()) < began_s + window_s:
        if free_s > now_s:
            time.sleep(min(free_s, began_s + window_s) - now_s)
            continue
        size = len(next(batches)[3])
        samples += size
        free_s = max(free_s, time.perf_counter()) + size / arm.samples_per_s
    seconds = time.perf_counter() - began_s
    del batches, loader  # ends its processes
    return samples / seconds


def tuned_processes(arm: ArmSettings, choices: Sequence[int], window_s: float) -> int:
    """The number of processes with the highest speed. A single choice is not measured."""
    if len(choices) == 1:
        return choices[0]
    return max(choices, key=lambda processes: measure_data_loader(arm, processes, window_s))
