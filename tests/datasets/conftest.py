"""Files of the same rows in every format, and the samples that readers return for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastichost.config.job import JobSpec, load_job
from elastichost.datasets.api import Reader, SampleBatch, Unit
from elastichost.datasets.kernels.hashing import hash_bytes
from elastichost.datasets.reader import UnitReader
from elastichost.datasets.reader_factory import make_decoder
from elastichost.datasets.settings import CRITEO_CATEGORICAL, CRITEO_DENSE, DataSettings


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Gives each test a cache directory of its own, so that no test uses the user's."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("ELASTICHOST_CACHE", str(folder))
    return folder


def settings(path: Path | str, file_format: str = "parquet", **changes: Any) -> DataSettings:
    """Settings for one file with label `y`, dense column `x` and id column `c`; arguments change them."""
    base: dict[str, Any] = {
        "split": "train",
        "patterns": (str(path),),
        "format": file_format,
        "labels": ("y",),
        "dense": ("x",),
        "categorical": ("c",),
    }
    return DataSettings(**(base | changes))


def criteo_settings(path: Path, **changes: Any) -> DataSettings:
    columns = {"labels": ("label",), "dense": CRITEO_DENSE, "categorical": CRITEO_CATEGORICAL}
    return settings(path, "criteo_tsv", **(columns | changes))


def reader_of(found: DataSettings) -> UnitReader:
    decoder = make_decoder(found)
    assert decoder is not None
    return UnitReader(decoder)


def write_parquet(path: Path, columns: dict[str, Any], row_group_rows: int = 65_536) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=row_group_rows)
    return path


def criteo_line(label: str = "0", integers: str = "1", categories: str = "68fd1e64", fields: int = 40) -> str:
    """One line of Criteo text; `fields` cuts or lengthens it."""
    line = [label, *[integers] * 13, *[categories] * 26]
    return "\t".join((line + ["extra"] * 5)[:fields])


def all_batches(reader: Reader, batch_size: int = 7, shuffle_seed: int | None = None) -> list[SampleBatch]:
    return [
        batch
        for unit in reader.describe().units
        for batch in reader.batches(unit, 0, unit.samples, batch_size, shuffle_seed)
    ]


def ids_of(batches: list[SampleBatch], columns: int) -> list[list[list[int]]]:
    """The ids of each sample, for each column."""
    result: list[list[list[int]]] = [[] for _ in range(columns)]
    for batch in batches:
        ends = np.cumsum(batch.lengths)
        assert len(batch.lengths) == columns * batch.size
        assert len(batch.keys) == (ends[-1] if len(ends) else 0)
        for at, (end, length) in enumerate(zip(ends.tolist(), batch.lengths.tolist(), strict=True)):
            result[at // batch.size].append(batch.keys[end - length : end].tolist())
    return result


def assert_same_samples(left: list[SampleBatch], right: list[SampleBatch], columns: int) -> None:
    """Asserts that the samples have equal bits, also when the batches end at different positions."""
    assert ids_of(left, columns) == ids_of(right, columns)
    for name in ("dense", "labels", "weights", "truth"):
        mine = [getattr(batch, name) for batch in left if getattr(batch, name) is not None]
        other = [getattr(batch, name) for batch in right if getattr(batch, name) is not None]
        assert len(mine) in (0, len(left))
        assert (len(mine) == 0) == (len(other) == 0)
        if mine:
            np.testing.assert_array_equal(np.concatenate(mine), np.concatenate(other))


def only_unit(reader: Reader) -> Unit:
    (unit,) = reader.describe().units
    return unit


def load(folder: Path, data: str) -> JobSpec:
    """A job whose text from the `[data]` section on is `data`."""
    path = folder / "job.toml"
    path.write_text(f'[model]\nbuild = "elastichost.models:dlrm"\n[data]\n{data}\n')
    return load_job(path)


def hash_string(value: str) -> int:
    """The key of a string id."""
    return hash_bytes(value.encode())
