"""Where compiled kernels are kept, so that only the first start compiles them.

In order: NUMBA_CACHE_DIR, the package itself, and where that cannot be written a private directory (0700) below
XDG_CACHE_HOME, ~/.cache, XDG_RUNTIME_DIR or the directory for temporary files. Machine code is run from there, so a
directory that somebody else may write to is never used. With none of them kernels are compiled at each start.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["COMPILE_S", "KernelCache", "kernel_cache", "use_kernel_cache"]

COMPILE_S = 30.0  # about what compiling all kernels takes a core
PACKAGE = Path(__file__).parents[1]
PARTS_WITH_KERNELS = (
    *("arena", "arena/dense", "arena/index", "arena/rows"),
    *("datasets/kernels", "datasets/synthetic", "datasets/text"),
    "worker/model",
)
VARIABLE = "NUMBA_CACHE_DIR"
NAME = "elastichost-kernels"


@dataclass(frozen=True, slots=True)
class KernelCache:
    """directory: where kernels are kept, the package's own if that can be written; None: nowhere. refused: the places
    that were tried before, each with the reason."""

    directory: Path | None
    refused: tuple[str, ...] = ()

    @property
    def problem(self) -> str:
        """What a user should know, "" for nothing."""
        if self.directory is not None:
            return ""
        return (
            f"compiled kernels cannot be kept anywhere ({'; '.join(self.refused)}): each start compiles them anew, "
            f"which takes a core about {COMPILE_S:.0f} s; set {VARIABLE} to a directory of your own"
        )


@functools.cache
def kernel_cache() -> KernelCache:
    """Found once in a process, by writing to each place in turn."""
    refused: list[str] = []
    for place in _places():
        try:
            place.prepare()
        except OSError as error:
            refused.append(f"{place.directory}: {error.strerror or error}")
            continue
        return KernelCache(place.directory, tuple(refused))
    return KernelCache(None, tuple(refused))


def use_kernel_cache() -> bool:
    """Tells numba where to keep kernels. False: nowhere, so they must be compiled without a cache."""
    import numba

    found = kernel_cache().directory
    if found is None:
        return False
    numba.config.CACHE_DIR = "" if found == PACKAGE else str(found)
    return True


@dataclass(frozen=True, slots=True)
class _Place:
    """is_private: it may be in a directory of others, so it has to be this user's and nobody else's."""

    directory: Path
    is_private: bool = True

    def prepare(self) -> None:
        """Raises OSError when nothing can be kept there."""
        if self.directory == PACKAGE:
            for name in PARTS_WITH_KERNELS:
                _write_in(PACKAGE / name / "__pycache__")
            return
        if self.is_private:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            facts = self.directory.lstat()
            if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
                raise PermissionError(0, "it is not this user's own, or others may write to it")
        _write_in(self.directory)


def _write_in(directory: Path) -> None:
    """Raises OSError when files cannot be made there."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(b"\0" * 4096)
        file.flush()


def _places() -> Iterator[_Place]:
    if asked := os.environ.get(VARIABLE):
        yield _Place(Path(asked), is_private=False)
    yield _Place(PACKAGE)
    if caches := os.environ.get("XDG_CACHE_HOME"):
        yield _Place(Path(caches) / NAME)
    with contextlib.suppress(RuntimeError):  # who runs it has no home
        yield _Place(Path.home() / ".cache" / NAME)
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield _Place(Path(runtime) / NAME)
    try:
        yield _Place(Path(tempfile.gettempdir()) / f"{NAME}-{os.geteuid()}")
    except FileNotFoundError:  # nothing can be written at all
        return
