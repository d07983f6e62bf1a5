"""The job files of all shapes are valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.memory_estimate.job_shapes import JobShape, cases, drawn
from elastichost.config.job import load_job


@pytest.mark.parametrize("shape", [*(s for s in cases() if s.data == "synthetic"), *drawn(12, 3)], ids=lambda s: s.name)
def test_job_files_are_legal(shape: JobShape, tmp_path: Path) -> None:
    if shape.data == "synthetic":
        path = tmp_path / "job.toml"
        path.write_text(shape.text(tmp_path))
        assert load_job(path, environ={}).train.batch_size == shape.batch


def test_every_job_has_a_name_of_its_own() -> None:
    names = [shape.name for shape in (*cases(), *drawn(20, 0), *drawn(20, 1))]
    assert len(set(names)) == len(names)
