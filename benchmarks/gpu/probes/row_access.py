"""P3 decides whether rows may stay in host memory: GB/s of gathers and updates of random rows of 64 and 512 bytes, in
device memory, in a registered file on tmpfs (pages of 4 KiB and 2 MiB), and by 16 CPU threads on the same file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.gpu.device.host_memory import Mapping, map_file, populate, sized_file
from benchmarks.gpu.device.interface import COUNT, REAL, WORD, Device
from benchmarks.gpu.device.kernels import load_rows_library
from benchmarks.gpu.device.mounts import huge_folder, memory_figure_bytes, plain_folder
from benchmarks.gpu.probes.child import attempt, say
from benchmarks.gpu.probes.setting import Setting

__all__ = ["run"]

SIZES_GIB = (40, 8, 1)
BATCHES = (26 * 8192, 26 * 2048, 26 * 65536)  # rows of 26 tables
ROW_BYTES = (64, 512)
KERNELS = ("gather_rows", "update_rows")
EXPONENTS = (0.0, 1.05)  # 0 is uniform
IDS = 2 * BATCHES[2]
BLOCKS, THREADS = 132 * 8, 256
CPU_THREADS = 16
HUGE_S = 14.0  # seconds that are kept for huge pages
FIGURES_S = 12.0  # seconds that are kept for the figures while a table is populated
PIECE_GIB = 4


@dataclass(frozen=True)
class Case:
    """One figure: a table's size, its rows, what is done to them, the ids' distribution, and rows in a batch."""

    gib: int
    row_bytes: int
    kernel: str
    exponent: float
    batch: int

    @property
    def launches(self) -> int:
        """Batches that are timed together, each with row numbers of its own."""
        return IDS // self.batch


def cases(sizes_gib: Sequence[int], batches: Sequence[int] = BATCHES) -> list[Case]:
    """Returns the cases, those that decide most first: one batch size with both distributions, the others uniform."""
    first = [Case(*case, batches[0]) for case in product(sizes_gib, ROW_BYTES, KERNELS, EXPONENTS)]
    others = product(sizes_gib, ROW_BYTES, KERNELS, (0.0,), batches[1:])
    return sorted(first, key=lambda case: case.exponent) + [Case(*case) for case in others]


@dataclass(frozen=True)
class Buffers:
    """Device memory for row numbers and for a result that is not read; pinned memory for a copy of the numbers."""

    ids: int
    sink: int
    host_ids: int


def draw(device: Device, buffers: Buffers, case: Case, gib_bytes: int) -> None:
    """Draws the row numbers of all batches of a case."""
    rows = case.gib * gib_bytes // case.row_bytes
    seed = case.gib * 1_000_003 + case.row_bytes * 7919 + case.batch
    arguments = [(buffers.ids, COUNT), (IDS, COUNT), (rows, COUNT), (seed, COUNT), (case.exponent, REAL)]
    device.launch("draw_rows", (IDS + THREADS - 1) // THREADS, THREADS, arguments)
    device.synchronize()


def device_seconds(device: Device, buffers: Buffers, table: int, case: Case) -> float:
    """Returns the seconds for all batches of a case, as one graph so that no launch is waited for."""

    def work() -> None:
        for index in range(case.launches):
            ids = buffers.ids + index * case.batch * 4
            arguments = [(table, COUNT), (ids, COUNT), (case.batch, COUNT), (case.row_bytes // 16, WORD)]
            device.launch(case.kernel, BLOCKS, THREADS, [*arguments, (buffers.sink, COUNT)])

    device.launch(case.kernel, 1, 32, warm_arguments(buffers, table, case))  # a capture must not load the kernel
    device.synchronize()
    return device.timed_s(device.captured(work))


def warm_arguments(buffers: Buffers, table: int, case: Case) -> list[tuple[int | float, Any]]:
    """Returns arguments of a launch for 64 rows, which loads the kernel."""
    return [
        (table, COUNT),
        (buffers.ids, COUNT),
        (64, COUNT),
        (case.row_bytes // 16, WORD),
        (buffers.sink, COUNT),
    ]


def report(place: str, case: Case, seconds: float) -> None:
    """Says a figure: GB/s of useful bytes, read once for a gather and read and written for an update."""
    rows = case.launches * case.batch
    passes = 2 if case.kernel == "update_rows" else 1
    say(
        experiment="rows",
        place=place,
        **asdict(case),
        rows_per_s=rows / seconds,
        gb_per_s=rows * case.row_bytes * passes / seconds / 1e9,
        batch_us=seconds / case.launches * 1e6,
    )


def measure(
    device: Device, buffers: Buffers, table: int, place: str, chosen: Sequence[Case], setting: Setting, stop_s: float
) -> None:
    """Says the figures of cases on a table; stops when fewer than `stop_s` seconds are left."""
    for index, case in enumerate(chosen):
        if setting.left_s() < stop_s:
            say(experiment="rows", place=place, skipped=len(chosen) - index)
            return
        draw(device, buffers, case, setting.gib)
        report(place, case, device_seconds(device, buffers, table, case))


def populated_gib(mapping: Mapping, setting: Setting, stop_s: float) -> int:
    """Populates a mapping piece by piece until fewer than `stop_s` seconds are left; returns the populated GiB."""
    done, total = 0, mapping.size // setting.gib
    while done < total and (done == 0 or setting.left_s() > stop_s):
        piece = min(PIECE_GIB, total - done)
        populate(Mapping(mapping.address + done * setting.gib, piece * setting.gib))
        done += piece
    return done


@contextmanager
def registered_table(
    device: Device, folder: Path, gib: int, setting: Setting, place: str, stop_s: float
) -> Iterator[tuple[Mapping, list[int]]]:
    """Yields a populated file that is registered in chunks of 1 GiB, and the sizes to measure, the largest first; says
    what that took. The table is smaller than asked for if populating leaves fewer than `stop_s` seconds."""
    path = sized_file(folder / "table", gib * setting.gib)
    with map_file(path, gib * setting.gib) as mapping:
        begin = time.monotonic()
        gib = populated_gib(mapping, setting, stop_s)
        middle = time.monotonic()
        chunks = range(mapping.address, mapping.address + gib * setting.gib, setting.gib)
        for chunk in chunks:
            device.register(chunk, setting.gib)
        end = time.monotonic()
        say(experiment="table", place=place, gib=gib, populate_s=middle - begin, register_s=end - middle)
        try:
            yield mapping, [gib, *(size for size in SIZES_GIB if size < gib)]
        finally:
            begin = time.monotonic()
            for chunk in chunks:
                device.unregister(chunk)
            say(experiment="table", place=place, gib=gib, unregister_s=time.monotonic() - begin)
    path.unlink()


def measure_cpu(device: Device, buffers: Buffers, mapping: Mapping, chosen: Sequence[Case], setting: Setting) -> None:
    """Says the figures of CPU threads; the row numbers are those that the device draws."""
    library = load_rows_library(Path(setting.folder))
    with ThreadPoolExecutor(CPU_THREADS) as threads:
        for case in chosen:
            if setting.left_s() < HUGE_S:
                return
            draw(device, buffers, case, setting.gib)
            device.copy(buffers.host_ids, buffers.ids, IDS * 4, "DtoH")
            device.synchronize()
            share, row_words = case.batch // CPU_THREADS, case.row_bytes // 8
            function: Callable[[int], int] = partial(
                call_rows, getattr(library, case.kernel), mapping.address, share, row_words
            )
            begin = time.perf_counter()
            for first in range(0, case.launches * case.batch, case.batch):
                starts = range(buffers.host_ids + first * 4, buffers.host_ids + (first + case.batch) * 4, share * 4)
                list(threads.map(function, starts))
            report(f"cpu, {CPU_THREADS} threads", case, time.perf_counter() - begin)


def call_rows(function: Callable[..., int], table: int, share: int, row_words: int, ids: int) -> int:
    """Calls a function of rows.c for one thread's share of a batch."""
    return function(table, ids, share, row_words)


