"""P1 also decides the crash law of registered rows: how soon another process's CPU sees the GPU's writes, and that
writes to pages freed after registration are lost."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.device.host_memory import Mapping, map_file, populate, punch_hole, sized_file
from benchmarks.gpu.device.interface import COUNT, Device
from benchmarks.gpu.device.mounts import plain_folder
from benchmarks.gpu.probes.child import Child, attempt, children, say
from benchmarks.gpu.probes.setting import Setting

__all__ = ["ask_words", "run"]

SIZE = 64 << 20
ROUNDS = 20_000
ECHO_LIMIT_NS = 4_000_000_000


def fill(device: Device, mapping: Mapping, seed: int) -> None:
    """Lets the device write `seed + i` into word i of a registered mapping."""
    arguments = [(device.device_address(mapping.address), COUNT), (mapping.size // 8, COUNT), (seed, COUNT)]
    device.launch("fill_pattern", 256, 256, arguments)
    device.synchronize()


def right_share(words: np.ndarray[Any, np.dtype[np.uint64]], first: int, seed: int) -> float:
    """Returns the share of words that hold the pattern, counted from the word `first` of the mapping."""
    expected = np.arange(seed + first, seed + first + len(words), dtype=np.uint64)
    return float((words == expected).mean())


def measure_punched(device: Device, folder: Path) -> None:
    """Says what the CPU sees of the device's writes after the second half of a registered file was freed."""
    path = sized_file(folder / "punched", SIZE)
    half = SIZE // 8 // 2
    with map_file(path, SIZE) as mapping:
        populate(mapping)
        device.register(mapping.address, SIZE)

        def report(moment: str, seed: int) -> None:
            words = mapping.words()
            say(
                experiment="punched hole",
                moment=moment,
                kept_half_right=right_share(words[:half], 0, seed),
                punched_half_right=right_share(words[half:], half, seed),
                punched_half_zero=float((words[half:] == 0).mean()),
                allocated_bytes=path.stat().st_blocks * 512,
            )

        fill(device, mapping, 1)
        report("registered, written", 1)
        punch_hole(path, SIZE // 2, SIZE // 2)
        say(experiment="punched hole", moment="punched", allocated_bytes=path.stat().st_blocks * 512)
        fill(device, mapping, 1000)
        report("punched, written", 1000)
        device.unregister(mapping.address)
        report("unregistered", 1000)
        device.register(mapping.address, SIZE)
        fill(device, mapping, 2000)
        report("registered again, written", 2000)
        device.unregister(mapping.address)
    path.unlink()


def ask_words(setting: Setting, path: str, rounds: int, **_others: Any) -> None:
    """Writes numbers into a file's first word and waits until the device has written each into the word 16: the
    process without a context in `measure_echo`. Says the seconds of a round trip."""
    with map_file(Path(path), 1 << 21) as mapping:
        words = mapping.words().data.cast("B").cast("Q")
        end = time.monotonic() + min(3.0, max(0.5, setting.left_s()))
        spent_us = []
        say(ready=True)
        for number in range(1, rounds + 1):
            begin = time.perf_counter()
            words[0] = number
            while words[16] != number:
                if time.monotonic() > end:
                    say(experiment="echo", gave_up_at=number, seen=words[16])
                    return
            spent_us.append((time.perf_counter() - begin) * 1e6)
        words.release()
    edges = np.quantile(spent_us, (0.01, 0.5, 0.99))
    p1, p50, p99 = (float(edge) for edge in edges)
    say(
        experiment="echo",
        rounds=len(spent_us),
        round_trip_us={"p1": p1, "p50": p50, "p99": p99, "max": max(spent_us)},
        mean_us=statistics.fmean(spent_us),
    )


def measure_echo(device: Device, folder: Path, setting: Setting) -> None:
    """Says the time of a round trip between the CPU of another process and a kernel, through a registered file."""
    path = sized_file(folder / "echo", 1 << 21)
    rounds = 200 if setting.dry_run else ROUNDS
    with map_file(path, 1 << 21) as mapping, children() as started:
        populate(mapping)
        device.register(mapping.address, mapping.size)
        arguments = [(device.device_address(mapping.address), COUNT), (rounds, COUNT), (ECHO_LIMIT_NS, COUNT)]
        try:
            device.launch("echo_words", 1, 1, arguments)
            started.append(Child("benchmarks.gpu.probes.coherence:ask_words", setting, path=str(path), rounds=rounds))
            started[0].hear()
            say(**started[0].hear(10))
        finally:
            device.synchronize()  # the kernel ends by itself; it must not outlive the mapping
            device.unregister(mapping.address)
    path.unlink()


def run(setting: Setting, **_others: Any) -> None:
    """Says what is seen and what is lost."""
    with plain_folder(4 * SIZE) as (folder, _note):
        device = setting.device()
        with attempt("punched hole"):
            measure_punched(device, folder)
        with attempt("echo"):
            measure_echo(device, folder, setting)
