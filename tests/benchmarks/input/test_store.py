"""The benchmark of a store: both arms can be measured, and the copy in the store is removed."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness.runner import run
from benchmarks.input.cases import CASES, write_parquet
from benchmarks.input.store import LOCAL, REMOTE, SPEED, Extent, ratio_of, uploaded
from elastichost.datasets.files import expand_patterns
from tests.datasets.sources.s3_server import S3Server, s3_environment, store

__all__ = ["s3_environment", "store"]


def test_the_speed_on_a_store_is_compared_with_that_on_the_disk(tmp_path: Path, store: S3Server) -> None:
    write_parquet(tmp_path, 6_000)
    with uploaded(tmp_path / CASES[0].file, store.url("bench")) as url:
        assert url == store.url(f"bench/{CASES[0].file}")
        outcome = run(ratio_of(url, tmp_path, Extent(1, 6_000, 0.6, 0.3)))
    assert all(outcome.figure(SPEED.name, arm) is not None for arm in (LOCAL, REMOTE))
    assert outcome.benchmark.pairs[0].arm == REMOTE and outcome.benchmark.pairs[0].against == LOCAL
    assert expand_patterns([store.url("bench/*.parquet")])[0] == ()
