"""The docstring of every package names each module and package in it, and none that does not exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = sorted(path.parent for room in ("elastichost", "benchmarks") for path in (ROOT / room).rglob("__init__.py"))
NAME = re.compile(r"[a-z_][a-z_0-9]*")
ENTRY = re.compile(r"^\s*([a-z_0-9]+/?(?:, [a-z_0-9]+/?)*)(?: {2,}\S.*)?$")  # "name, other/   what they are"


def content_of(package: Path) -> set[str]:
    """The names of the modules and packages directly in a package."""
    modules = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    return modules | {path.parent.name for path in package.glob("*/__init__.py")}


def docstring_of(package: Path) -> str:
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    return ast.get_docstring(tree) or ""


def entries_of(docstring: str) -> set[str]:
    """The names at the beginnings of lines, where two or more spaces and an explanation follow."""
    matches = (ENTRY.match(line) for line in docstring.splitlines() if "  " in line.strip())
    return {name.rstrip("/") for match in matches if match for name in match[1].split(", ")}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(ROOT)))
def test_the_map_of_a_package_names_what_is_in_it(package: Path) -> None:
    docstring, content = docstring_of(package), content_of(package)
    assert content <= set(NAME.findall(docstring)), f"not named: {content - set(NAME.findall(docstring))}"
    gone = entries_of(docstring) - content - {"__main__"}
    assert not gone, f"named, but they do not exist: {gone}"


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(ROOT)))
def test_a_package_has_at_most_14_files(package: Path) -> None:
    """A package with more files should be two packages."""
    assert len(list(package.glob("*.py"))) <= 14


def test_a_name_that_is_gone_is_found() -> None:
    assert entries_of("Maps.\n\n    here      this\n    gone, left/   that\n") == {"here", "gone", "left"}
