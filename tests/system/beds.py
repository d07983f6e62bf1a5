"""Small file systems and other special environments for tests. Without the needed rights, a test is skipped."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["in_another_pid_namespace", "small_tmpfs", "with_read_only"]


@contextlib.contextmanager
def small_tmpfs(directory: Path, size: str) -> Iterator[Path]:
    """A tmpfs in a new directory, which is unmounted at the end; mappings of its files may outlive it."""
    directory.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)], capture_output=True, text=True
    )
    if made.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {made.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def in_another_pid_namespace(*command: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in another pid namespace, as in a container, where it cannot see the processes of this one. more:
    additional environment variables."""
    unshared = ("unshare", "--mount", "--pid", "--fork", "--mount-proc")
    tried = subprocess.run([*unshared, "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"no pid namespace can be made here: {tried.stderr.strip()}")
    environment = {**os.environ, **more}
    return subprocess.run([*unshared, *command], capture_output=True, text=True, timeout=60.0, env=environment)


def with_read_only(directory: Path, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a command for which a directory is read-only, like an installed package. more: environment variables."""
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" || exit 77; exec "$@"'
    unshared = ("unshare", "--mount", "sh", "-c", script, str(directory), *command)
    environment = {**os.environ, **more}
    done = subprocess.run(unshared, capture_output=True, text=True, timeout=100.0, env=environment)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    return done
