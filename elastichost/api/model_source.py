"""Writes the source of a build function that is defined in a script or a notebook cell, as a file of its own.

Workers are other processes and import the model from a file. A function of an importable module stays where it is. The
source of any other function is taken from the cell or script, together with the functions, classes, constants and
imports that it uses, and so on. Nothing is pickled: what has no source text is refused, with the way out.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import linecache
import math
import symtable
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from elastichost.errors import ModelError
from elastichost.runs.directory import MODEL_FILE

__all__ = ["build_spec", "source_of"]

WAY_OUT = "write the model to a file (in a notebook: a cell that begins with `%%writefile model.py`) and name it: "
_CONSTANTS = (str, bytes, bool, int, float, complex, type(None))


def build_spec(function: Callable[..., Any], directory: Path) -> str:
    """The `model.build` of a function. If no module that others can import has it, its source is written to
    `directory`/model.py. Raises ModelError when the source cannot be told."""
    if (found := _importable(function)) is not None:
        return found
    path = directory / MODEL_FILE
    path.write_text(source_of(function), encoding="utf-8")
    return f"{path}:{function.__name__}"


def source_of(function: Callable[..., Any]) -> str:
    """The text of a module with this function and all that it uses. Raises ModelError, which names what has no
    source."""
    if not isinstance(function, types.FunctionType):
        raise ModelError(
            f"the model is {function!r}, and not a function",
            hint="give a function that is defined with `def build(tables, num_dense, **args):`",
        )
    module = _Module(function.__name__)
    module.take(function.__name__, function)
    return module.text()


def _importable(function: Callable[..., Any]) -> str | None:
    """ "file.py:name" or "package.module:name" of a function that a fresh process can import; None for others."""
    name, module = getattr(function, "__qualname__", ""), sys.modules.get(getattr(function, "__module__", "") or "")
    if module is None or module.__name__ == "__main__" or getattr(module, name, None) is not function:
        return None
    file = getattr(module, "__file__", None)
    if file is None:
        return None
    if "." not in module.__name__ and str(file).endswith(".py"):
        return f"{Path(file).resolve()}:{name}"
    return f"{module.__name__}:{name}"


@dataclass
class _Module:
    """The text of a new module, as it grows. what: the function that all of it is for."""

    what: str
    _imports: dict[str, None] = field(default_factory=dict)
    _definitions: dict[str, str] = field(default_factory=dict)  # in the order in which they must stand
    _pending: set[str] = field(default_factory=set)

    def text(self) -> str:
        head = "\n".join(sorted(self._imports))
        return "\n\n\n".join(filter(None, (head, *self._definitions.values()))) + "\n"

    def take(self, name: str, value: Any) -> None:
        """Adds what the name stands for, after all that it uses itself."""
        if name in self._definitions or name in self._pending:
            return
        if isinstance(value, types.ModuleType):
            self._imports[f"import {value.__name__}" + (f" as {name}" if name != value.__name__ else "")] = None
        elif (origin := _origin(value)) is not None:
            module, own = origin
            self._imports[f"from {module} import {own}" + (f" as {name}" if name != own else "")] = None
        elif isinstance(value, types.FunctionType | type):
            self._define(name, value)
        elif isinstance(value, np.generic) and _is_constant(value.item()):
            self._definitions[name] = f"{name} = {value.item()!r}"
        elif _is_constant(value):
            self._definitions[name] = f"{name} = {value!r}"
        else:
            raise ModelError(
                f"the model {self.what} uses {name!r}, which is a {type(value).__name__} and has no source text",
                hint=f'create it within the function, pass it as an argument, or {WAY_OUT}model="model.py:{self.what}"',
            )

    def _define(self, name: str, value: Any) -> None:
        if value.__name__ != name:
            raise ModelError(
                f"the model {self.what} uses {name!r}, which is another name of {value.__name__}",
                hint=f"use {value.__name__} itself",
            )
        self._pending.add(name)
        text = self._found(value)
        scope = _globals_of(value)
        for used in _names_used(text):
            if used in scope:
                self.take(used, scope[used])
            elif used not in vars(builtins):
                raise ModelError(
                    f"the model {self.what} uses {used!r}, which is not defined",
                    hint="run the cell that defines it, or define it before the training starts",
                )
        self._definitions[name] = text

    def _found(self, value: Any) -> str:
        """The definition of a function or class in the text of its cell or file."""
        code = _code_of(value)
        if code is not None and code.co_freevars and isinstance(value, types.FunctionType):
            raise ModelError(
                f"the model {self.what} uses variables of the function around {value.__name__}: "
                f"{', '.join(code.co_freevars)}",
                hint=f"define {value.__name__} at the top of the cell or file and pass them as model_args",
            )
        lines = linecache.getlines(code.co_filename) if code is not None else []
        try:
            tree = ast.parse("".join(lines))
        except SyntaxError:
            tree = ast.Module([], [])
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == value.__name__:
                start = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                if code is None or start <= code.co_firstlineno <= (node.end_lineno or start):
                    return "".join(lines[start - 1 : node.end_lineno]).rstrip()
        raise ModelError(
            f"the source of {value.__name__!r}, which the model {self.what} uses, was not found at the top level of "
            "its cell or file",
            hint=f'{WAY_OUT[0].upper()}{WAY_OUT[1:]}model="model.py:{self.what}"',
        )


def _origin(value: Any) -> tuple[str, str] | None:
    """(module, name) under which a fresh process can import a function, class or object; None for others."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__" or not name.isidentifier():
        return None
    loaded = sys.modules.get(module)
    if loaded is None or getattr(loaded, name, None) is not value or importlib.util.find_spec(module) is None:
        return None
    return module, name


def _globals_of(value: Any) -> dict[str, Any]:
    if isinstance(value, types.FunctionType):
        return value.__globals__
    return vars(sys.modules[value.__module__]) if value.__module__ in sys.modules else {}


def _code_of(value: Any) -> types.CodeType | None:
    """The code of a function, or of the first method that a class defines itself; it tells the file and line. A class
    of a notebook cell has no other trace of its cell."""
    if isinstance(value, types.FunctionType):
        return value.__code__
    for member in vars(value).values():
        plain = getattr(member, "__func__", getattr(member, "fget", member))
        if not isinstance(plain, types.FunctionType) or not plain.__qualname__.startswith(f"{value.__qualname__}."):
            continue
        if plain.__code__.co_filename != "<string>":  # that of methods which a dataclass made
            return plain.__code__
    return None


def _names_used(text: str) -> list[str]:
    """The names of its module that a definition reads, sorted; among them built-in names."""
    top = symtable.symtable(text, MODEL_FILE, "exec")
    own = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned()}
    return sorted(set(_globals_read(top)) - own)


def _globals_read(scope: symtable.SymbolTable) -> Iterator[str]:
    for symbol in scope.get_symbols():
        if symbol.is_referenced() and (symbol.is_global() or scope.get_type() == "module"):
            yield symbol.get_name()
    for inner in scope.get_children():
        yield from _globals_read(inner)


def _is_constant(value: Any) -> bool:
    """Whether `repr` is the source of an equal value. It is not that of a value of a derived class, such as an enum."""
    if type(value) is float:
        return math.isfinite(value)
    if type(value) in _CONSTANTS:
        return True
    if type(value) in (list, tuple, set, frozenset):
        return all(_is_constant(one) for one in value)
    return type(value) is dict and all(_is_constant(one) for pair in value.items() for one in pair)
