"""The estimate compared with the peaks of real processes: no job needs a tenth more than was estimated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.harness.workshop import ROOT, Workshop
from benchmarks.memory_estimate.job_runner import JobRunner
from benchmarks.memory_estimate.job_shapes import JobShape

pytestmark = [pytest.mark.system, pytest.mark.thorough, pytest.mark.long, pytest.mark.timeout(300)]

MOST_UNDER = 0.1
SHAPES = (
    JobShape("bases only", rows=1000, id_range=1000, tables=4, dim=8, batch=256, samples=60_000),
    JobShape("many scored batches", test=300_000, batch=1024, samples=60_000),
    JobShape("two workers", workers=2, batch=1024, samples=200_000),
    JobShape("dynamic, served", rows=0, id_range=300_000, samples=100_000, access="served", batch=1024),
    JobShape("lists of one id from files", data="parquet", model="wide_deep", samples=100_000, batch=1024),
    JobShape("wide batches", model="deepfm", batch=4096, tables=26, dim=64, rows=20_000, samples=60_000),
    JobShape("periodic checkpoints", every_s=1.0, rows=300_000, id_range=300_000, samples=400_000),
)


@pytest.fixture(scope="module")
def runner() -> Iterator[JobRunner]:
    with pytest.MonkeyPatch.context() as patch, Workshop() as workshop:
        for name, value in workshop.environment().items():
            patch.setenv(name, value)
        patch.setenv("ELASTICHOST_ARENA_DIR", str(workshop.memory))
        patch.setenv("ELASTICHOST_HISTORY", "off")
        patch.setenv("PYTHONPATH", str(ROOT))
        with JobRunner(workshop, with_roles=True) as made:
            yield made


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_no_job_needs_a_tenth_more_than_was_estimated(runner: JobRunner, shape: JobShape) -> None:
    one = runner.see(shape)
    parts = {part.name: round(part.bytes / 1e6, 1) for part in one.estimate.parts}
    print(f"{shape.name}: {one.error:+.1%}; {parts}; {one.peak}")
    assert one.error >= -MOST_UNDER, f"{one.error:+.1%}: {parts}; {one.peak}"
