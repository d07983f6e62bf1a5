"""Settings of a shell or login with which no run works: limits of the address space, and the encoding of file names."""

from __future__ import annotations

import functools
import os
import resource
import sys
from pathlib import Path

from elastichost.errors import PreflightError
from elastichost.human_readable import bytes_words

__all__ = ["LEAST_ADDRESS_BYTES", "address_bytes", "check_address_space", "enter_utf8_mode"]

# Arenas are sparse files that are mapped completely. Undo records and staged pushes alone reserve about 40 GiB.
LEAST_ADDRESS_BYTES = 64 << 30


# The smallest address space of a process: ARM and RISC-V kernels with three levels of page tables.
_LEAST_ADDRESS_BITS = 38
_MAPS = Path("/proc/self/maps")


@functools.cache
def address_bytes(maps: Path = _MAPS) -> int:
    """The size of a process' address space: 128 TiB on x86-64, on ARM 512 GiB to 4 PiB, depending on the kernel's
    configuration. The kernel does not report it; it follows from the stack, which lies at the end of the space."""
    try:
        lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 1 << _LEAST_ADDRESS_BITS
    # "7ffd1c5e9000-7ffd1c60a000 rw-p ... [stack]"; the page of vsyscall is the kernel's own.
    ends = [int(line.split(maxsplit=1)[0].partition("-")[2], 16) for line in lines if "[vsyscall]" not in line]
    return 1 << max(_LEAST_ADDRESS_BITS, (max(ends, default=1) - 1).bit_length())


def check_address_space(needed_bytes: int = LEAST_ADDRESS_BYTES) -> None:
    """Raises PreflightError when `ulimit -v` allows this process less address space than `needed_bytes`."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed == resource.RLIM_INFINITY or allowed >= needed_bytes:
        return
    raise PreflightError(
        f"`ulimit -v` allows a process {bytes_words(allowed)} of addresses, a job needs {bytes_words(needed_bytes)}: "
        "rows are in large sparse files that are mapped completely; only rows that exist take memory",
        hint="run `ulimit -v unlimited` (as root, or change the limit where it is set: /etc/security/limits.conf, or "
        "the unit file of a service); to limit the memory of a job, set resources.memory",
    )


def enter_utf8_mode() -> None:
    """Restarts this program in Python's UTF-8 mode when file names would be decoded differently. Job files, journals
    and messages are UTF-8, so other file names could not be written to them. Returns when no restart is needed."""
    if sys.getfilesystemencoding() == "utf-8" or os.environ.get("PYTHONUTF8") == "1":
        return
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONUTF8": "1"})
