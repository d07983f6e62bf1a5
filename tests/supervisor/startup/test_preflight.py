"""Requirements of a job that this host does not meet are reported before any process is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from elastichost.config.job import load_job
from elastichost.errors import ConfigError, PreflightError
from elastichost.host.cpu_features import present_cpu
from elastichost.supervisor.startup.preflight import preflight

EXAMPLE = Path(__file__).parents[3] / "examples" / "synthetic.toml"


def test_a_search_by_nsga2_needs_pymoo_unless_the_tuner_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymoo", None)  # as if it were not installed
    with pytest.raises(ConfigError) as caught:
        preflight(load_job(EXAMPLE, ["tuner.search=nsga2"], {}))
    assert "needs pymoo" in caught.value.message and "elastichost[nsga2]" in caught.value.hint
    assert preflight(load_job(EXAMPLE, ["tuner.search=nsga2", "tuner.mode=off"], {})).plan.workers
    assert preflight(load_job(EXAMPLE, [], {})).plan.workers


def test_bfloat16_is_refused_on_a_cpu_without_units_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN's own variable switches the units off; the CPU is read again."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    present_cpu.cache_clear()
    try:
        with pytest.raises(PreflightError, match='train.precision = "bfloat16" would be slower') as refused:
            preflight(load_job(EXAMPLE, ["train.precision=bfloat16"], {}))
        assert "ONEDNN_MAX_CPU_ISA=AVX2" in refused.value.message
        assert 'set train.precision = "float32"' in refused.value.hint
        assert preflight(load_job(EXAMPLE, [], {})).plan.workers
    finally:
        present_cpu.cache_clear()


@pytest.mark.parametrize(("memory", "warns"), [("900TiB", True), ("1GiB", False), ("100%", False)])
def test_a_budget_of_more_memory_than_the_host_has_is_said(memory: str, warns: bool) -> None:
    found = preflight(load_job(EXAMPLE, [f"resources.memory={memory}"], {})).warnings
    assert any("is more than this host has" in warning for warning in found) is warns
