"""Modules and functions that claim to be pure are pure.

Pure: the result or error of a function follows from its arguments and from constants of the machine, such as its page
size, and nothing else happens. It uses no clock, no random numbers without a seed, no environment, no files, no
processes, no threads, no sockets and no state of the module. It may change an argument: a state machine that is an
object has methods that change it.

A module claims it with a sentence of its docstring that begins with "Pure"; in a package's `__init__.py` the sentence
holds for all its modules. From other modules of elastichost a pure module may import types and constants, but
functions only from modules that would pass. A function may claim it for itself in a module that is not pure.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.purity import claims_purity, imported_functions, impurities, pure_functions, pure_modules

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "elastichost"
MODULES = tuple(pure_modules(PACKAGE))
# Modules that decide. They must claim to be pure, so that a claim that is removed is noticed.
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
    """The file that `from module import name` loads: a module called `name`, otherwise the module itself."""
    path = ROOT.joinpath(*module.split("."))
    candidates = (path / f"{name}.py", path / name / "__init__.py", path.with_suffix(".py"), path / "__init__.py")
    return next(one for one in candidates if one.exists())


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_that_claims_to_be_pure_is_pure(path: Path) -> None:
    tree = tree_of(path)
    assert not impurities(tree)
    used = {(module, name): file_of(module, name) for module, name in imported_functions(tree, "elastichost")}
    assert not {name: found for name, file in used.items() if (found := impurities(tree_of(file)))}


def test_functions_that_claim_to_be_pure_are_pure() -> None:
    found = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = tree_of(path)
        for function in pure_functions(tree):
            found += 1
            assert not impurities(tree, function), f"{path}: {function.name}"
    assert found >= 5


def test_modules_that_decide_claim_to_be_pure() -> None:
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
def test_impure_code_is_found(source: str) -> None:
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
def test_pure_code_passes(source: str) -> None:
    assert impurities(ast.parse(source)) == []


def test_a_pure_function_may_be_in_an_impure_module() -> None:
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
