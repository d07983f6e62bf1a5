"""A user's model: how it is found, checked without running it, and built; and the traceback when it fails."""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torchrec import PoolingType

from elastichost.config.job import JobSpec
from elastichost.errors import ModelError
from elastichost.specs import TableSpec
from elastichost.user_model.build import build_model, check_build_source, load_build, table_configs, torchrec_names
from elastichost.user_model.fresh_modules import fresh_modules
from elastichost.user_model.source import import_path, imported_files, local_sources, parse_build_spec

GOOD = """\
import torch
from helper_of_model import scale


class Model(torch.nn.Module):
    def __init__(self, tables, num_dense, factor):
        super().__init__()
        self.tables, self.num_dense, self.factor = tables, num_dense, factor * scale


def build(tables, num_dense, factor=1):
    return Model(tables, num_dense, factor)
"""
TABLES = (
    TableSpec(name="item", index=0, features=("item", "recent"), key_kind="int", rows=10),
    TableSpec(name="user", index=1, features=("user",), key_kind="string", rows=0),
)


def write(directory: Path, text: str, name: str = "model.py") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def job(build: str, *, label: list[str] | str = "label", **args: Any) -> JobSpec:
    return JobSpec.model_validate(
        {
            "model": {"build": build, "args": args},
            "data": {"train": ["t.parquet"], "label": label, "categorical": ["user", "item", "recent"]},
            "tables": {"default": {"dim": 8}, "item": {"features": ["item", "recent"], "dim": 4, "pooling": "mean"}},
        }
    )


@pytest.fixture
def good(tmp_path: Path) -> Path:
    write(tmp_path, "scale = 10\n", "helper_of_model.py")
    return write(tmp_path, GOOD)


def model_error(what: Any, *args: Any, **kwargs: Any) -> ModelError:
    """Calls a function; returns the ModelError that it must raise."""
    with pytest.raises(ModelError) as caught:
        what(*args, **kwargs)
    return caught.value


# --- loading and building ------------------------------------------------------------------------------


def test_a_file_is_loaded_with_the_modules_beside_it(good: Path) -> None:
    before = list(sys.path)
    build = load_build("model.py:build", good.parent)
    assert build([], 0).factor == 10
    assert sys.path == before


def test_a_module_is_loaded_by_name() -> None:
    from elastichost.models.networks import dlrm

    assert load_build("elastichost.models:dlrm", Path("/")) is dlrm.build


def test_a_file_named_like_an_installed_module_does_not_shadow_it(tmp_path: Path) -> None:
    import json

    write(tmp_path, "def build(tables, num_dense): return 5\n", "json.py")
    assert load_build("json.py:build", tmp_path)([], 0) == 5
    assert sys.modules["json"] is json


def test_configs_are_made_from_the_job() -> None:
    item, user = table_configs(job("a:b"), TABLES, {"item": 10, "user": 2**40})
    assert (item.name, item.embedding_dim, item.num_embeddings, item.feature_names) == (
        "item",
        4,
        10,
        ["item", "recent"],
    )
    assert (item.pooling, user.pooling) == (PoolingType.MEAN, PoolingType.SUM)
    assert (user.embedding_dim, user.num_embeddings) == (8, 2**40)


def test_table_names_that_modules_cannot_have_are_changed() -> None:
    names = ["type", "user", "a.b", "a_b", "items"]
    tables = [TableSpec(name=n, index=i, features=(n,), key_kind="int", rows=9) for i, n in enumerate(names)]
    assert list(torchrec_names(tables).values()) == ["type_table", "user", "a_b", "a_b_table", "items_table"]


def test_build_gets_configs_num_dense_and_args(good: Path) -> None:
    model: Any = build_model(job(f"{good}:build", factor=3), TABLES, {"item": 10, "user": 4}, 2, 1)
    assert (model.factor, model.num_dense, [t.name for t in model.tables]) == (30, 2, ["item", "user"])


def test_a_warning_for_authors_of_tracers_is_not_shown(good: Path) -> None:
    build_model(job(f"{good}:build"), TABLES, {"item": 10, "user": 4}, 2, 1)
    tracer = logging.getLogger("torch.fx._symbolic_trace")
    assert not tracer.filter(logging.makeLogRecord({"msg": "is_fx_tracing will return true for both"}))
    assert tracer.filter(logging.makeLogRecord({"msg": "another warning"}))


