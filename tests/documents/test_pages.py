"""Files and symbols that pages name are there; pages are as short as they promise."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.documents.snippets import ROOT, pages

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
NAMED = re.compile(r"`([\w/.-]+\.py)`")
FILES = {str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if ".venv" not in path.parts}

# "`ps/loop.py` `_fence`", "`worker/loop.py` `WorkerLoop._train`", "`hang_reason` in `core/liveness.py`", and a row of a
# table that has a file in one cell and symbols in the next.
SYMBOL = r"`([A-Za-z_]\w*(?:\.\w+)?)`"
FILE_THEN_SYMBOLS = re.compile(rf"`([\w/.-]+\.py)` ({SYMBOL}(?:, {SYMBOL})*)")
SYMBOL_IN_FILE = re.compile(rf"{SYMBOL} in `([\w/.-]+\.py)`")
ROW = re.compile(r"\| `([\w/.-]+\.py)` \| ([^|]+) \|")


@pytest.mark.parametrize("page", [ARCHITECTURE, *pages()], ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    """A name may leave out the folders that the sentence has named before."""
    made = {"make_data.py", "model.py", "my_model.py", "pid_of.py"}  # files of the tutorials' readers
    missing = [
        name for name in NAMED.findall(page.read_text(encoding="utf-8")) if name not in made and not files_called(name)
    ]
    assert not missing


@pytest.mark.parametrize("page", [ARCHITECTURE, *pages()], ids=lambda page: str(page.relative_to(ROOT)))
def test_symbols_are_defined_in_the_files_that_are_named(page: Path) -> None:
    wrong = [
        f"{symbol} in {name}"
        for name, symbol in named_symbols(page.read_text(encoding="utf-8"))
        if not any(symbol in defined(path) for path in files_called(name))
    ]
    assert not wrong


def test_the_walks_name_symbols() -> None:
    """Otherwise the test above could not fail."""
    assert len(list(named_symbols(ARCHITECTURE.read_text(encoding="utf-8")))) >= 20
    pair = "elastichost/config/sections/schema.py"
    assert "RowOptimizerName" not in defined(pair), "an import is not a definition"
    assert "RowOptimizerSettings" in defined(pair)


def named_symbols(text: str) -> Iterator[tuple[str, str]]:
    for found in FILE_THEN_SYMBOLS.finditer(text):
        for symbol in re.findall(SYMBOL, found[2]):
            yield found[1], symbol
    for found in SYMBOL_IN_FILE.finditer(text):
        yield found[2], found[1]
    for found in ROW.finditer(text):
        for symbol in re.findall(SYMBOL, found[2]):
            yield found[1], symbol


def files_called(name: str) -> list[str]:
    return [path for path in FILES if f"/{path}".endswith(f"/{name}")]


def defined(path: str) -> set[str]:
    """Functions, classes and constants of a file; members also as Class.member."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        found |= names_of(node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for member in ast.walk(node) for name in names_of(member)}
    return found


def names_of(node: ast.AST) -> set[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Assign():
            return {one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def test_short_pages_stay_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
    assert len(ARCHITECTURE.read_bytes()) <= 12 * 1024
