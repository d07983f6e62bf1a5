"""NSGA-II is imported before the first decision, and only where a decision may use it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from elastichost.errors import ConfigError
from elastichost.tuner.facts import Configuration
from elastichost.tuner.policy.candidates import Bounds
from elastichost.tuner.policy.frontier import require_nsga2
from elastichost.tuner.policy.search_space import Search, may_use_nsga2, search_space

MANY = Bounds(Configuration(1, 1), Configuration(200, 50))
FEW = Bounds(Configuration(1, 1), Configuration(20, 5))


@pytest.mark.parametrize(
    ("bounds", "search", "expected"),
    [(MANY, "nsga2", True), (FEW, "nsga2", False), (MANY, "auto", False), (MANY, "exact", False)],
)
def test_may_use_nsga2_depends_on_setting_and_bounds(bounds: Bounds, search: Search, expected: bool) -> None:
    assert may_use_nsga2(bounds, search) == expected


def in_a_new_process(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


IMPORTED = """
import sys
import numpy as np
from elastichost.supervisor.autoscale.tuner_loop import _import_solvers
from elastichost.tuner.policy.candidates import Bounds
from elastichost.tuner.facts import Configuration, Workload
from elastichost.tuner.policy.policy import TunerSettings
from elastichost.tuner.policy.search_space import search_space

most = Configuration({most})
settings = TunerSettings(Workload(100), Bounds(Configuration(1, 1), most), search="{search}")
_import_solvers(settings)
before = set(sys.modules)
found = search_space(settings.bounds, settings.search, lambda array: -np.abs(array[:, 0] - 30.0), 7)
late = sorted(set(sys.modules) - before)
print(len(found) > 0, "pymoo" in before, late)
"""


@pytest.mark.thorough
def test_a_decision_imports_no_further_modules() -> None:
    assert in_a_new_process(IMPORTED.format(most="200, 50", search="nsga2")) == "True True []"


def test_other_searches_do_not_import_pymoo() -> None:
    assert in_a_new_process(IMPORTED.format(most="200, 50", search="auto")) == "True False []"


def test_without_pymoo_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    require_nsga2()
    monkeypatch.setitem(sys.modules, "pymoo", None)  # simulates that pymoo is not installed
    with pytest.raises(ConfigError, match=r"(?s)needs pymoo.*pip install .elastichost\[nsga2\]"):
        search_space(MANY, "nsga2", lambda array: array[:, 0], 7)
    assert len(search_space(MANY, "auto", lambda array: array[:, 0], 7))