def test_num_labels_is_passed_only_when_there_are_several(tmp_path: Path) -> None:
    text = "import torch\ndef build(tables, num_dense, **args):\n    m = torch.nn.Module(); m.args = args; return m\n"
    file = write(tmp_path, text)
    rows = {"item": 10, "user": 4}
    assert build_model(job(f"{file}:build"), TABLES, rows, 0, 1).args == {}
    assert build_model(job(f"{file}:build", label=["a", "b"]), TABLES, rows, 0, 2).args == {"num_labels": 2}


# --- failures while it runs ----------------------------------------------------------------------------


def test_an_import_failure_shows_the_users_frames_only(tmp_path: Path) -> None:
    write(tmp_path, "def fail():\n    return 1 / 0\n", "helper_that_fails.py")
    file = write(tmp_path, "from helper_that_fails import fail\nfail()\n")
    error = model_error(load_build, f"{file}:build", tmp_path)
    assert "ZeroDivisionError: division by zero" in error.message
    lines = error.traceback_text.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{file}", line 2, in <module>'
    assert "user_model/build.py" not in error.traceback_text
    assert "importlib" not in error.traceback_text


def test_a_syntax_error_is_shown_as_python_shows_it(tmp_path: Path) -> None:
    file = write(tmp_path, "def build(:\n    pass\n")
    for check in (load_build, check_build_source):
        error = model_error(check, f"{file}:build", tmp_path)
        assert f'File "{file}", line 1' in error.traceback_text
        assert "SyntaxError" in error.traceback_text
        assert "elastichost" not in error.traceback_text


def test_a_module_that_exits_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path, "import sys\nsys.exit(3)\n")
    assert "SystemExit: 3" in model_error(load_build, f"{file}:build", tmp_path).message


def test_a_name_that_does_not_exist_or_is_not_a_function(tmp_path: Path) -> None:
    file = write(tmp_path, "build_model = 5\n")
    assert 'did you mean "build_model"?' in model_error(load_build, f"{file}:buildmodel", tmp_path).message
    assert "is a int, not a function" in model_error(load_build, f"{file}:build_model", tmp_path).message


def test_an_error_inside_build_shows_the_users_frames_only(tmp_path: Path) -> None:
    file = write(tmp_path, "def build(tables, num_dense):\n    return tables[5]\n")
    error = model_error(build_model, job(f"{file}:build"), TABLES, {"item": 10, "user": 4}, 0, 1)
    assert f'File "{file}", line 2, in build' in error.traceback_text
    assert "user_model/build.py" not in error.traceback_text
    assert "IndexError" in error.message


def test_a_build_function_that_exits_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path, "import sys\n\ndef build(tables, num_dense):\n    sys.exit('no licence')\n")
    error = model_error(build_model, job(f"{file}:build"), TABLES, {"item": 10, "user": 4}, 0, 1)
    assert "SystemExit: no licence" in error.message


def test_an_argument_the_function_does_not_take_is_named(good: Path) -> None:
    error = model_error(build_model, job(f"{good}:build", factr=3), TABLES, {"item": 10, "user": 4}, 0, 1)
    assert error.hint == 'model.args.factr is not an argument of the build function; did you mean "factor"?'


def test_several_labels_and_a_function_without_num_labels(good: Path) -> None:
    error = model_error(build_model, job(f"{good}:build", label=["a", "b"]), TABLES, {"item": 10, "user": 4}, 0, 2)
    assert "must accept num_labels" in error.hint


def test_build_must_return_a_module(tmp_path: Path) -> None:
    file = write(tmp_path, "def build(tables, num_dense):\n    return 7\n")
    error = model_error(build_model, job(f"{file}:build"), TABLES, {"item": 10, "user": 4}, 0, 1)
    assert "returned a int, not a torch.nn.Module" in error.message


# --- the check that runs nothing -----------------------------------------------------------------------


def test_the_check_accepts_a_good_model(good: Path) -> None:
    check_build_source("model.py:build", good.parent)
    check_build_source("elastichost.models:xdeepfm", good.parent)


