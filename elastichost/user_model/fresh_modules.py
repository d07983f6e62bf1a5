"""Keeps the modules of a model apart from others of the same names in the same process: those of another model, of an
export, or of its own files before they were changed."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from elastichost.errors import ModelError
from elastichost.user_model.source import BuildSpec, imported_files

__all__ = ["fresh_modules", "no_modules_of"]

LOADED_FROM = "__elastichost_file_state__"  # set in a module: the state of its file when it was imported
NO_FILE = Path()
OWN_PACKAGE = "elastichost"


class _FileState(NamedTuple):
    """It changes when the file is written, or replaced by another one, whatever time of modification that has."""

    changed_ns: int
    size_bytes: int


@contextmanager
def fresh_modules(parsed: BuildSpec, base_dir: Path) -> Iterator[None]:
    """Within this context, the model imports the modules and packages of its folder as their files are now. If modules
    of these names came from another place, or from files that changed since, all of them are set aside, because they
    hold parts of each other. What is imported within the context stays, for imports that the model makes later; other
    modules return. Installed modules are never set aside: elastichost and torch use them, too.

    base_dir: where a module is looked for that is no file; one that is installed is left as it is."""
    files = _own_files(parsed, base_dir)
    loaded = _loaded(set(files.values()))
    states = {path.resolve(): _state(path) for path in files if path.is_file()}
    root = parsed.file.parent if parsed.file is not None else base_dir
    is_current = all(_is_current(name, one, root, states) for name, one in loaded.items())
    before = {} if is_current else loaded
    for name in before:
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for name in (_module_name(path, root.absolute()) for path in files):
            one = sys.modules.get(name)
            if not isinstance(one, ModuleType) or loaded.get(name) is one:
                continue
            if (state := states.get(_file_of(one).resolve())) is not None:
                setattr(one, LOADED_FROM, state)
        _put_back(before, {top for name in before if (top := name.partition(".")[0]) not in sys.modules})


@contextmanager
def no_modules_of(directory: Path) -> Iterator[None]:
    """Within this context, modules may be imported from `directory`. Afterwards none of them is left, and the process
    has those that it had under their names before: the directory may be moved or removed then."""
    directory = directory.resolve()
    before = dict(sys.modules)
    try:
        yield
    finally:
        gone = set()
        for name, one in list(sys.modules.items()):
            if before.get(name) is not one and isinstance(one, ModuleType) and _is_below(one, directory):
                gone.add(name.partition(".")[0])
                del sys.modules[name]
        _put_back({name: one for name, one in before.items() if name not in sys.modules}, gone)


def _loaded(tops: Set[str]) -> dict[str, ModuleType]:
    """The loaded modules of these top-level names. A worker is forked, and has none of them at first. It must not look
    at all modules then: each look writes a reference count, which copies a page that it shares with the fork server.
    With torch that was 14 MB for each worker."""
    if not any(top in sys.modules for top in tops):
        return {}
    return {name: one for name, one in list(sys.modules.items()) if name.partition(".")[0] in tops}


def _module_name(file: Path, root: Path) -> str:
    """The name under which Python imports this file when `root` is on its path."""
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _put_back(before: Mapping[str, ModuleType], tops: set[str]) -> None:
    """Puts the modules of these top-level names back."""
    sys.modules.update({name: one for name, one in before.items() if name.partition(".")[0] in tops})


def _own_files(parsed: BuildSpec, base_dir: Path) -> dict[Path, str]:
    """The files that the model may import from its folder -> the top-level name of each. A file that is the model
    itself is left out, because it is executed anew each time. Empty when the model cannot be read: the import tells
    why."""
    root = (parsed.file.parent if parsed.file is not None else base_dir).absolute()
    if parsed.file is not None:
        candidates: tuple[Path, ...] = (root / parsed.file.name,)
    else:
        place = root.joinpath(*parsed.module.split("."))
        candidates = (place / "__init__.py", place.with_suffix(".py"))
    file = next((one for one in candidates if one.is_file()), None)
    if file is None or parsed.module.partition(".")[0] == OWN_PACKAGE:
        return {}
    try:
        files = imported_files(file, root)
    except ModelError:
        return {}
    found = files if parsed.file is None else files[1:]
    tops = {path: path.relative_to(root).parts[0].removesuffix(".py") for path in found if path.is_relative_to(root)}
    return {path: top for path, top in tops.items() if not _is_installed(top)}


def _is_installed(name: str) -> bool:
    """Whether the process has a module of Python or of an installed package under this name, or it is the script."""
    if name in sys.stdlib_module_names or name == "__main__":
        return True
    module = sys.modules.get(name)
    return module is not None and not {"site-packages", "dist-packages"}.isdisjoint(_file_of(module).parts)


def _is_current(name: str, module: object, root: Path, states: Mapping[Path, _FileState]) -> bool:
    """Whether an import of `name` from `root` would give what this module is. Of a module that was imported elsewhere
    it is not known when that was, so its file must be older than the process."""
    if not isinstance(module, ModuleType) or module.__name__ != name:
        return True  # a further name of another module
    folder, file, paths = root.joinpath(*name.split(".")), _file_of(module), vars(module).get("__path__")
    if file == NO_FILE:  # a package without __init__.py
        return paths is None or any(_is_same(folder, Path(one)) for one in paths)
    if not _is_same(folder if paths is not None else folder.parent, file.parent):
        return False
    state = states.get(file.resolve())
    if state is None:
        return file.suffix != ".py"  # compiled modules are loaded once; a file in Python is gone
    loaded: _FileState | None = vars(module).get(LOADED_FROM)
    return state == loaded if loaded is not None else state.changed_ns <= _process_start_ns()


def _is_same(one: Path, other: Path) -> bool:
    return one.is_dir() and other.is_dir() and one.samefile(other)


def _is_below(module: ModuleType, directory: Path) -> bool:
    places = (_file_of(module), *map(Path, vars(module).get("__path__") or ()))
    return any(one.resolve().is_relative_to(directory) for one in places if one != NO_FILE)


def _file_of(module: ModuleType) -> Path:
    """NO_FILE: it has none. Not by getattr: torch has modules that invent every attribute that they are asked for."""
    return Path(vars(module).get("__file__") or NO_FILE)


def _state(path: Path) -> _FileState:
    status = path.stat()
    return _FileState(status.st_ctime_ns, status.st_size)


def _process_start_ns() -> int:
    """When this process started, since 1970."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.time_ns() - int(age_s * 1e9)
