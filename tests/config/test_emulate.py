"""The section [emulate]: the values it accepts, those it refuses, and that TOML keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.config.job import JobSpec, load_job, to_toml
from elastichost.errors import ConfigError

EXAMPLE = Path(__file__).parents[2] / "examples" / "emulated.toml"
JOB = """
[model]
build = "elastichost.models:dlrm"
[data]
format = "synthetic"
[emulate]
enabled = true
"""


def load(folder: Path, *overrides: str) -> JobSpec:
    path = folder / "job.toml"
    path.write_text(JOB)
    return load_job(path, overrides, environ={})


def test_jobs_are_not_emulated_by_default(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(JOB.partition("[emulate]")[0])
    assert not load_job(path, environ={}).emulate.enabled


def test_the_example_is_the_same_after_toml(tmp_path: Path) -> None:
    job = load_job(EXAMPLE, ("emulate.scenario=server_bound", "emulate.new_ids.factor=2.5"), environ={})
    assert job.emulate.enabled
    path = tmp_path / "again.toml"
    path.write_text(to_toml(job))
    assert load_job(path, environ={}) == job


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("train.mode=sync", 'allowed: "async", "bounded"'),
        ("train.access=direct", "share no memory"),
        ("resources.gpus=[0, 1]", "virtual hosts have no GPUs"),
        ('emulate.memory_per_host="50%"', 'a size like "64GiB"'),
        ("emulate.skew=0.9", "<= 0.8"),
        ("emulate.hosts=0", ">= 1"),
        ("emulate.overlap=all", '"nothing"'),
        ("emulate.bandwidth_bytes_per_s=0", "> 0"),
        ("emulate.new_ids.exponent=1.5", "<= 1"),
        ("emulate.compute=1", 'did you mean "compute_s"'),
    ],
)
def test_a_refused_setting_is_named(tmp_path: Path, setting: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, setting)
    assert said in " ".join(caught.value.problems)


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, "train.mode=sync", "resources.gpus=1")
    assert len(caught.value.problems) == 2


def test_a_job_that_is_not_emulated_has_no_such_limits(tmp_path: Path) -> None:
    assert load(tmp_path, "emulate.enabled=false", "train.mode=sync").train.mode == "sync"
