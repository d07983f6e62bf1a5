"""What a shell or a login may have set that no run can work with: found at once, with what to type instead."""

from __future__ import annotations

import functools
import os
import resource
import sys
from pathlib import Path

from elastichost.errors import PreflightError

__all__ = ["LEAST_ADDRESS_BYTES", "address_bytes", "check_address_space", "enter_utf8_mode"]

# Arenas are sparse files that are mapped whole; undo records and pushes that wait reserve some 40 GiB alone.
LEAST_ADDRESS_BYTES = 64 << 30


# What the smallest layout of addresses offers to a process: ARM and RISC-V kernels with three levels of page tables.
_LEAST_ADDRESS_BITS = 38
_MAPS = Path("/proc/self/maps")


@functools.cache
def address_bytes(maps: Path = _MAPS) -> int:
    """How many bytes of addresses this kernel offers to a process: 128 TiB on x86-64, on ARM from 512 GiB to 4 PiB, by
    how it was built. Nothing tells that directly; the stack lies right below the last of them."""
    try:
        lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 1 << _LEAST_ADDRESS_BITS
    # "7ffd1c5e9000-7ffd1c60a000 rw-p ... [stack]"; the page of vsyscall is the kernel's own.
    ends = [int(line.split(maxsplit=1)[0].partition("-")[2], 16) for line in lines if "[vsyscall]" not in line]
    return 1 << max(_LEAST_ADDRESS_BITS, (max(ends, default=1) - 1).bit_length())


def check_address_space(needed_bytes: int = LEAST_ADDRESS_BYTES) -> None:
    """Raises PreflightError when this process may map less than that (`ulimit -v`)."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if allowed == resource.RLIM_INFINITY or allowed >= needed_bytes:
        return
    raise PreflightError(
        f"`ulimit -v` allows a process {allowed / 1e9:,.1f} GB of addresses, a job needs {needed_bytes / 1e9:,.1f} GB: "
        "rows lie in sparse files that are mapped whole, and take as much memory as there are rows",
        hint="`ulimit -v unlimited` (as root, or where the limit is set: /etc/security/limits.conf, the unit file of a "
        "service); resources.memory is what limits a job's memory",
    )


def enter_utf8_mode() -> None:
    """Starts this very program anew in Python's UTF-8 mode, if names of files would be read as anything else: job
    files, journals and messages are UTF-8, and other names could not be written there. Returns if nothing is to do."""
    if sys.getfilesystemencoding() == "utf-8" or os.environ.get("PYTHONUTF8") == "1":
        return
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONUTF8": "1"})
