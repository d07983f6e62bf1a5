"""Each notebook of `examples/notebooks` runs as a newcomer runs it: alone in an empty directory, in a real kernel."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import elastichost as eh
from tests.examples.kernels import ROOT, kernel_environment
from tests.system.test_run import folder

pytestmark = [pytest.mark.system, pytest.mark.timeout(200)]

__all__ = ["folder"]

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
LIMIT_S = 150


def executed(notebook: Path, folder: Path) -> list[Any]:
    """The code cells with their outputs. Raises CellExecutionError."""
    shutil.copy(notebook, folder)
    book = nbformat.read(folder / notebook.name, as_version=4)
    client = NotebookClient(book, timeout=LIMIT_S, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.execute(env=kernel_environment(folder))
    return [cell for cell in book.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_clean(notebook: Path) -> None:
    """No outputs, no numbers of executions, no facts of a machine; every part begins with a sentence."""
    book = nbformat.read(notebook, as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell for cell in code if cell.outputs or cell.execution_count is not None] == []
    assert set(book.metadata) == {"kernelspec", "language_info"}
    assert all(cell.metadata == {} for cell in book.cells)
    assert book.cells[0].cell_type == "markdown" and book.cells[0].source.startswith("# ")
    assert len({cell.id for cell in book.cells}) == len(book.cells)
    assert max(len(line) for cell in code for line in cell.source.splitlines()) <= 120


@pytest.mark.parametrize(
    "notebook",
    [
        pytest.param(path, marks=[] if path.stem == "quickstart" else pytest.mark.thorough, id=path.stem)
        for path in NOTEBOOKS
    ],
)
def test_a_notebook_runs_in_an_empty_directory(notebook: Path, folder: Path) -> None:
    cells = executed(notebook, folder)
    said = [output for cell in cells for output in cell.outputs]
    assert [output for output in said if output.output_type == "error"] == []
    assert [output.text for output in said if output.get("name") == "stderr"] == [], "nothing to worry a newcomer"
    runs = [eh.Run(path.parent) for path in sorted((folder / "runs").glob("*/job.resolved.toml"))]
    assert len(runs) >= 1
    for run in runs:
        assert run.status == "done" and run.samples["trained"] == run.samples["planned"]
        assert run.metrics["auc"] > 0.7, "the model has learned what is in the data"
