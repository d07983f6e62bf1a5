"""The section [data.remote]: the values it accepts, those it refuses, and that TOML keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.config.job import JobSpec, load_job, to_toml
from elastichost.errors import ConfigError

JOB = """
[model]
build = "elastichost.models:dlrm"
[data]
format = "synthetic"
"""


def load(folder: Path, *overrides: str) -> JobSpec:
    path = folder / "job.toml"
    path.write_text(JOB)
    return load_job(path, overrides, environ={})


def test_data_is_not_slowed_by_default(tmp_path: Path) -> None:
    remote = load(tmp_path).data.remote
    assert (remote.rate_bytes_per_s, remote.latency_s) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("20MB", 20e6),
        ("4MiB", 4 * 2**20),
        ("'1.5 KB'", 1500.0),
        ("7B", 7.0),
        ("0", 0.0),
        ("1", 1.0),
        ("2.5e6", 2.5e6),
        ("3_000", 3000.0),
    ],
)
def test_a_rate_is_a_size_or_a_number(tmp_path: Path, text: str, bytes_per_s: float) -> None:
    job = load(tmp_path, f"data.remote.bytes_per_s={text}", "data.remote.latency_s=0.05")
    assert job.data.remote.rate_bytes_per_s == bytes_per_s
    path = tmp_path / "again.toml"
    path.write_text(to_toml(job))
    assert load_job(path, environ={}) == job


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("bytes_per_s=-1", 'a number of bytes >= 1, or a size like "20MB"'),
        ("bytes_per_s=0.5", "0 (no limit)"),
        ("bytes_per_s=true", "a number of bytes >= 1"),
        ("bytes_per_s=inf", "a number of bytes >= 1"),
        ("bytes_per_s=nan", "a number of bytes >= 1"),
        (f"bytes_per_s=1{'0' * 400}", "a number of bytes >= 1"),
        (f"bytes_per_s=1{'0' * 400}MB", "a number of bytes >= 1"),
        ("bytes_per_s='20'", "a number of bytes >= 1"),
        ("bytes_per_s=0.1B", "a number of bytes >= 1"),
        ("bytes_per_s=50%", "a number of bytes >= 1"),
        ("bytes_per_s=20MB/s", "a number of bytes >= 1"),
        ("latency_s=-0.1", "a number >= 0"),
        ("latency_s=inf", "a number"),
        ("latency_s='1'", "a number >= 0"),
        ("latency=1", 'did you mean "latency_s"?'),
        ("readers=2", 'unknown setting; did you mean "data.input.readers"?'),
    ],
)
def test_a_refused_value_is_reported_with_the_allowed_ones(tmp_path: Path, setting: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"data.remote.{setting}")
    (problem,) = caught.value.problems
    assert problem.startswith("data.remote.")
    assert said in problem


def test_a_value_in_place_of_the_section_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "data.remote=20MB")
    (problem,) = caught.value.problems
    assert "a string was given; allowed: a section with settings" in problem
