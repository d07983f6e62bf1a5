"""A worker's pipeline over the files of a case, read round and round by a consumer of a given speed."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from elastichost.datasets.api import SampleBatch
from elastichost.datasets.reader import UnitReader
from elastichost.datasets.reader_factory import make_decoder
from elastichost.datasets.settings import DataSettings
from elastichost.datasets.sources.connections import SourceConnections
from elastichost.datasets.sources.control import InputControl
from elastichost.datasets.sources.read_ahead import ReadAhead
from elastichost.supervisor.autoscale.input_counter import totals_of
from elastichost.tuner.input.facts import InputTotals, InputTunerSettings
from elastichost.wire.facts import Cache, InputKnobs, Lease, StepSample
from elastichost.worker.pipeline import Pipeline

__all__ = ["BATCH_SIZE", "Consumed", "PipelineRun"]

BATCH_SIZE = 2048
LEASE_SAMPLES = 16_384
WAIT_S = 0.05
KEY_BYTES = 12.0
MOST_CACHE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Consumed:
    """What the consumer took in a stretch of time. totals: as the supervisor sums them up."""

    samples: int
    seconds: float
    totals: InputTotals

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds


class PipelineRun:
    """One worker's input. samples_per_s: of the consumer, which computes elsewhere, as an accelerator does: between two
    batches it sleeps. is_cold: the pages of local files are dropped before each pass. Close it at the end."""

    def __init__(
        self, settings: DataSettings, knobs: InputKnobs, samples_per_s: float, *, is_cold: bool = False
    ) -> None:
        self.control, self._is_cold = InputControl(knobs), is_cold
        self._ranges = tempfile.TemporaryDirectory(prefix="input-ranges-")  # of this run alone, so it begins empty
        cache = (Path(self._ranges.name), MOST_CACHE_BYTES)
        self._connections = SourceConnections(self.control, 5.0, 60.0, *cache)
        self.control.connections = self._connections
        decoder = make_decoder(settings, self._connections)
        assert decoder is not None
        reader = UnitReader(ReadAhead(decoder, self.control))
        self.description = reader.describe()
        self._rate, self._free_s = samples_per_s, time.perf_counter()
        self._pipeline: Pipeline[int] = Pipeline(
            reader, self.description.units, BATCH_SIZE, self._prepare, control=self.control
        )
        self._lease, self._unit, self._start = 0, 0, 0

    def _prepare(self, batch: SampleBatch, lease: Lease) -> int:
        return batch.size

    def tuner_settings(self, cores: int, *, is_fetched: bool, caches: tuple[Cache, ...] = ()) -> InputTunerSettings:
        """The facts of this job for the tuner. caches: those that it may switch on."""
        found = self.description
        return InputTunerSettings(
            cores=cores,
            batch_size=BATCH_SIZE,
            sample_bytes=4.0 * (found.num_dense + found.num_labels) + KEY_BYTES * len(found.key_kinds),
            unit_samples=max(unit.samples for unit in self.description.units),
            is_fetched=is_fetched,
            caches=caches,
            samples=found.samples,
        )

    def consume(self, seconds: float) -> Consumed:
        """Takes batches for this time."""
        began_s = time.perf_counter()
        samples = 0
        while (now_s := time.perf_counter()) < began_s + seconds:
            self._feed()
            if self._free_s > now_s:
                time.sleep(min(self._free_s, began_s + seconds) - now_s)
                continue
            result = self._pipeline.get(WAIT_S)
            if isinstance(result, int):
                samples += result
                self._free_s = max(self._free_s, time.perf_counter()) + result / self._rate
        passed_s = time.perf_counter() - began_s
        stages = self._pipeline.take_stages()
        totals = totals_of(StepSample(samples=samples, seconds=passed_s, stages=stages))
        return Consumed(samples, passed_s, totals)

    def _feed(self) -> None:
        knobs = self.control.knobs
        ahead = knobs.decode_threads if knobs.prefetch_bytes else 1  # as `worker.lease_worker` requests leases
        while self._pipeline.leases_waiting < ahead:
            unit = self.description.units[self._unit]
            if self._is_cold and not (self._unit or self._start):
                drop_pages(self.description.files)
            stop = min(unit.samples, self._start + LEASE_SAMPLES)
            self._lease += 1
            self._pipeline.add(Lease(self._lease, 0, unit.index, self._start, stop), None)
            self._start = stop
            if stop == unit.samples:
                self._unit, self._start = (self._unit + 1) % len(self.description.units), 0

    def close(self) -> None:
        self._pipeline.close()
        self._ranges.cleanup()


def drop_pages(files: tuple[str, ...]) -> None:
    """Has the kernel forget the pages of files, so that they are read from the disk again."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # pages that are not written yet stay
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
