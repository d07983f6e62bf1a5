"""Requirements of a job that this host does not meet are reported before any process is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from elastichost.config.job import load_job
from elastichost.errors import ConfigError
from elastichost.supervisor.startup.preflight import preflight

EXAMPLE = Path(__file__).parents[3] / "examples" / "synthetic.toml"


def test_a_search_by_nsga2_needs_pymoo_unless_the_tuner_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymoo", None)  # as if it were not installed
    with pytest.raises(ConfigError) as caught:
        preflight(load_job(EXAMPLE, ["tuner.search=nsga2"], {}))
    assert "needs pymoo" in caught.value.message and "elastichost[nsga2]" in caught.value.hint
    assert preflight(load_job(EXAMPLE, ["tuner.search=nsga2", "tuner.mode=off"], {})).plan.workers
    assert preflight(load_job(EXAMPLE, [], {})).plan.workers
