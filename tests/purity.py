"""Whether a source keeps what "Pure" promises, told from its syntax tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

__all__ = ["claims_purity", "imported_functions", "impurities", "pure_functions", "pure_modules"]

# The clock, chance, the machine and its environment, files, processes, threads, the network.
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
ALLOWED_OF_SYS = frozenset({"float_info", "maxsize"})  # the rest of it is of this process
# What a path asks the file system, or does there.
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
    """A sentence of it, or a part of one, begins with "Pure"."""
    return docstring is not None and CLAIM.search(docstring) is not None


def pure_modules(package: Path) -> Iterator[Path]:
    """Files whose docstring claims it, and those of packages whose `__init__.py` does."""
    for path in sorted(package.rglob("*.py")):
        inits = (parent / "__init__.py" for parent in path.parents if parent.is_relative_to(package))
        if any(claims_purity(ast.get_docstring(_tree(one))) for one in (path, *inits) if one.exists()):
            yield path


def pure_functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Those whose own docstring claims it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and claims_purity(ast.get_docstring(node)):
            yield node


def impurities(tree: ast.Module, part: ast.AST | None = None) -> list[str]:
    """What is not pure in a source, in words. part: a node of it that is looked at alone."""
    names = dict(_names(tree))  # what each name that was imported stands for
    found = list[str]()
    for node in ast.walk(tree if part is None else part):
        for check in CHECKS:
            found += (f"line {getattr(node, 'lineno', 0)}: {what}" for what in check(node, names))
    return found


def imported_functions(tree: ast.Module, package: str) -> Iterator[tuple[str, str]]:
    """(module, name) of what a source imports from modules of the package, and what looks like a function: neither a
    class nor a constant."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.partition(".")[0] == package:
            yield from ((node.module, alias.name) for alias in node.names if alias.name.islower())


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _dotted(node: ast.AST, names: Mapping[str, str]) -> str:
    """`np.random.rand` as "numpy.random.rand"; empty for what does not begin with a name that was imported."""
    parts = list[str]()
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([names[node.id], *reversed(parts)]) if isinstance(node, ast.Name) and node.id in names else ""


def _is_impure(dotted: str) -> bool:
    return dotted.partition(".")[0] in IMPURE_MODULES


def _imports(node: ast.AST, _: Mapping[str, str]) -> Iterator[str]:
    """Also where a source does not use what it imports."""
    if isinstance(node, ast.Import):
        yield from (f"imports {alias.name}" for alias in node.names if _is_impure(alias.name))
    elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0 and _is_impure(node.module):
        yield f"imports {node.module}"


def _uses(node: ast.AST, names: Mapping[str, str]) -> Iterator[str]:
    """Of a part of a source, whose imports are elsewhere; and what is impure of modules that are not."""
    if not isinstance(node, ast.Name | ast.Attribute):
        return
    dotted = _dotted(node, names)
    module, _, last = dotted.rpartition(".")
    if (isinstance(node, ast.Name) and _is_impure(dotted)) or (module == "sys" and last not in ALLOWED_OF_SYS):
        yield f"uses {dotted}"
    elif module == "numpy.random" and last not in SEEDED:
        yield f"uses {dotted}, chance without a seed"


def _calls(node: ast.AST, names: Mapping[str, str]) -> Iterator[str]:
    if not isinstance(node, ast.Call):
        return
    if isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS and node.func.id not in names:
        yield f"calls {node.func.id}"
    elif isinstance(node.func, ast.Attribute) and node.func.attr in PATH_CALLS and "pathlib.Path" in names.values():
        yield f"calls .{node.func.attr}, and has Path"
    elif (dotted := _dotted(node.func, names)).startswith("numpy.random.") and not (node.args or node.keywords):
        yield f"calls {dotted} without a seed"


def _globals(node: ast.AST, _: Mapping[str, str]) -> Iterator[str]:
    if isinstance(node, ast.Global):
        yield f"changes {', '.join(node.names)} of the module"


CHECKS: tuple[Callable[[ast.AST, Mapping[str, str]], Iterator[str]], ...] = (_imports, _uses, _calls, _globals)
