"""Samples of a shape: their distribution, and the equality of their two files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.workload.job_file import JobSettings, job_text
from benchmarks.workload.samples import BatchFile, Samples, draw_samples, write_batches, write_parquet
from benchmarks.workload.shape import DENSE_COLUMNS, SMALL, Shape
from elastichost.config.job import load_job


@pytest.fixture(scope="module")
def samples() -> Samples:
    return draw_samples(SMALL, 20_000, seed=3)


def test_samples_have_the_sizes_of_the_shape(samples: Samples) -> None:
    assert (samples.dense.shape, samples.dense.dtype) == ((20_000, 13), np.float32)
    assert (samples.ids.shape, samples.ids.dtype) == ((26, 20_000, 1), np.int64)
    assert samples.ids.min() >= 0
    assert samples.ids.max() < SMALL.rows
    assert set(np.unique(samples.labels)) == {0.0, 1.0}


def test_the_same_seed_draws_the_same_samples(samples: Samples) -> None:
    again, other = (draw_samples(SMALL, 20_000, seed) for seed in (3, 4))
    assert np.array_equal(again.ids, samples.ids)
    assert not np.array_equal(other.ids, samples.ids)


def test_ids_are_zipf_distributed_and_hot_ids_are_scattered(samples: Samples) -> None:
    hottest = []
    for column, exponent in ((samples.ids[0, :, 0], 1.05), (samples.ids[-1, :, 0], 1.2)):
        counts = np.bincount(column, minlength=SMALL.rows)
        weights = np.arange(1, SMALL.rows + 1) ** -exponent
        expected = len(column) * weights[0] / weights.sum()
        assert abs(counts.max() - expected) < 6 * expected**0.5
        hottest.append(np.argsort(counts)[-20:])
    assert min(np.ptp(ids) for ids in hottest) > SMALL.rows // 2
    assert np.intersect1d(*hottest).size < 20


def test_draws_come_in_random_order(samples: Samples) -> None:
    column = samples.ids[0, :, 0]
    hot = column == np.bincount(column).argmax()
    halves = [int(half.sum()) for half in np.array_split(hot, 2)]
    assert abs(halves[0] - halves[1]) < 6 * sum(halves) ** 0.5


def test_parquet_and_batches_hold_the_same_samples(samples: Samples, tmp_path: Path) -> None:
    write_parquet(samples, tmp_path / "a.parquet")
    write_batches(samples, 512, tmp_path / "batches")
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.column_names == ["label", *DENSE_COLUMNS, *SMALL.columns]
    batches = BatchFile(tmp_path / "batches", SMALL, 512)
    assert len(batches) == 20_000 // 512
    last = batches[len(batches) - 1]
    part = slice(512 * (len(batches) - 1), 512 * len(batches))
    ids = np.stack([table[name].to_numpy()[part] for name in SMALL.columns])
    assert np.array_equal(last.ids, ids.ravel())
    assert np.array_equal(last.dense[:, 4], table["I5"].to_numpy()[part])
    assert np.array_equal(last.labels, table["label"].to_numpy()[part])
    with pytest.raises(IndexError):
        batches[len(batches)]


def test_several_ids_of_a_sample_are_lists_in_parquet_and_feature_major_in_batches(tmp_path: Path) -> None:
    shape = Shape(tables=2, rows=50, ids=3)
    several = draw_samples(shape, 40, seed=5)
    write_parquet(several, tmp_path / "a.parquet")
    write_batches(several, 16, tmp_path / "batches")
    ids = BatchFile(tmp_path / "batches", shape, 16)[1].ids.reshape(2, 16, 3)
    column = pq.read_table(tmp_path / "a.parquet")["C2"]
    assert column[17].as_py() == ids[1, 1].tolist()
    assert np.array_equal(ids, several.ids[:, 16:32])


def test_the_job_file_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(job_text(JobSettings("wide_deep", SMALL, 512, "served", 2, fused=False), tmp_path / "a.parquet"))
    job = load_job(path, environ={})
    assert (job.model.build, job.model.fused) == ("elastichost.models:wide_deep", False)
    assert (job.train.access, job.train.batch_size, job.resources.workers) == ("served", 512, 2)
    assert (len(job.data.dense), len(job.data.categorical)) == (13, 26)
    shape = Shape(dim=32, bottom=(8, 32), top=(4, 1), tables=3)
    settings = JobSettings("dlrm", shape, 512, "direct", 1, fused=None, precision="bfloat16")
    path.write_text(job_text(settings, tmp_path / "a.parquet"))
    job = load_job(path, environ={})
    assert (job.model.fused, job.train.precision) == (True, "bfloat16")
    assert job.model.args == {"bottom": [8, 32], "top": [4, 1]}
    assert job.data.categorical == ("C1", "C2", "C3")
