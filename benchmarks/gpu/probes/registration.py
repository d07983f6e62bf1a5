"""P1 decides whether the arena can be registered as it is: seconds per GB by size, page size and chunk, for one process
and for two at once, holes, mappings that are refused, and the cost of small granules."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.gpu.device.host_memory import Mapping, map_file, populate, sized_file
from benchmarks.gpu.device.interface import CudaError, Device
from benchmarks.gpu.device.mounts import huge_folder, memory_figure_bytes, plain_folder
from benchmarks.gpu.probes.child import Child, attempt, children, hear, say
from benchmarks.gpu.probes.setting import Setting

__all__ = ["register_once", "run"]

SIZES_GIB = (1, 4, 16)
GRANULE = 2 << 20
GRANULES = 512


@contextmanager
def populated_file(folder: Path, size: int) -> Iterator[tuple[Path, Mapping, float]]:
    """Yields a file whose pages are allocated, its mapping, and the seconds that it took; the file is removed."""
    path = sized_file(folder / f"rows-{size}", size)
    try:
        with map_file(path, size) as mapping:
            begin = time.monotonic()
            populate(mapping)
            yield path, mapping, time.monotonic() - begin
    finally:
        path.unlink()


def registered_s(device: Device, mapping: Mapping, chunk: int) -> tuple[float, float]:
    """Registers a mapping in chunks, undoes it, and returns the seconds of both."""
    begins = range(mapping.address, mapping.address + mapping.size, chunk)
    start = time.monotonic()
    for begin in begins:
        device.register(begin, min(chunk, mapping.address + mapping.size - begin))
    middle = time.monotonic()
    for begin in begins:
        device.unregister(begin)
    return middle - start, time.monotonic() - middle


def measure_sizes(device: Device, folder: Path, setting: Setting, pages: str, sizes_gib: Sequence[int]) -> int:
    """Says the cost of registering by size, whole and in chunks of 1 GiB. Returns the bytes that tmpfs put into huge
    pages for the last size."""
    huge_bytes = 0
    for gib in sizes_gib:
        size = gib * setting.gib
        if setting.left_s() < 5:
            say(experiment="register", pages=pages, skipped_bytes=size)
            continue
        huge_before = memory_figure_bytes("ShmemHugePages")
        with attempt(f"register {gib} GiB, {pages}"), populated_file(folder, size) as (_, mapping, populate_s):
            huge_bytes = memory_figure_bytes("ShmemHugePages") - huge_before
            for chunk in (size, setting.gib) if gib > 1 else (size,):
                register_s, unregister_s = registered_s(device, mapping, chunk)
                say(
                    experiment="register",
                    pages=pages,
                    bytes=size,
                    chunk_bytes=chunk,
                    huge_page_bytes=huge_bytes,
                    populate_s=populate_s,
                    register_s=register_s,
                    unregister_s=unregister_s,
                    register_s_per_gb=register_s / size * 1e9,
                    device_address_is_host_address=same_address(device, mapping),
                )
    return huge_bytes


def same_address(device: Device, mapping: Mapping) -> bool:
    """Returns whether the device's address of a registered mapping is the host's."""
    device.register(mapping.address, GRANULE)
    try:
        return device.device_address(mapping.address) == mapping.address
    finally:
        device.unregister(mapping.address)


def register_once(setting: Setting, path: str, size: int, **_others: Any) -> None:
    """Registers a file each time it is told and says the seconds: the second process of `measure_two`."""
    device = setting.device()
    with map_file(Path(path), size) as mapping:
        say(ready=True)
        while hear().get("go"):
            begin = time.monotonic()
            device.register(mapping.address, size)
            middle = time.monotonic()
            say(begin_s=begin, end_s=middle, register_s=middle - begin)
            hear()
            begin = time.monotonic()
            device.unregister(mapping.address)
            say(unregister_s=time.monotonic() - begin)


def measure_two(folder: Path, setting: Setting) -> None:
    """Says what two processes take that register one file: alone, then at the same time, then beside the other."""
    size = 2 * setting.gib
    with populated_file(folder, size) as (path, _, _), children() as started:
        for _ in range(2):
            started.append(
                Child("benchmarks.gpu.probes.registration:register_once", setting, path=str(path), size=size)
            )
        for child in started:
            child.hear()
        for who in ([0], [0, 1], [1]):
            for index in who:
                started[index].tell(go=True)
            facts = [started[index].hear() for index in who]
            for index in who:
                started[index].tell(undo=True)
            undone = [started[index].hear() for index in who]
            say(experiment="register by processes", processes=len(who), bytes=size, each=facts, undone=undone)
        for child in started:
            child.tell(go=False)


def measure_holes(device: Device, folder: Path, setting: Setting) -> None:
    """Says whether registering allocates the holes of a file."""
    size = 16 * setting.gib // 256
    path = sized_file(folder / "holes", size)
    with map_file(path, size) as mapping:
        before = path.stat().st_blocks * 512
        begin = time.monotonic()
        device.register(mapping.address, size)
        register_s = time.monotonic() - begin
        after = path.stat().st_blocks * 512
        device.unregister(mapping.address)
    say(experiment="holes", bytes=size, allocated_before=before, allocated_after=after, register_s=register_s)
    path.unlink()


def measure_granules(device: Device, folder: Path, setting: Setting, pages: str) -> None:
    """Says the cost of each call when a file is registered by granules of 2 MiB, and undone so."""
    count = GRANULES if not setting.dry_run else 4
    with populated_file(folder, count * GRANULE) as (_, mapping, _):
        starts = range(mapping.address, mapping.address + mapping.size, GRANULE)
        costs: dict[str, list[float]] = {"register": [], "unregister": []}
        for address in starts:
            begin = time.perf_counter()
            device.register(address, GRANULE)
            costs["register"].append((time.perf_counter() - begin) * 1e6)
        for address in starts:
            begin = time.perf_counter()
            device.unregister(address)
            costs["unregister"].append((time.perf_counter() - begin) * 1e6)
    for call, spent_us in costs.items():
        say(
            experiment="granules",
            pages=pages,
            call=call,
            granules=count,
            median_us=statistics.median(spent_us),
            max_us=max(spent_us),
            first_us=spent_us[0],
            last_us=spent_us[-1],
        )


def measure_refusals(device: Device, folder: Path, setting: Setting) -> None:
    """Says which mappings are refused and with which code: a disk file, read-only with and without the flag."""
    size = 4 << 20

    def outcome(mapping: Mapping, *, read_only: bool = False) -> str:
        try:
            device.register(mapping.address, size, read_only=read_only)
        except CudaError as error:
            return error.code
        device.unregister(mapping.address)
        return "registered"

    disk = sized_file(Path(setting.folder) / "disk", size)
    with map_file(disk, size) as mapping:
        populate(mapping)
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        below = [fields for fields in mounts if str(disk).startswith(fields[1])]
        say(experiment="disk file", file_system=max(below, key=lambda fields: len(fields[1])), outcome=outcome(mapping))
    disk.unlink()
    with populated_file(folder, size) as (path, _, _), map_file(path, size, writable=False) as mapping:
        for read_only in (True, False):
            said = outcome(mapping, read_only=read_only)
            say(experiment="read-only mapping", read_only_flag=read_only, outcome=said)
    with populated_file(folder, size) as (_, mapping, _):
        device.register(mapping.address, size)
        say(experiment="registered twice", outcome=outcome(mapping))
        device.unregister(mapping.address)


def run(setting: Setting, **_others: Any) -> None:
    """Says all of it; first pages of 4 KiB, then huge pages."""
    need = 17 * setting.gib
    with plain_folder(need) as (folder, note):
        say(experiment="folder", note=note, path=str(folder))
        with attempt("two processes"):
            measure_two(folder, setting)
        device = setting.device()
        for name, measure in (("holes", measure_holes), ("refusals", measure_refusals)):
            with attempt(name):
                measure(device, folder, setting)
        with attempt("granules"):
            measure_granules(device, folder, setting, "4 KiB")
        measure_sizes(device, folder, setting, "4 KiB", SIZES_GIB)
    if setting.dry_run:
        return
    for hugetlb in (False, True):
        with huge_folder(need, hugetlb=hugetlb) as (huge, note):
            say(experiment="huge folder", note=note)
            if huge is None or setting.left_s() < 6:
                continue
            with attempt(f"granules, {note}"):
                measure_granules(device, huge, setting, note)
            if measure_sizes(device, huge, setting, note, SIZES_GIB[::2]) > need // 2:
                return  # tmpfs gave huge pages: hugetlbfs is not needed
