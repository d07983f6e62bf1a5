"""P4 decides whether a successor may trust memory right after waitpid: do the writes of a kernel whose process was
killed by SIGKILL go on, in registered host memory and in device memory that another process holds, and for how long?"""

from __future__ import annotations

import ctypes
import os
import socket
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.device.host_memory import Mapping, map_file, populate, sized_file
from benchmarks.gpu.device.interface import COUNT
from benchmarks.gpu.device.mounts import plain_folder
from benchmarks.gpu.probes.child import Child, attempt, children, hear, say
from benchmarks.gpu.probes.setting import Setting

__all__ = ["read_counters", "run", "write_counters"]

MODULE = "benchmarks.gpu.probes.kill_in_kernel"
REPETITIONS = 10
ALONE = 5  # repetitions without another CUDA process; the others have one that reads the device memory
BLOCKS = 132
SIZE = 2 << 20
KERNEL_S = 3.0
BEFORE_KILL_S = 0.3
WATCH_S = 0.5


def write_counters(setting: Setting, path: str, outbox: int, **_others: Any) -> None:
    """Runs a kernel for 3 s whose blocks write counters into a registered file and into device memory."""
    device = setting.device()
    with map_file(Path(path), SIZE) as mapping, socket.socket(fileno=outbox) as target:
        device.register(mapping.address, SIZE)
        handle = device.create(SIZE)
        address = device.reserve(SIZE, 0)
        device.map(address, SIZE, handle)
        device.set_access(address, SIZE)
        device.clear(address, SIZE)
        device.synchronize()
        socket.send_fds(target, [b"x"], [device.export(handle)])
        arguments = [(device.device_address(mapping.address), COUNT), (address, COUNT), (int(KERNEL_S * 1e9), COUNT)]
        device.launch("count_up", BLOCKS, 1, arguments)
        say(ready=True)
        device.synchronize()
        say(finished=True)


def read_counters(setting: Setting, inbox: int, **_others: Any) -> None:
    """Maps the device memory of each writer in turn and, when told, says the sum of its counters twice."""
    device = setting.device()
    size = BLOCKS * 128
    answer = device.allocate_pinned(size)
    address = device.reserve(SIZE, 0)
    words = np.ctypeslib.as_array((ctypes.c_uint64 * (size // 8)).from_address(answer))
    say(ready=True)
    with socket.socket(fileno=inbox) as source:
        while hear().get("go"):
            _, descriptors, _, _ = socket.recv_fds(source, 1, 1)
            handle = device.import_(descriptors[0])
            device.map(address, SIZE, handle)
            device.set_access(address, SIZE)
            os.close(descriptors[0])
            say(mapped=True)
            hear()
            sums = []
            for _ in range(2):
                begin = time.monotonic()
                device.copy(answer, address, size, "DtoH")
                device.synchronize()
                sums.append((begin, int(words[::16].sum())))
                time.sleep(0.05)
            say(read_at_s=[moment for moment, _ in sums], sums=[value for _, value in sums])
            if setting.dry_run:
                address = device.reserve(SIZE, 0)
            else:
                device.unmap(address, SIZE)
            device.release(handle)


def watched(mapping: Mapping, seconds: float) -> dict[str, Any]:
    """Watches the counters of a mapping and returns their growth and the seconds after which they stood still."""
    counters = mapping.words()[: BLOCKS * 16 : 16]
    begin = time.monotonic()
    first = last = counters.copy()
    changed_s, reads = 0.0, 0
    while (now := time.monotonic() - begin) < seconds:
        seen = counters.copy()
        reads += 1
        if not np.array_equal(seen, last):
            changed_s, last = now, seen
    return {
        "writes_after": int((last - first).sum()),
        "blocks_that_wrote": int((last != first).sum()),
        "last_change_after_s": changed_s,
        "reads": reads,
        "counters": int(last.sum()),
    }


def kill_once(setting: Setting, path: Path, reader: Child | None, to_reader: socket.socket, number: int) -> None:
    """Kills one writer and says what its kernel did after waitpid."""
    here, there = socket.socketpair()
    with closing(here), closing(there), map_file(path, SIZE) as mapping, children() as started:
        mapping.words()[:] = 0
        writer = Child(f"{MODULE}:write_counters", setting, (there.fileno(),), path=str(path), outbox=there.fileno())
        started.append(writer)
        writer.hear()  # it has sent the descriptor before, and says an error if it could not
        _, descriptors, _, _ = socket.recv_fds(here, 1, 1)
        if reader is not None:
            socket.send_fds(to_reader, [b"x"], descriptors)
            reader.tell(go=True)
            reader.hear()
        time.sleep(BEFORE_KILL_S)
        before = watched(mapping, 0.02)
        waited_s = writer.kill()
        dead_s = time.monotonic()
        after = watched(mapping, WATCH_S if reader is None else 0.0005)
        device_counters: dict[str, Any] = {}
        if reader is not None:
            reader.tell(read=True)
            facts = reader.hear()
            device_counters = {
                "read_after_s": [moment - dead_s for moment in facts["read_at_s"]],
                "grew": facts["sums"][1] - facts["sums"][0],
                "sum": facts["sums"][1],
            }
        later = watched(mapping, 0.02)
        for descriptor in descriptors:
            os.close(descriptor)
    say(
        experiment="kill",
        repetition=number,
        reader_alive=reader is not None,
        kill_to_waitpid_s=waited_s,
        before=before,
        after=after,
        grew_later=later["counters"] - after["counters"],
        device_counters=device_counters,
    )


def run(setting: Setting, **_others: Any) -> None:
    """Says what happened in each repetition."""
    with plain_folder(SIZE) as (folder, _note), children() as started:
        path = sized_file(folder / "counters", SIZE)
        with map_file(path, SIZE) as mapping:
            populate(mapping)
        to_reader, inbox = socket.socketpair()
        with closing(to_reader), closing(inbox):
            repetitions, alone = (2, 1) if setting.dry_run else (REPETITIONS, ALONE)
            for number in range(repetitions):
                if setting.left_s() < 3:
                    say(experiment="kill", skipped=repetitions - number)
                    return
                with attempt(f"repetition {number}"):
                    if number == alone:
                        reader = Child(f"{MODULE}:read_counters", setting, (inbox.fileno(),), inbox=inbox.fileno())
                        started.append(reader)
                        reader.hear()
                    kill_once(setting, path, started[0] if started else None, to_reader, number)
            if started:
                started[0].tell(go=False)
