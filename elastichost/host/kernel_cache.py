"""The directory of compiled kernels, so that only the first start compiles them.

It is the first of these that can be written: NUMBA_CACHE_DIR; the package itself; a private directory (0700) below
XDG_CACHE_HOME, ~/.cache, XDG_RUNTIME_DIR or the directory for temporary files. Machine code from it is executed, so a
private directory to which other users can write is never used. Without any of them, each start compiles the kernels.
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

COMPILE_S = 30.0  # about the time of one core to compile all kernels
PACKAGE = Path(__file__).parents[1]
PARTS_WITH_KERNELS = (
    *("arena", "arena/dense", "arena/index", "arena/rows"),
    *("datasets/kernels", "datasets/synthetic", "datasets/text"),
    "worker/model",
)
# A module whose kernels every start needs: where their machine code is kept, so is that of the others. It is compiled
# again after a change in these folders (`arena.compiled`).
PROBED_PART, PROBED_MODULE = "worker/model", "dense_kernels"
PROBED_SOURCES = ("arena", "worker")
VARIABLE = "NUMBA_CACHE_DIR"
NAME = "elastichost-kernels"


@dataclass(frozen=True, slots=True)
class KernelCache:
    """directory: where compiled kernels are kept; None: nowhere. refused: the directories that were tried before and
    cannot be used, each with the reason."""

    directory: Path | None
    refused: tuple[str, ...] = ()

    @property
    def is_filled(self) -> bool:
        """Whether a start finds the kernels compiled."""
        if self.directory is None:
            return False
        kept = self.directory / PROBED_PART / "__pycache__" if self.directory == PACKAGE else self.directory
        indexes = [index.stat().st_mtime for index in kept.rglob(f"{PROBED_MODULE}.*.nbi")]
        sources = (path for part in PROBED_SOURCES for path in (PACKAGE / part).rglob("*.py"))
        return bool(indexes) and max(indexes) >= max(path.stat().st_mtime for path in sources)

    @property
    def problem(self) -> str:
        """A warning for the user; "" when kernels can be kept."""
        if self.directory is not None:
            return ""
        return (
            f"no directory for compiled kernels can be written ({'; '.join(self.refused)}): each start compiles them "
            f"again, which takes about {COMPILE_S:.0f} s of one core; set {VARIABLE} to a directory of your own"
        )


@functools.cache
def kernel_cache() -> KernelCache:
    """The kernel cache of this process. It is found once, by writing a file to each directory in turn."""
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
    """Sets numba's cache directory. Returns False when there is none: kernels must be compiled without a cache then."""
    import numba

    found = kernel_cache().directory
    if found is None:
        return False
    numba.config.CACHE_DIR = "" if found == PACKAGE else str(found)
    return True


@dataclass(frozen=True, slots=True)
class _Place:
    """A directory to try. is_private: it must belong to this user, and no other user may write to it."""

    directory: Path
    is_private: bool = True

    def prepare(self) -> None:
        """Creates the directory and writes to it. Raises OSError when that fails."""
        if self.directory == PACKAGE:
            for name in PARTS_WITH_KERNELS:
                _write_in(PACKAGE / name / "__pycache__")
            return
        if self.is_private:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            facts = self.directory.lstat()
            if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
                raise PermissionError(0, "it does not belong to this user, or other users can write to it")
        _write_in(self.directory)


def _write_in(directory: Path) -> None:
    """Writes a temporary file to the directory. Raises OSError when that fails."""
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
    with contextlib.suppress(RuntimeError):  # the user has no home directory
        yield _Place(Path.home() / ".cache" / NAME)
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield _Place(Path(runtime) / NAME)
    try:
        yield _Place(Path(tempfile.gettempdir()) / f"{NAME}-{os.geteuid()}")
    except FileNotFoundError:  # there is no writable directory for temporary files
        return