def feasible(sizes_gib: Sequence[int], setting: Setting) -> list[int]:
    """Returns the sizes that fit into the free memory of the host with a quarter to spare."""
    return [gib for gib in sizes_gib if gib * setting.gib < memory_figure_bytes("MemAvailable") * 0.75]


def run(setting: Setting, **_others: Any) -> None:
    """Says the figures in device memory, in the registered file, of the CPU, and in huge pages."""
    device = setting.device()
    buffers = Buffers(device.allocate(IDS * 4), device.allocate(64), device.allocate_pinned(IDS * 4))
    with attempt("device memory"):
        table = device.allocate(SIZES_GIB[0] * setting.gib)
        device.clear(table, SIZES_GIB[0] * setting.gib)
        measure(device, buffers, table, "device memory", cases(SIZES_GIB), setting, HUGE_S)
        device.free(table)
    sizes = feasible(SIZES_GIB, setting)
    with attempt("4 KiB pages"), plain_folder(sizes[0] * setting.gib) as (folder, note):
        say(experiment="folder", note=note)
        with registered_table(device, folder, sizes[0], setting, "4 KiB pages", HUGE_S + FIGURES_S) as (mapping, there):
            table = device.device_address(mapping.address)
            chosen = cases(there)
            uniform = [case for case in chosen if case.batch != BATCHES[1]]
            measure(device, buffers, table, "4 KiB pages", chosen[: len(chosen) // 2], setting, HUGE_S)
            with attempt("cpu"):
                measure_cpu(device, buffers, mapping, [case for case in uniform if case.gib != 1], setting)
            measure(device, buffers, table, "4 KiB pages", chosen[len(chosen) // 2 :], setting, HUGE_S)
    if setting.dry_run:
        return
    with attempt("huge pages"):
        measure_huge(device, buffers, sizes, setting)


def measure_huge(device: Device, buffers: Buffers, sizes: Sequence[int], setting: Setting) -> None:
    """Says the figures in pages of 2 MiB: tmpfs with huge=always, or hugetlbfs if the kernel grants tmpfs none."""
    before = memory_figure_bytes("ShmemHugePages")
    for hugetlb in (False, True):
        with huge_folder(sizes[0] * setting.gib, hugetlb=hugetlb) as (folder, note):
            say(experiment="huge folder", note=note)
            if folder is None:
                continue
            with registered_table(device, folder, sizes[0], setting, note, HUGE_S / 2) as (mapping, there):
                huge_bytes = memory_figure_bytes("ShmemHugePages") - before
                say(experiment="huge pages", note=note, bytes=huge_bytes)
                measure(device, buffers, device.device_address(mapping.address), note, cases(there), setting, 1.5)
            if huge_bytes >= there[0] * setting.gib // 2 or setting.left_s() < 6:
                return
