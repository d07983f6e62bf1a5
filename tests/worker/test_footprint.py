"""The tensors of a training step: blocks that are really allocated, and predicted sizes for other batches."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from elastichost.config.job import JobSpec, load_job
from elastichost.datasets import Reader, open_reader
from elastichost.specs import ModelSpec
from elastichost.tuner.memory.living_bytes import living_bytes
from elastichost.wire.facts import TensorEvent, WorkingSet
from elastichost.worker import footprint
from elastichost.worker.footprint import events_of, logged, working_set
from elastichost.worker.model.dense_vector import describe_dense
from elastichost.worker.model.embedding import describe_embeddings
from elastichost.worker.probe import build_on_meta

ALL = 1 << 60  # more than any block has
JOB = """
[model]
build = "elastichost.models:{model}"
[data]
format = "synthetic"
[data.synthetic]
rows = {rows}
tables = 5
table_rows = 1000
multi_valued = {lists}
[tables.default]
dim = 8
rows = 1000
"""


def job_of(tmp_path: Path, model: str = "dlrm", rows: int = 10_000, lists: int = 0) -> tuple[JobSpec, Reader]:
    path = tmp_path / "job.toml"
    path.write_text(JOB.format(model=model, rows=rows, lists=lists))
    job = load_job(path, environ={})
    return job, open_reader(job, "train")


def built(job: JobSpec, reader: Reader) -> tuple[torch.nn.Module, ModelSpec]:
    description = reader.describe()
    module, tables = build_on_meta(job, description)
    embeddings = describe_embeddings(module, job, tables)
    spec = ModelSpec(tables, embeddings, describe_dense(module), description.num_dense, description.num_labels)
    return module, spec


def working(job: JobSpec, reader: Reader) -> WorkingSet:
    return working_set(job, *built(job, reader), reader)


def test_allocated_and_freed_blocks_are_logged() -> None:
    def compute() -> None:
        first = torch.empty(1000)
        second = first.neg()
        del first
        third = torch.empty(500)
        del second, third

    assert [size for _, size in logged(compute)] == [4000, 4000, 0, 2000, 0, 0]
    numbers = [number for number, _ in logged(compute)]
    assert numbers == [0, 1, 0, 2, 1, 2]


def test_blocks_that_were_allocated_before_are_left_out() -> None:
    before = [torch.empty(1000)]
    assert [size for _, size in logged(before.clear)] == []


def test_sizes_of_other_batches_follow_from_two() -> None:
    few, many = ((0, 100 + 16 * 8), (1, 16 * 4), (0, 0), (1, 0)), ((0, 100 + 32 * 8), (1, 32 * 4), (0, 0), (1, 0))
    found = events_of(few, many, 16, 32)
    assert found[0] == TensorEvent(0, True, 100.0, 8.0)
    assert found[1] == TensorEvent(1, True, 0.0, 4.0)
    assert [event.is_made for event in found] == [True, True, False, False]


def test_batches_with_different_allocations_count_by_the_larger_one() -> None:
    found = events_of(((0, 64),), ((0, 320), (1, 640), (1, 0)), 16, 32)
    assert [(event.fixed_bytes, event.sample_bytes) for event in found] == [(0.0, 10.0), (0.0, 20.0), (0.0, 0.0)]


@pytest.mark.parametrize(("model", "lists"), [("dlrm", 0), ("wide_deep", 2), ("deepfm", 0), ("dcn", 0), ("xdeepfm", 0)])
def test_a_batch_of_another_size_takes_the_predicted_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, lists: int
) -> None:
    job, reader = job_of(tmp_path, model, lists=lists)
    told = working(job, reader)
    monkeypatch.setattr(footprint, "SAMPLES", 300)
    seen = working(job, reader)  # measured with a batch of 300
    for events, true in ((told.training, seen.training), (told.scoring, seen.scoring)):
        assert living_bytes(events, 300, ALL)[2] == pytest.approx(living_bytes(true, 300, ALL)[2], rel=0.02)
    assert living_bytes(told.training, 300, ALL)[2] > living_bytes(told.scoring, 300, ALL)[2] > 300 * 5 * 8 * 4


def test_a_dataset_of_one_sample_suffices(tmp_path: Path) -> None:
    found = working(*job_of(tmp_path, rows=1))
    assert living_bytes(found.training, 1, ALL)[2] > 0


def test_the_error_of_a_model_that_fails_is_raised(tmp_path: Path) -> None:
    job, reader = job_of(tmp_path)
    module, spec = built(job, reader)
    module.forward = partial(_fail)  # type: ignore[method-assign]
    with pytest.raises(Exception, match="no such thing"):
        working_set(job, module, spec, reader)


def _fail(*_: object) -> np.ndarray:
    raise ValueError("no such thing")
