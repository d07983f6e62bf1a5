"""Checks from the syntax tree of a source whether it keeps what "Pure" promises."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

__all__ = ["claims_purity", "imported_functions", "impurities", "pure_functions", "pure_modules"]

# Modules for the clock, random numbers, the machine and its environment, files, processes, threads, the network.
IMPURE_MODULES = frozenset(
    {
        "asyncio",
        "concurrent",
        "ctypes",
        "datetime",
        "fcntl",
        "getpass",
        "glob",
        "io",
        "locale",
        "logging",
        "mmap",
        "multiprocessing",
        "os",
        "platform",
        "psutil",
        "pynvml",
        "random",
        "resource",
        "secrets",
        "select",
        "selectors",
        "shutil",
        "signal",
        "socket",
        "sqlite3",
        "ssl",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "uuid",
        "warnings",
        "zmq",
    }
)
IMPURE_CALLS = frozenset({"__import__", "breakpoint", "eval", "exec", "input", "open", "print"})
ALLOWED_OF_SYS = frozenset({"float_info", "maxsize"})  # the rest of `sys` is state of this process
# Methods with which a path reads or changes the file system.
PATH_CALLS = frozenset(
    {
        "absolute",
        "chmod",
        "cwd",
        "exists",
        "expanduser",
        "glob",
        "home",
        "is_dir",
        "is_file",
        "is_symlink",
        "iterdir",
        "mkdir",
        "open",
        "read_bytes",
        "read_text",
        "resolve",
        "rglob",
        "rmdir",
        "stat",
        "symlink_to",
        "touch",
        "unlink",
        "write_bytes",
        "write_text",
    }
)
SEEDED = frozenset({"Generator", "PCG64", "Philox", "SFC64", "SeedSequence", "default_rng"})  # of `numpy.random`
CLAIM = re.compile(r"(?<![\w`])Pure\b")


def claims_purity(docstring: str | None) -> bool:
    """Whether a sentence of the docstring, or a part of one, begins with "Pure"."""
    return docstring is not None and CLAIM.search(docstring) is not None


def pure_modules(package: Path) -> Iterator[Path]:
    """Yields the modules that claim purity, in their own docstring or in that of a package around them."""
    for path in sorted(package.rglob("*.py")):
        inits = (parent / "__init__.py" for parent in path.parents if parent.is_relative_to(package))
        if any(claims_purity(ast.get_docstring(_tree(one))) for one in (path, *inits) if one.exists()):
            yield path


def pure_functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yields the functions whose own docstring claims purity."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and claims_purity(ast.get_docstring(node)):
            yield node


def impurities(tree: ast.Module, part: ast.AST | None = None) -> list[str]:
    """Returns what is not pure in a source, in words. part: the node to check; None: the whole source."""
    names = dict(_names(tree))  # imported name -> its full name
    found = list[str]()
    for node in ast.walk(tree if part is None else part):
        for check in CHECKS:
            found += (f"line {getattr(node, 'lineno', 0)}: {what}" for what in check(node, names))
    return found


def imported_functions(tree: ast.Module, package: str) -> Iterator[tuple[str, str]]:
    """Yields (module, name) of the functions that a source imports from the package: names in lower case, so neither
    classes nor constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.partition(".")[0] == package:
            yield from ((node.module, alias.name) for alias in node.names if alias.name.islower())


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yields (name in the source, full name) of everything that is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _dotted(node: ast.AST, names: Mapping[str, str]) -> str:
    """`np.random.rand` as "numpy.random.rand"; "": the node does not begin with an imported name."""
    parts = list[str]()
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([names[node.id], *reversed(parts)]) if isinstance(node, ast.Name) and node.id in names else ""


def _is_impure(dotted: str) -> bool:
    """Whether a full name belongs to an impure module."""
    return dotted.partition(".")[0] in IMPURE_MODULES


def _imports(node: ast.AST, _: Mapping[str, str]) -> Iterator[str]:
    """Imports of impure modules, whether they are used or not."""
    if isinstance(node, ast.Import):
        yield from (f"imports {alias.name}" for alias in node.names if _is_impure(alias.name))
    elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0 and _is_impure(node.module):
        yield f"imports {node.module}"


def _uses(node: ast.AST, names: Mapping[str, str]) -> Iterator[str]:
    """Uses of impure modules that are imported outside the checked part, and of what is impure in other modules."""
    if not isinstance(node, ast.Name | ast.Attribute):
        return
    dotted = _dotted(node, names)
    module, _, last = dotted.rpartition(".")
    if (isinstance(node, ast.Name) and _is_impure(dotted)) or (module == "sys" and last not in ALLOWED_OF_SYS):
        yield f"uses {dotted}"
    elif module == "numpy.random" and last not in SEEDED:
        yield f"uses {dotted}, random numbers without a seed"


def _calls(node: ast.AST, names: Mapping[str, str]) -> Iterator[str]:
    """Calls that are impure by their name, or that lack a seed."""
    if not isinstance(node, ast.Call):
        return
    if isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS and node.func.id not in names:
        yield f"calls {node.func.id}"
    elif isinstance(node.func, ast.Attribute) and node.func.attr in PATH_CALLS and "pathlib.Path" in names.values():
        yield f"calls .{node.func.attr}, and the source imports Path"
    elif (dotted := _dotted(node.func, names)).startswith("numpy.random.") and not (node.args or node.keywords):
        yield f"calls {dotted} without a seed"


def _globals(node: ast.AST, _: Mapping[str, str]) -> Iterator[str]:
    """Changes of the module's state."""
    if isinstance(node, ast.Global):
        yield f"changes the global {', '.join(node.names)}"


CHECKS: tuple[Callable[[ast.AST, Mapping[str, str]], Iterator[str]], ...] = (_imports, _uses, _calls, _globals)