def test_the_check_imports_neither_torch_nor_the_users_module(tmp_path: Path) -> None:
    write(tmp_path, "import torch\nraise RuntimeError('ran')\ndef build(tables, num_dense): ...\n")
    code = (
        "import sys; from pathlib import Path; from elastichost.user_model.build import check_build_source as check\n"
        f"check('model.py:build', Path({str(tmp_path)!r})); check('elastichost.models:dlrm', Path('.'))\n"
        "assert not {'torch', 'torchrec', 'model'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_module_is_shown_as_python_would(tmp_path: Path) -> None:
    file = write(tmp_path, "import torch\nimport torhrec.modules as tm\ndef build(tables, num_dense): ...\n")
    error = model_error(check_build_source, "model.py:build", tmp_path)
    assert error.traceback_text == (
        "Traceback (most recent call last):\n"
        f'  File "{file}", line 2, in <module>\n'
        "    import torhrec.modules as tm\n"
        "ModuleNotFoundError: No module named 'torhrec'\n"
    )


def test_a_missing_module_of_a_module_beside_the_file_is_found_too(good: Path) -> None:
    helper = write(good.parent, "import not_installed_anywhere\nscale = 1\n", "helper_of_model.py")
    assert f"{helper}, line 1" in model_error(check_build_source, "model.py:build", good.parent).message


def test_guarded_and_late_imports_are_not_checked(tmp_path: Path) -> None:
    text = (
        "try:\n    import not_installed_anywhere\nexcept ImportError:\n    pass\n"
        "def build(tables, num_dense):\n    import not_installed_either\n"
    )
    check_build_source(f"{write(tmp_path, text)}:build", tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "build = lambda tables, num_dense: None\n",
        "from json import loads as build\n",
        "if True:\n    def build(tables, num_dense): ...\n",
        "try:\n    from fast import build\nexcept ImportError:\n    def build(tables, num_dense): ...\n",
        "from json import *\n",
        "class build: ...\n",
        "def __getattr__(name): ...\n",
    ],
)
def test_every_way_to_define_a_name_counts(tmp_path: Path, text: str) -> None:
    check_build_source(f"{write(tmp_path, text)}:build", tmp_path)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("model.py:biuld", r"""defines no 'biuld'; did you mean "build"?"""),
        ("modl.py:build", r"""there is no file .*modl.py; did you mean "model.py"?"""),
        ("elastichost.models:dlmr", r"""defines no 'dlmr'; did you mean "dlrm"?"""),
        ("elastichost.modles:dlrm", "there is no module 'elastichost.modles'"),
        ("no_such_package:build", "there is no module 'no_such_package'"),
        ("model.py", "does not name a function"),
        ("model.py:two words", "does not name a function"),
        ("a-b:build", "does not name a function"),
    ],
)
def test_the_message_for_a_wrong_spec(good: Path, spec: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        check_build_source(spec, good.parent)


def test_local_sources_follow_imports_between_modules_beside_each_other(good: Path) -> None:
    helper = write(good.parent, "import deeper_helper\nimport json\nscale = 1\n", "helper_of_model.py")
    deeper = write(good.parent, "import model\n", "deeper_helper.py")
    assert local_sources(good) == (deeper, helper)


def test_imported_files_are_modules_and_packages_wherever_the_import_stands(good: Path, tmp_path: Path) -> None:
    write(good.parent, "def build(tables, num_dense):\n    import layers.cross\n    import json, torch, elastichost\n")
    for folder in ("layers/deep", "torch", "elastichost", "unused"):
        (good.parent / folder).mkdir(parents=True)
    for text, name in (
        ("", "layers/__init__.py"),
        ("from .deep import one\nimport helper_of_layers\n", "layers/cross.py"),
        ("this is no Python", "layers/deep/one.py"),
        ("", "torch/no_package.py"),
        ("", "elastichost/__init__.py"),
        ("", "unused/__init__.py"),
        ("import model", "helper_of_layers.py"),
    ):
        write(good.parent, text, name)
    names = ["helper_of_layers.py", "layers/__init__.py", "layers/cross.py", "layers/deep/one.py"]
    assert imported_files(good, good.parent) == (good, *(good.parent / name for name in names))
    cross = good.parent / "layers" / "cross.py"
    assert set(imported_files(cross, good.parent)) == {good, *(good.parent / name for name in names)}


@pytest.mark.parametrize("late", [False, True], ids=["at the top", "within build"])
def test_two_models_in_one_process_have_modules_of_one_name(tmp_path: Path, late: bool) -> None:
    """With the modules of the other model the scores would be wrong without an error: only names and shapes are
    compared with the checkpoint."""
    for number in (1, 2):
        folder = tmp_path / f"model_{number}"
        (folder / "layers_of_two").mkdir(parents=True)
        write(folder / "layers_of_two", "from .one import NUMBER", "__init__.py")
        write(folder / "layers_of_two", f"NUMBER = {number}", "one.py")
        inner, outer = ("    import layers_of_two\n", "") if late else ("", "import layers_of_two\n")
        returns = "    made = torch.nn.Linear(1, 1)\n    made.number = layers_of_two.NUMBER\n    return made\n"
        write(folder, f"import torch\n{outer}\n\ndef build(tables, num_dense):\n{inner}{returns}")
    for number in (1, 2, 1):
        spec = f"{tmp_path}/model_{number}/model.py:build"
        made = build_model(job(spec), TABLES, {"item": 10, "user": 4}, 2, 1)
        assert made.number == number
    sys.modules.pop("layers_of_two")


def made_by(file: Path) -> Any:
    """What the model of a file gets from its module `part_of_test`, which counts how often it was executed."""
    return load_build(f"{file}:build", file.parent)([], 0)


@pytest.fixture
def parted(tmp_path: Path) -> Iterator[Path]:
    """A model that imports two modules, of which one imports the other."""
    write(tmp_path, "from inner_part_of_test import VALUE\nEXECUTED = object()\n", "part_of_test.py")
    write(tmp_path, "VALUE = 1\n", "inner_part_of_test.py")
    yield write(
        tmp_path, "import part_of_test as p\n\n\ndef build(tables, num_dense):\n    return p.VALUE, p.EXECUTED\n"
    )
    for name in ("part_of_test", "inner_part_of_test"):
        sys.modules.pop(name, None)


def test_a_file_that_was_changed_is_imported_again_with_all_that_holds_parts_of_it(parted: Path) -> None:
    """As in a notebook, where the model is trained anew by other processes, and scores in this one."""
    first = made_by(parted)
    assert made_by(parted) == first, "nothing changed: operators that a module registers are registered once"
    write(parted.parent, "VALUE = 20\n", "inner_part_of_test.py")
    assert made_by(parted)[0] == 20


def test_a_changed_file_is_imported_again_also_where_the_user_imported_it(
    parted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(parted.parent)
    assert importlib.import_module("part_of_test").VALUE == 1
    write(parted.parent, "VALUE = 20\n", "inner_part_of_test.py")
    assert made_by(parted)[0] == 20


def test_modules_of_python_and_installed_ones_are_not_replaced(tmp_path: Path) -> None:
    import json

    import torch

    write(tmp_path, "", "json.py")
    write(tmp_path, "", "torch.py")
    file = write(tmp_path, "import json, torch\n\n\ndef build(tables, num_dense):\n    return json, torch\n")
    assert load_build(f"{file}:build", tmp_path)([], 0) == (json, torch)
    assert (sys.modules["json"], sys.modules["torch"]) == (json, torch)


def test_a_package_of_the_working_directory_is_that_of_this_directory(tmp_path: Path) -> None:
    for number in (1, 2):
        package = tmp_path / f"work_{number}" / "package_of_two"
        package.mkdir(parents=True)
        write(package, "", "__init__.py")
        write(package, f"NUMBER = {number}", "layers.py")
        write(package, "from .layers import NUMBER\n\n\ndef build(tables, num_dense):\n    return NUMBER\n")
    for number in (1, 2, 1):
        assert load_build("package_of_two.model:build", tmp_path / f"work_{number}")([], 0) == number
    for name in ("package_of_two", "package_of_two.model", "package_of_two.layers"):
        sys.modules.pop(name)


class AskedByName(dict[str, ModuleType]):
    """Modules that may only be asked for by name."""

    def items(self) -> Any:
        raise AssertionError("a worker that looks at all modules copies a page for each of them")

    keys = values = __iter__ = items


@pytest.mark.parametrize("build", ["model.py:build", "elastichost.models.dlrm:build"])
def test_the_first_build_of_a_forked_process_does_not_look_at_all_modules(
    build: str, good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sys.modules.pop("helper_of_model", None)
    monkeypatch.setattr(sys, "modules", AskedByName(sys.modules))
    parsed = parse_build_spec(build, good.parent)
    with import_path(good.parent), fresh_modules(parsed, good.parent):
        pass
    with import_path(good.parent), fresh_modules(parsed, good.parent), pytest.raises(AssertionError, match="copies"):
        list(sys.modules.items())
