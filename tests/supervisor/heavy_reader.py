"""A reader of a user whose module takes memory when it is imported, as one that imports a large library does."""

from __future__ import annotations

from elastichost.config.job import JobSpec
from elastichost.datasets import Reader
from elastichost.datasets.settings import Split, data_settings
from elastichost.datasets.synthetic.reader import SyntheticReader, synthetic_shape

__all__ = ["KEPT_BYTES", "heavy_reader"]

KEPT_BYTES = 20_000_000
KEPT = bytearray(b"1") * KEPT_BYTES


def heavy_reader(job: JobSpec, split: Split) -> Reader:
    """The reader of generated samples."""
    settings = data_settings(job, split)
    return SyntheticReader(synthetic_shape(job.data.synthetic, settings), settings)
