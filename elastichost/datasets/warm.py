"""Loads the readers' modules and compiled kernels in advance: a fork server does this once for all its children."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from elastichost.datasets.arrow_columns import id_column
from elastichost.datasets.bad_rows import BadRowLog
from elastichost.datasets.kernels.ragged import ragged_lengths, take_ragged
from elastichost.datasets.reader_factory import make_decoder
from elastichost.datasets.settings import CRITEO_CATEGORICAL, CRITEO_DENSE, CRITEO_LABEL, DataSettings
from elastichost.datasets.synthetic.reader import SyntheticReader, SyntheticShape
from elastichost.datasets.text.criteo import CriteoLines

__all__ = ["warm_kernels"]


def warm_kernels() -> None:
    """Imports the readers of all formats, and runs every kernel on a few bytes in the array layouts of real data.

    With OPENBLAS_NUM_THREADS = 1 it starts no thread. Otherwise numba imports scipy, which starts its own BLAS threads.
    """
    for file_format in ("parquet", "csv"):
        make_decoder(_settings(file_format))
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.large_string())):
        words = pa.array(["a", None], type=kind)
        id_column(pa.chunked_array([words]))
    lists = id_column(pa.chunked_array([pa.array([["a", None], []], type=pa.list_(pa.string()))]))
    assert lists.offsets is not None
    samples = np.zeros(1, dtype=np.int64)
    ragged_lengths(lists.offsets, samples, np.empty(1, dtype=np.int32))
    take_ragged(lists.keys, lists.offsets, samples, np.empty(1, dtype=np.int64))
    _warm_criteo()
    _warm_synthetic()


def _settings(file_format: str) -> DataSettings:
    return DataSettings(
        split="train",
        patterns=(),
        format=file_format,
        labels=(CRITEO_LABEL,),
        dense=CRITEO_DENSE,
        categorical=CRITEO_CATEGORICAL,
    )


def _warm_criteo() -> None:
    line = np.frombuffer(b"0" + b"\t1" * len(CRITEO_DENSE) + b"\ta" * len(CRITEO_CATEGORICAL) + b"\n", dtype=np.uint8)
    # A copy, because real data is in writable arrays, and the kernel is compiled for them.
    CriteoLines(_settings("criteo_tsv")).parse("", line.copy(), 1, 1, BadRowLog(1))


def _warm_synthetic() -> None:
    shape = SyntheticShape(
        first_index=0,
        samples=1,
        tables=2,
        table_rows=2,
        zipf=1.05,
        dense=1,
        multi_valued=1,
        list_length=2,
        interactions=1,
        seed=0,
        unit_rows=1,
    )
    settings = DataSettings(
        split="train", patterns=(), format="synthetic", labels=("label",), dense=("d0",), categorical=("c0", "c1")
    )
    reader = SyntheticReader(shape, settings)
    (unit,) = reader.describe().units
    for _ in reader.batches(unit, 0, 1, 1):
        pass
