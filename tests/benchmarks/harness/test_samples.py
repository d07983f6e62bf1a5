"""The workload Criteo-26: its distribution, and the equality of its two files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.harness.criteo26 import (
    CATEGORICAL,
    DENSE,
    ROWS_PER_TABLE,
    BatchFile,
    JobSettings,
    Samples,
    draw_samples,
    job_text,
    write_batches,
    write_parquet,
)
from elastichost.config.job import load_job


@pytest.fixture(scope="module")
def samples() -> Samples:
    return draw_samples(20_000, seed=3)


def test_samples_have_the_shapes_of_the_workload(samples: Samples) -> None:
    assert (samples.dense.shape, samples.dense.dtype) == ((20_000, 13), np.float32)
    assert (samples.ids.shape, samples.ids.dtype) == ((26, 20_000), np.int64)
    assert samples.ids.min() >= 0
    assert samples.ids.max() < ROWS_PER_TABLE
    assert set(np.unique(samples.labels)) == {0.0, 1.0}


def test_the_same_seed_draws_the_same_samples(samples: Samples) -> None:
    again, other = draw_samples(20_000, seed=3), draw_samples(20_000, seed=4)
    assert np.array_equal(again.ids, samples.ids)
    assert not np.array_equal(other.ids, samples.ids)


def test_ids_are_zipf_distributed_and_hot_ids_are_scattered(samples: Samples) -> None:
    hottest = []
    for column, exponent in ((samples.ids[0], 1.05), (samples.ids[-1], 1.2)):
        counts = np.bincount(column, minlength=ROWS_PER_TABLE)
        weights = np.arange(1, ROWS_PER_TABLE + 1) ** -exponent
        expected = len(column) * weights[0] / weights.sum()
        assert abs(counts.max() - expected) < 6 * expected**0.5
        hottest.append(np.argsort(counts)[-20:])
    assert min(np.ptp(ids) for ids in hottest) > ROWS_PER_TABLE // 2
    assert np.intersect1d(*hottest).size < 20


def test_draws_come_in_random_order(samples: Samples) -> None:
    column = samples.ids[0]
    hot = column == np.bincount(column).argmax()
    halves = [int(half.sum()) for half in np.array_split(hot, 2)]
    assert abs(halves[0] - halves[1]) < 6 * sum(halves) ** 0.5


def test_parquet_and_batches_hold_the_same_samples(samples: Samples, tmp_path: Path) -> None:
    write_parquet(samples, tmp_path / "a.parquet")
    write_batches(samples, 512, tmp_path / "batches")
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.column_names == ["label", *DENSE, *CATEGORICAL]
    batches = BatchFile(tmp_path / "batches", 512)
    assert len(batches) == 20_000 // 512
    last = batches[len(batches) - 1]
    part = slice(512 * (len(batches) - 1), 512 * len(batches))
    ids = np.stack([table[name].to_numpy()[part] for name in CATEGORICAL])
    assert np.array_equal(last.ids, ids.ravel())
    assert np.array_equal(last.dense[:, 4], table["I5"].to_numpy()[part])
    assert np.array_equal(last.labels, table["label"].to_numpy()[part])
    with pytest.raises(IndexError):
        batches[len(batches)]


def test_the_job_file_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(job_text(JobSettings("wide_deep", 512, "served", 2, fused=False), tmp_path / "a.parquet"))
    job = load_job(path, environ={})
    assert (job.model.build, job.model.fused) == ("elastichost.models:wide_deep", False)
    assert (job.train.access, job.train.batch_size, job.resources.workers) == ("served", 512, 2)
    assert (len(job.data.dense), len(job.data.categorical)) == (13, 26)
    path.write_text(job_text(JobSettings("dlrm", 512, "direct", 1, fused=None), tmp_path / "a.parquet"))
    assert load_job(path, environ={}).model.fused is True
