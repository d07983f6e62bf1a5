"""Exports of a run without training, and a server of one of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elastichost.results.export import export
from tests.results.conftest import HandMadeRun, make_run
from tests.serving.server_process import ServerProcess, served


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> HandMadeRun:
    return make_run(tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture(scope="session")
def program(trained: HandMadeRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of format pt2: it loads faster."""
    return export(trained.directory, tmp_path_factory.mktemp("exports") / "program", format="pt2").directory


@pytest.fixture(scope="session")
def other_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of another run, with other scores."""
    folder = tmp_path_factory.mktemp("other")
    run = make_run(folder / "run", build="elastichost.models:deepfm", args="{ hidden = [4] }")
    return export(run.directory, folder / "program", format="pt2").directory


@pytest.fixture(scope="module")
def server(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    options = {"max-rows": 50, "max-body-mib": 1, "timeout-s": 2}
    with served(program, tmp_path_factory.mktemp("server"), options) as process:
        yield process


@pytest.fixture(scope="session")
def rows(trained: HandMadeRun) -> list[dict[str, Any]]:
    """The samples as JSON rows. JSON has no NaN; a null means the same."""
    samples = trained.table.drop_columns(["label", "other"]).to_pylist()
    return [{name: None if value != value else value for name, value in row.items()} for row in samples]
