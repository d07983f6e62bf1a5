"""What a shell or a login may have set that no run can work with: found at once, with what to type instead."""

from __future__ import annotations

import os
import resource
import sys

from elastichost.errors import PreflightError

__all__ = ["LEAST_ADDRESS_BYTES", "check_address_space", "enter_utf8_mode"]

# Arenas are sparse files that are mapped whole; undo records and pushes that wait reserve some 40 GiB alone.
LEAST_ADDRESS_BYTES = 64 << 30


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
