"""What calls itself pure is.

Pure: what a function gives, or raises, follows from its arguments alone, and from constants of the machine such as
its page size; and nothing else happens. No clock, no chance without a seed, no environment, no files, no processes,
no threads, no sockets, no state of the module. An argument may be changed: a state machine that is an object has
methods that change it.

A module says so by a sentence of its docstring that begins with "Pure"; in a package's `__init__.py` it holds for all
of its modules. Of other modules of elastichost it may import types and constants, and functions only of those that
would pass. A function of a module that is not pure may say it for itself.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.purity import claims_purity, imported_functions, impurities, pure_functions, pure_modules

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "elastichost"
MODULES = tuple(pure_modules(PACKAGE))
# What decides: a claim that is dropped here must be missed.
DECIDING = (
    *sorted((PACKAGE / "supervisor" / "core").glob("*.py")),
    *sorted((PACKAGE / "dispatcher" / "core").glob("*.py")),
    *sorted((PACKAGE / "tuner").rglob("*.py")),
    *(PACKAGE / "supervisor" / "ledger" / f"{name}.py" for name in ("early_stopping", "ledger", "replay", "state")),
    PACKAGE / "runs" / "journal_replay.py",
    PACKAGE / "ps" / "session.py",
    PACKAGE / "worker" / "channels" / "exchange.py",
    PACKAGE / "chaos" / "invariants.py",
)


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def file_of(module: str, name: str) -> Path:
    """Of `from module import name`: a module of that name, else the module itself."""
    path = ROOT.joinpath(*module.split("."))
    candidates = (path / f"{name}.py", path / name / "__init__.py", path.with_suffix(".py"), path / "__init__.py")
    return next(one for one in candidates if one.exists())


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_what_calls_itself_pure_is(path: Path) -> None:
    tree = tree_of(path)
    assert not impurities(tree)
    used = {(module, name): file_of(module, name) for module, name in imported_functions(tree, "elastichost")}
    assert not {name: found for name, file in used.items() if (found := impurities(tree_of(file)))}


def test_functions_that_call_themselves_pure_are() -> None:
    found = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = tree_of(path)
        for function in pure_functions(tree):
            found += 1
            assert not impurities(tree, function), f"{path}: {function.name}"
    assert found >= 5


def test_what_decides_is_pure() -> None:
    assert not set(DECIDING) - set(MODULES)


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "import os.path as paths",
        "from time import monotonic",
        "def f():\n    import socket\n    return socket",
        "import threading\nLOCK = threading.Lock()",
        "from datetime import datetime\ndef f():\n    return datetime.now()",
        "import random\ndef f():\n    return random.random()",
        "import numpy as np\ndef f():\n    return np.random.default_rng()",
        "import numpy as np\ndef f():\n    return np.random.rand(3)",
        "from numpy.random import default_rng\ndef f():\n    return default_rng()",
        "import sys\ndef f():\n    return sys.argv",
        "from pathlib import Path\ndef f(path: Path):\n    return path.read_text()",
        "from pathlib import Path\ndef f():\n    return Path.cwd()",
        "def f(name):\n    return open(name)",
        "def f(text):\n    print(text)",
        "def f(text):\n    return eval(text)",
        "COUNT = 0\ndef f():\n    global COUNT\n    COUNT += 1",
        "from subprocess import run",
        "import zmq",
    ],
)
def test_what_is_not_pure_is_seen(source: str) -> None:
    assert impurities(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "import math\nimport numpy as np\ndef f(x):\n    return np.exp(x) + math.pi",
        "import numpy as np\ndef f(seed):\n    return np.random.default_rng(seed).uniform()",
        "import sys\ndef f():\n    return sys.maxsize",
        "from pathlib import PurePosixPath\ndef f(path):\n    return PurePosixPath(path).parent.resolve",
        "class C:\n    def open(self):\n        self.x = 1\n    def f(self):\n        self.open()",
        "def f(time):\n    return time + 1",
    ],
)
def test_what_is_pure_is_not_blamed(source: str) -> None:
    assert impurities(ast.parse(source)) == []


def test_a_function_is_told_from_the_module_around_it() -> None:
    tree = ast.parse(
        "import time\n"
        "def clean(now_s):\n    'Adds one. Pure.'\n    return now_s + 1\n"
        "def dirty():\n    'Pure.'\n    return time.monotonic()\n"
        "def other():\n    'Waits.'\n    time.sleep(1)\n"
    )
    assert {one.name: bool(impurities(tree, one)) for one in pure_functions(tree)} == {"clean": False, "dirty": True}


def test_a_claim_of_a_package_holds_for_its_modules(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "__init__.py").write_text('"""core is pure."""')
    (tmp_path / "core" / "__init__.py").write_text('"""Decides. Pure."""')
    (tmp_path / "core" / "plans.py").write_text('"""Plans."""')
    (tmp_path / "loop.py").write_text('"""Performs; `Pure` parts decide."""')
    (tmp_path / "values.py").write_text('"""Facts. Pure values."""')
    found = [str(path.relative_to(tmp_path)) for path in pure_modules(tmp_path)]
    assert found == ["core/__init__.py", "core/plans.py", "values.py"]


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Counts. Pure.", True),
        ("Pure: decides.", True),
        (None, False),
        ("A PurePath.", False),
        ("core is pure.", False),
    ],
)
def test_claims(docstring: str | None, expected: bool) -> None:
    assert claims_purity(docstring) is expected
