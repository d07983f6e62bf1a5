"""Finds the source of the user's model and checks it without running it.

`model.build` is "package.module:function" or "file.py:function". The functions here only read source text. They do not
import the user's code, torch or torchrec, so a job with a typing error in its model is refused within milliseconds.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from elastichost.errors import ModelError
from elastichost.human_readable import did_you_mean

__all__ = [
    "BuildSpec",
    "check_build_source",
    "import_path",
    "imported_files",
    "local_module",
    "local_sources",
    "parse_build_spec",
    "source_file",
]


@dataclass(frozen=True, slots=True)
class BuildSpec:
    """A parsed `model.build`. `file` is set for "file.py:function", `module` for "package.module:function"."""

    text: str
    file: Path | None
    module: str
    function: str


def parse_build_spec(spec: str, base_dir: Path) -> BuildSpec:
    """Parses `model.build`. A relative file is relative to `base_dir`. Raises ModelError for other text."""
    left, colon, function = spec.rpartition(":")
    if colon and left and function.isidentifier():
        if left.endswith(".py"):
            return BuildSpec(text=spec, file=base_dir / left, module="", function=function)
        if all(part.isidentifier() for part in left.split(".")):
            return BuildSpec(text=spec, file=None, module=left, function=function)
    raise ModelError(
        f"model.build = {spec!r} does not name a function",
        hint='write "file.py:build" or "package.module:build"',
    )


@contextmanager
def import_path(directory: Path) -> Iterator[None]:
    """Within this context, modules in `directory` can be imported."""
    entry = str(directory.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        # Removed by value, because the user's module may have changed sys.path.
        if entry in sys.path:
            sys.path.remove(entry)


def check_build_source(spec: str, base_dir: Path) -> None:
    """Checks `model.build` without running code: the source exists and compiles, the modules that it imports
    unconditionally exist, and it defines the function. Raises ModelError with the error that Python would show."""
    parsed = parse_build_spec(spec, base_dir)
    file = source_file(parsed, base_dir)
    if file is None:
        return  # a compiled or namespace module can only be checked by importing it
    directory = parsed.file.parent if parsed.file is not None else base_dir
    tree = _compiled(file)
    _check_defined(tree, file, parsed)
    for source in (file, *local_sources(file)):
        _check_imports(_compiled(source), source, directory)


def source_file(parsed: BuildSpec, base_dir: Path) -> Path | None:
    """The Python file of a build spec; None when the module has no source text. Raises ModelError when there is no
    such file or module."""
    if parsed.file is not None:
        if parsed.file.is_file():
            return parsed.file
        near = [path.name for path in sorted(parsed.file.parent.glob("*.py"))] if parsed.file.parent.is_dir() else []
        raise ModelError(
            f"model.build = {parsed.text!r}: there is no file {parsed.file}{did_you_mean(parsed.file.name, near)}",
            hint="paths in a job file are relative to the job file",
        )
    with import_path(base_dir):
        found = _find_module(parsed.module)
    if found is None:
        raise ModelError(
            f"model.build = {parsed.text!r}: there is no module {parsed.module!r}",
            hint='install the package into this environment, or write the path of a file: "model.py:build"',
        )
    origin = found.origin
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def local_module(module: str, base_dir: Path) -> Path | None:
    """The Python file, below `base_dir`, of a module that is imported from there; None: there is none, or the module
    comes from another place."""
    with import_path(base_dir):
        found = _find_module(module)
    if found is None or found.origin is None or not os.path.isfile(found.origin):  # "built-in" is no file
        return None
    place = base_dir.joinpath(*module.split("."))
    candidates = (place / "__init__.py", place.parent / f"{place.name}.py")
    return next((one for one in candidates if one.is_file() and one.samefile(found.origin)), None)


def local_sources(file: Path) -> tuple[Path, ...]:
    """The modules beside `file` that it imports at top level, directly or through each other; sorted, without
    `file`."""
    found: set[Path] = set()
    pending = [file]
    while pending:
        for _, name in _top_level_imports(_compiled(pending.pop())):
            sibling = file.parent / f"{name.partition('.')[0]}.py"
            if sibling not in found and sibling != file and sibling.is_file():
                found.add(sibling)
                pending.append(sibling)
    return tuple(sorted(found))


def imported_files(file: Path, root: Path) -> tuple[Path, ...]:
    """`file`, then the Python files below `root` that it may import when `root` is on Python's path, sorted: modules,
    and whole packages, because their modules import each other by relative names. Imports within functions and `try`
    count, too; those of one file lead to others. Where `file` is in a package below `root`, that one is among them.
    Raises ModelError when `file` cannot be read or is not valid Python."""
    package = file.relative_to(root).parts[0]
    found = set(_files_of(package, root)) if package != file.name else set[Path]()
    pending = [*(found - {file}), file]
    while pending:
        source = pending.pop()
        for name in _imported_names(source, is_needed=source == file):
            for one in _files_of(name, root):
                if one not in found and one != file:
                    found.add(one)
                    pending.append(one)
    return (file, *sorted(found - {file}))


def _imported_names(file: Path, *, is_needed: bool) -> Iterator[str]:
    """The top-level names of all imports in a file. Of one that is not needed and cannot be read, none."""
    try:
        tree = _compiled(file)
    except ModelError:
        if is_needed:
            raise
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.partition(".")[0]


def _files_of(name: str, root: Path) -> tuple[Path, ...]:
    """The files of the module or package `name` in `root`; none where Python would take one from another place, and
    none of elastichost: a model beside a checkout needs no copy of it."""
    spec = importlib.machinery.PathFinder.find_spec(name, [str(root)])
    if spec is None or name == __name__.partition(".")[0]:
        return ()
    if spec.submodule_search_locations is None:
        return (Path(spec.origin),) if spec.origin is not None and spec.origin.endswith(".py") else ()
    # A folder without __init__.py counts only where no module of this name is installed.
    elsewhere = importlib.machinery.PathFinder.find_spec(name) if spec.origin is None else None
    if elsewhere is not None and elsewhere.origin is not None:
        return ()
    return tuple(sorted((root / name).rglob("*.py")))


def _find_module(name: str) -> importlib.machinery.ModuleSpec | None:
    """The spec of a module; None when it does not exist. importlib.util.find_spec would import its parent packages."""
    importlib.invalidate_caches()
    parts = name.split(".")
    path: Sequence[str] | None = None
    spec: importlib.machinery.ModuleSpec | None = None
    for depth in range(1, len(parts) + 1):
        spec = (
            _find_top_level(parts[0])
            if path is None
            else importlib.machinery.PathFinder.find_spec(".".join(parts[:depth]), path)
        )
        if spec is None:
            return None
        if depth < len(parts):
            if spec.submodule_search_locations is None:
                return None
            path = list(spec.submodule_search_locations)
    return spec


def _find_top_level(name: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ValueError:  # modules such as __main__ are loaded but have no spec
        return importlib.machinery.PathFinder.find_spec(name)


def _compiled(file: Path) -> ast.Module:
    """The syntax tree of a file. Raises ModelError with the SyntaxError as Python shows it."""
    try:
        source = file.read_bytes()
        tree = ast.parse(source, filename=str(file))
        # Some errors, such as a return outside a function, are found only by the compiler.
        compile(source, str(file), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        text = "".join(traceback.format_exception_only(error))
        raise ModelError(f"{file} is not valid Python: {error}", traceback_text=text) from error
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror}") from error
    return tree


def _top_level_imports(tree: ast.Module) -> Iterator[tuple[ast.stmt, str]]:
    """(statement, module name) of the imports that always run: not those inside try, if or functions."""
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield statement, alias.name
        elif isinstance(statement, ast.ImportFrom) and statement.level == 0 and statement.module:
            yield statement, statement.module


def _check_imports(tree: ast.Module, file: Path, directory: Path) -> None:
    with import_path(directory):
        for statement, name in _top_level_imports(tree):
            top = name.partition(".")[0]
            if _find_top_level(top) is None:
                line = file.read_text(encoding="utf-8", errors="replace").splitlines()[statement.lineno - 1].strip()
                text = (
                    "Traceback (most recent call last):\n"
                    f'  File "{file}", line {statement.lineno}, in <module>\n'
                    f"    {line}\n"
                    f"ModuleNotFoundError: No module named {top!r}\n"
                )
                raise ModelError(
                    f"{file}, line {statement.lineno}: there is no module {top!r}",
                    traceback_text=text,
                    hint=f"install it into this environment ({sys.prefix}), or put {top}.py beside the model's file",
                )


def _check_defined(tree: ast.Module, file: Path, parsed: BuildSpec) -> None:
    """Raises ModelError when the source text shows that the module will not have the function."""
    names, is_open = _defined_names(tree)
    if parsed.function in names or is_open:
        return
    public = sorted(name for name in names if not name.startswith("_"))
    raise ModelError(
        f"{file} defines no {parsed.function!r}{did_you_mean(parsed.function, public)}",
        hint=f"write def {parsed.function}(tables, num_dense, **args), or name another function in model.build",
    )


def _defined_names(tree: ast.Module) -> tuple[set[str], bool]:
    """(names bound at top level, whether there may be more: `import *`, or `__getattr__` without `__all__`)."""
    names: set[str] = set()
    has_star = False
    exported: set[str] | None = None
    for statement in _top_level_statements(tree.body):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(statement.name)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            has_star = has_star or any(alias.name == "*" for alias in statement.names)
            names.update((alias.asname or alias.name).partition(".")[0] for alias in statement.names)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names.update(n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                exported = _string_list(statement.value)
    if "__getattr__" in names and exported is not None:
        return names | exported, has_star
    return names, has_star or "__getattr__" in names


def _top_level_statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of module scope, also those inside if, try, with, for and while."""
    for statement in body:
        yield statement
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for field in ("body", "orelse", "finalbody"):
                yield from _top_level_statements(getattr(statement, field, []))
            for handler in getattr(statement, "handlers", []):
                yield from _top_level_statements(handler.body)


def _string_list(node: ast.expr | None) -> set[str] | None:
    if not isinstance(node, ast.List | ast.Tuple):
        return None
    constants = [item.value for item in node.elts if isinstance(item, ast.Constant)]
    return {value for value in constants if isinstance(value, str)} if len(constants) == len(node.elts) else None
