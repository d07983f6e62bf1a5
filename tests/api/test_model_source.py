"""The source of a model that is defined in a notebook cell, written as a module of its own."""

from __future__ import annotations

import linecache
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elastichost.api.model_source import build_spec, source_of
from elastichost.errors import ModelError
from elastichost.models import dlrm

Run = Callable[[str], dict[str, Any]]


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs the text of a cell in the module __main__, as a notebook does: every cell is a file in linecache."""
    main = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    count = 0

    def run(text: str) -> dict[str, Any]:
        nonlocal count
        count += 1
        name = f"<cell {count}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec", dont_inherit=True), main.__dict__)
        return main.__dict__

    yield run
    for number in range(1, count + 1):
        linecache.cache.pop(f"<cell {number}>", None)


def loaded(text: str) -> dict[str, Any]:
    """The names of the written module, in a fresh namespace."""
    found: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, "model.py", "exec", dont_inherit=True), found)
    return found


def test_a_function_brings_all_that_it_uses(cell: Run) -> None:
    cell("import math as m\nimport os.path\nfrom fractions import Fraction\nSCALE = 3\nSIZES = [1, (2, 'x')]\n")
    cell("def helper(x):\n    return twice(x) * SCALE\n\ndef twice(x):\n    return 2 * x\n")
    found = cell(
        "class Layer:\n    unused = SIZES\n\n    def forward(self, x):\n        return helper(x) + m.floor(1.5)\n\n"
        "def build(tables, num_dense, *, half=Fraction(1, 2)):\n"
        "    return Layer().forward(len(tables)) + num_dense + half + len(os.path.sep)\n"
    )
    text = source_of(found["build"])
    assert loaded(text)["build"]([1, 2], 5) == found["build"]([1, 2], 5)
    assert "import math as m" in text and "from fractions import Fraction" in text


def test_a_number_of_numpy_is_a_plain_number(cell: Run) -> None:
    """A mean of a data frame is one."""
    found = cell("import numpy\nMEAN = numpy.float64(0.25)\ndef build(tables, num_dense):\n    return MEAN\n")
    assert loaded(source_of(found["build"]))["build"](None, 0) == 0.25


def test_the_newest_definition_of_a_name_counts(cell: Run) -> None:
    cell("WIDTH = 1\ndef inner():\n    return WIDTH\n")
    cell("def build(tables, num_dense):\n    return inner()\n")
    found = cell("WIDTH = 7\ndef inner():\n    return WIDTH + 1\n")
    assert loaded(source_of(found["build"]))["build"](None, 0) == 8


def test_decorators_and_base_classes_come_too(cell: Run) -> None:
    found = cell(
        "import functools\n"
        "def plus_one(f):\n    @functools.wraps(f)\n    def inner(*a):\n        return f(*a) + 1\n    return inner\n"
        "class Base:\n    def value(self):\n        return 4\n"
        "class Derived(Base):\n    def value(self):\n        return super().value() + 1\n"
        "def add(x):\n    return x + Derived().value()\n"
        "def build(tables, num_dense):\n    return add(num_dense)\n"
    )
    assert loaded(source_of(found["build"]))["build"](None, 1) == 6


def test_dataclasses_are_found_by_their_own_methods(cell: Run) -> None:
    found = cell(
        "from dataclasses import dataclass\n"
        "@dataclass\nclass Shape:\n    width: int = 2\n\n    def area(self):\n        return self.width ** 2\n"
        "def build(tables, num_dense):\n    return Shape(num_dense).area()\n"
    )
    assert loaded(source_of(found["build"]))["build"](None, 3) == 9


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import threading\nlock = threading.Lock()\ndef build(t, n):\n    return lock\n", "'lock', which is a lock"),
        ("def build(t, n):\n    return missing(t)\n", "'missing', which is not defined"),
        ("def f(k):\n    def build(t, n):\n        return k\n    return build\nbuild = f(1)\n", "around build: k"),
        ("build = lambda t, n: 1\n", "'<lambda>'"),
        ("import enum\nRED = enum.IntEnum('Color', 'RED').RED\ndef build(t, n):\n    return RED\n", "which is a Color"),
        ("nan = float('nan')\ndef build(t, n):\n    return nan\n", "'nan', which is a float"),
    ],
)
def test_what_has_no_source_is_refused_with_the_way_out(cell: Run, text: str, said: str) -> None:
    with pytest.raises(ModelError) as caught:
        source_of(cell(text)["build"])
    assert said in caught.value.message
    assert caught.value.hint


def test_an_object_is_not_a_build_function() -> None:
    with pytest.raises(ModelError, match="not a function"):
        source_of(len)


def test_a_function_of_a_module_stays_where_it_is(tmp_path: Path) -> None:
    assert build_spec(dlrm, tmp_path).startswith("elastichost.models.")
    assert list(tmp_path.iterdir()) == []


def test_a_function_of_a_file_is_named_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nets_of_test.py").write_text("def build(tables, num_dense):\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import nets_of_test  # type: ignore[import-not-found]

    assert build_spec(nets_of_test.build, tmp_path) == f"{tmp_path}/nets_of_test.py:build"


def test_a_function_of_a_cell_is_written_to_a_file(cell: Run, tmp_path: Path) -> None:
    found = cell("def build(tables, num_dense):\n    return 3\n")
    assert build_spec(found["build"], tmp_path) == f"{tmp_path}/model.py:build"
    assert loaded((tmp_path / "model.py").read_text())["build"](None, 0) == 3
