"""The reader of a disk job: generated samples, of which each needs a fixed number of bytes from the shared source.

`data.format = "benchmarks.colocate.shared_reader:SharedReader"`. The only training file is named after the bytes of a
sample, "4000.bytes"; it need not exist. Test data does not wait.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.colocate.shared_source import SOURCE_VARIABLE, SourceConnection
from elastichost.config.job import JobSpec
from elastichost.datasets.api import DatasetDescription, SampleBatch, Unit
from elastichost.datasets.settings import Split, data_settings
from elastichost.datasets.synthetic.reader import SyntheticReader, synthetic_shape

__all__ = ["SharedReader"]


class SharedReader:
    """A `Reader`. It connects with its first batch of training data."""

    def __init__(self, job: JobSpec, split: Split) -> None:
        settings = data_settings(job, split)
        self._reader = SyntheticReader(synthetic_shape(job.data.synthetic, settings), settings)
        self._sample_bytes = int(Path(job.data.train[0]).stem) if split == "train" else 0
        self._source: SourceConnection | None = None

    def describe(self) -> DatasetDescription:
        """See `Reader.describe`."""
        return self._reader.describe()

    def batches(
        self,
        unit: Unit,
        start: int,
        stop: int,
        batch_size: int,
        shuffle_seed: int | None = None,
        min_samples: int = 1,
    ) -> Iterator[SampleBatch]:
        """See `Reader.batches`."""
        for batch in self._reader.batches(unit, start, stop, batch_size, shuffle_seed, min_samples):
            self._fetch(batch.size)
            yield batch

    def _fetch(self, samples: int) -> None:
        path = os.environ.get(SOURCE_VARIABLE)
        if not self._sample_bytes or path is None:  # no source: a job file is examined outside of the benchmark
            return
        if self._source is None:
            self._source = SourceConnection(path)
        self._source.fetch(samples * self._sample_bytes)
