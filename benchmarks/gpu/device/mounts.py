"""File systems in memory for the probes: /dev/shm or a mount of their own, with pages of 4 KiB or 2 MiB."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["huge_folder", "memory_figure_bytes", "plain_folder", "remove_left"]

SHM = Path("/dev/shm")
HUGE_PAGES = Path("/proc/sys/vm/nr_hugepages")
HUGE_PAGE_BYTES = 2 << 20


def memory_figure_bytes(name: str) -> int:
    """Returns a figure of /proc/meminfo; 0 if the kernel has none of that name."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * (1024 if value.endswith("kB") else 1)
    return 0


def mounted(kind: str, options: str, folder: Path) -> str:
    """Mounts a file system in memory; returns an error's text or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", kind, "-o", options, kind, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip() or f"mount exited with {done.returncode}"


def remove_left(pid: int) -> None:
    """Removes what a killed process left of the folders below."""
    for folder in [SHM / f"probe-{pid}", *Path("/mnt").glob(f"probe*-{pid}")]:
        if folder.is_mount():
            subprocess.run(["umount", "-l", str(folder)], check=False)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def plain_folder(need: int) -> Iterator[tuple[Path, str]]:
    """Yields a folder on tmpfs with room for that many bytes, and how it was come by: /dev/shm as it is, or a mount of
    its own. Without room it is /dev/shm and the error; the files in it are removed at the end."""
    name = f"probe-{os.getpid()}"
    folder, note = SHM / name, "/dev/shm as it is"
    if shutil.disk_usage(SHM).free < need:
        mount = Path("/mnt") / name
        error = mounted("tmpfs", f"size={need + (1 << 30)},huge=never", mount)
        if error:
            note = f"/dev/shm is too small; {error}"
        else:
            folder, note = mount, "tmpfs mounted for the probe"
    folder.mkdir(exist_ok=True)
    try:
        yield folder, note
    finally:
        remove_left(os.getpid())


@contextmanager
def huge_folder(need: int, *, hugetlb: bool = False) -> Iterator[tuple[Path | None, str]]:
    """Yields a folder whose files lie in huge pages, with room for that many bytes, and a note; None if there is none.
    tmpfs with huge=always, or hugetlbfs with pages that are given back at the end."""
    folder = Path("/mnt") / f"probe-{'hugetlb' if hugetlb else 'huge'}-{os.getpid()}"
    before = HUGE_PAGES.read_text() if hugetlb else ""
    try:
        if hugetlb:
            HUGE_PAGES.write_text(str(int(before) + need // HUGE_PAGE_BYTES))
            error = mounted("hugetlbfs", "pagesize=2M", folder)
        else:
            error = mounted("tmpfs", f"size={need + (1 << 30)},huge=always", folder)
    except OSError as failure:
        error = str(failure)
    try:
        if error:
            yield None, error
        elif hugetlb and memory_figure_bytes("HugePages_Free") * HUGE_PAGE_BYTES < need:
            yield None, f"only {memory_figure_bytes('HugePages_Free')} huge pages are free"
        else:
            yield folder, "hugetlbfs" if hugetlb else "tmpfs huge=always"
    finally:
        remove_left(os.getpid())
        if hugetlb and not error:
            HUGE_PAGES.write_text(before)
