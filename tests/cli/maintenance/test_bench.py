"""`bench`: finds the benchmarks of the source tree and passes them their arguments."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from elastichost.cli.maintenance import bench
from tests.cli.conftest import Elastichost


def test_without_a_name_it_lists_all_benchmarks(elastichost: Elastichost) -> None:
    outcome = elastichost("bench")
    assert outcome.code == 0
    names = [line.split()[0] for line in outcome.stdout.splitlines()]
    assert {"data-plane", "retail-quality"} <= set(names)
    assert "figures" not in names


def test_arguments_after_the_name_go_to_the_benchmark(elastichost: Elastichost) -> None:
    outcome = elastichost("bench", "data-plane", "--help")
    assert outcome.code == 0
    assert outcome.stdout.startswith("usage: elastichost bench data-plane")
    assert "--tensorflow-python" in outcome.stdout


def test_arguments_that_are_wrong_end_with_2(elastichost: Elastichost) -> None:
    outcome = elastichost("bench", "data-plane", "--only", "direct2,nobody")
    assert outcome.code == 2
    assert "nobody: choose from tbe1" in outcome.stderr


def test_an_unknown_name_ends_with_2_and_a_suggestion(elastichost: Elastichost) -> None:
    outcome = elastichost("bench", "data-plan")
    assert (outcome.code, outcome.stdout) == (2, "")
    assert 'did you mean "data-plane"?' in outcome.stderr


def test_an_installed_package_names_the_place_of_the_benchmarks(
    elastichost: Elastichost, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    outcome = elastichost("bench", "data-plane")
    assert outcome.code == 2
    assert "clone the source tree" in outcome.stderr


def test_a_benchmark_whose_package_is_missing_names_it(
    elastichost: Elastichost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)  # as if it were not installed
    for name in [name for name in sys.modules if name.startswith(("benchmarks.gpu", "elastichost.gpu"))]:
        monkeypatch.delitem(sys.modules, name)
    outcome = elastichost("bench", "gpu", "--help")
    assert outcome.code == 3
    assert "the benchmark gpu needs the package triton, which is not installed" in outcome.stderr
    assert "`make test` installs what benchmarks need" in outcome.stderr
