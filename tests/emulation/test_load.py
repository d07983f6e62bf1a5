"""The warning that the host has too few real cores for an emulated job."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.config.job import load_job
from elastichost.emulation.costs import scenario_of
from elastichost.emulation.load import cores_needed, shortage

EXAMPLE = Path(__file__).parents[2] / "examples" / "emulated.toml"


def said(host_cores: int, *settings: str) -> str:
    """The warning for the example on a host with this many cores; "": there is none."""
    job = load_job(EXAMPLE, settings, environ={})
    return shortage(job.resources, scenario_of(job), host_cores)


def test_the_example_fits_on_two_cores() -> None:
    assert said(2) == ""


def test_too_many_messages_are_a_warning_that_says_what_helps() -> None:
    many = ("resources.workers=200", "resources.servers=16", "emulate.compute_s=0.02", "emulate.serial_s=0.002")
    assert "200 emulated workers and 16 PS" in said(2, *many)
    assert "emulate.slowdown" in said(2, *many)
    assert said(2, *many, "emulate.slowdown=200") == ""
    assert said(1024, *many) == ""


def test_the_load_grows_with_workers_ps_and_speed_up_to_one_core_a_worker() -> None:
    of = scenario_of(load_job(EXAMPLE, environ={}))
    base = cores_needed(of, 10, 4, 1)
    assert cores_needed(of, 20, 4, 1) == pytest.approx(2 * base)
    assert cores_needed(of, 10, 8, 1) > base
    assert cores_needed(of, 10, 4, 4) > base
    assert cores_needed(of, 10, 100_000, 1) == pytest.approx(10)
