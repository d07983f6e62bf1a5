"""Every command and file that README and the site show is typed by a test, or marked with the reason why not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from elastichost.config.job import load_job
from tests.documents.snippets import ROOT, blocks_of, pages, script_of

PAGES = pages()
WITH_COMMANDS = tuple(page for page in PAGES if any(block.kind == "command" for block in blocks_of(page)))
README = ROOT / "README.md"
TYPED_ELSEWHERE = {README: "`make run` and `make test` are what CI begins with"}
WHOLE_PAGE_S = 400


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_block_is_typed_or_says_why_not(page: Path) -> None:
    blocks_of(page)


@pytest.mark.thorough
@pytest.mark.long
@pytest.mark.timeout(WHOLE_PAGE_S)
@pytest.mark.parametrize("page", [page for page in WITH_COMMANDS if page not in TYPED_ELSEWHERE], ids=name_of)
def test_a_page_can_be_followed(page: Path, tmp_path: Path) -> None:
    """All of its commands in order, in a directory with its files and the examples."""
    blocks = blocks_of(page)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for block in blocks:
        if block.kind == "file":
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
    programs = str(Path(sys.executable).parent)
    environment = os.environ | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "ELASTICHOST_HISTORY": "off",
        "XDG_STATE_HOME": str(tmp_path),
        "NO_COLOR": "1",
    }
    typed = subprocess.run(
        ["bash", "-c", script_of(blocks)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert typed.returncode == 0, f"{typed.stdout[-3000:]}\n{typed.stderr[-3000:]}"


def test_job_files_that_are_shown_are_valid(tmp_path: Path) -> None:
    shown = [block for page in PAGES for block in blocks_of(page) if block.language == "toml"]
    assert len(shown) >= 3
    for block in shown:
        content = tomllib.loads(block.text)
        if "model" in content:
            path = tmp_path / "job.toml"
            path.write_text(block.text, encoding="utf-8")
            load_job(path, environ={})
