"""What pages name is there; pages are as short as they promise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents.snippets import ROOT, pages

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
NAMED = re.compile(r"`([\w/.-]+\.py)`")
FILES = {str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if ".venv" not in path.parts}


@pytest.mark.parametrize("page", [ARCHITECTURE, *pages()], ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    """A name may leave out the folders that the sentence has named before."""
    made = {"make_data.py", "model.py", "my_model.py", "pid_of.py"}  # files of the tutorials' readers
    missing = [
        name
        for name in NAMED.findall(page.read_text(encoding="utf-8"))
        if name not in made and not any(f"/{path}".endswith(f"/{name}") for path in FILES)
    ]
    assert not missing


def test_short_pages_stay_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
    assert len(ARCHITECTURE.read_bytes()) <= 12 * 1024
