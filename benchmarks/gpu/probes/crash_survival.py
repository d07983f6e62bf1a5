"""P2 decides whether vectors and rows may live in device memory: does memory whose file descriptor a process without
CUDA holds survive the SIGKILL of all CUDA processes, how soon can a successor map it, and is it freed at the end."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import time
from contextlib import suppress
from typing import Any

from benchmarks.gpu.device.interface import COUNT, CudaError, Device
from benchmarks.gpu.probes.child import Child, attempt, children, hear, say
from benchmarks.gpu.probes.setting import Setting

__all__ = ["hold", "import_and_check", "reserve_at_hints", "run", "write_and_export"]

PIECES = 4  # of 1 GiB each
SEED = 7_000_000
NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm")
HINTS = (0x0100_0000_0000, 0x1000_0000_0000, 0x2000_0000_0000, 0x6000_0000_0000)
MODULE = "benchmarks.gpu.probes.crash_survival"


def hold(setting: Setting, inbox: int, outbox: int, nodes: list[str], **_others: Any) -> None:
    """Receives descriptors from a socket and gives them on when told; makes no CUDA call. Opens the named device nodes
    first."""
    opened: dict[str, int | str] = {}
    for node in nodes:
        try:
            opened[node] = os.open(node, os.O_RDWR)
        except OSError as error:
            opened[node] = f"cannot be opened: {error}"
    with socket.socket(fileno=inbox) as source, socket.socket(fileno=outbox) as target:
        say(ready=True, pid=os.getpid(), nodes=opened)
        _, descriptors, _, _ = socket.recv_fds(source, 1, PIECES)
        say(received=len(descriptors), links=[os.readlink(f"/proc/self/fd/{number}") for number in descriptors])
        while hear().get("give"):
            socket.send_fds(target, [b"x"], descriptors)
            say(given=True)
        for descriptor in descriptors:
            os.close(descriptor)
        say(closed=True)
        hear()


def mapped(device: Device, handles: list[Any], piece: int) -> tuple[int, dict[str, list[float]]]:
    """Maps memory behind handles side by side and returns the address and the milliseconds of each call."""
    address = device.reserve(len(handles) * piece, 0)
    spent: dict[str, list[float]] = {"map_ms": [], "set_access_ms": []}
    for index, handle in enumerate(handles):
        begin = time.perf_counter()
        device.map(address + index * piece, piece, handle)
        middle = time.perf_counter()
        device.set_access(address + index * piece, piece)
        spent["map_ms"].append((middle - begin) * 1000)
        spent["set_access_ms"].append((time.perf_counter() - middle) * 1000)
    return address, spent


def write_and_export(setting: Setting, outbox: int, **_others: Any) -> None:
    """Makes device memory, writes a pattern into it, sends its descriptors to the holder, and waits to be killed."""
    device, piece = setting.device(), setting.gib
    begin = time.perf_counter()
    handles = [device.create(piece) for _ in range(PIECES)]
    create_ms = (time.perf_counter() - begin) * 1000
    address, spent = mapped(device, handles, piece)
    device.launch("fill_pattern", 512, 256, [(address, COUNT), (PIECES * piece // 8, COUNT), (SEED, COUNT)])
    device.synchronize()
    begin = time.perf_counter()
    descriptors = [device.export(handle) for handle in handles]
    export_ms = (time.perf_counter() - begin) * 1000
    with socket.socket(fileno=outbox) as target:
        socket.send_fds(target, [b"x"], descriptors)
        say(ready=True, pieces=PIECES, piece_bytes=piece, create_ms=create_ms, export_ms=export_ms, **spent)
        hear()


def import_and_check(setting: Setting, inbox: int, early: bool, **_others: Any) -> None:
    """Receives the descriptors, maps the memory, and says how many words differ from the pattern. `early`: makes its
    context before it is told to begin. Ends when told, after undoing everything."""
    piece, device = setting.gib, setting.device() if early else None
    say(ready=True)
    hear()
    device = device or setting.device()
    context_s = time.monotonic()
    with socket.socket(fileno=inbox) as source:
        _, descriptors, _, _ = socket.recv_fds(source, 1, PIECES)
    handles: list[Any] = []
    failures: list[str] = []
    while len(handles) < len(descriptors) and len(failures) < 20:
        try:
            handles.append(device.import_(descriptors[len(handles)]))
        except CudaError as error:
            failures.append(str(error))
            time.sleep(0.1)
    if len(handles) < len(descriptors):
        say(imported=len(handles), failures=failures)
        return
    address, spent = mapped(device, handles, piece)
    mapped_s = time.monotonic()
    wrong = device.allocate(8)
    device.clear(wrong, 8)
    count = PIECES * piece // 8
    device.launch("count_mismatches", 512, 256, [(address, COUNT), (count, COUNT), (SEED, COUNT), (wrong, COUNT)])
    device.synchronize()
    answer = device.allocate_pinned(8)
    device.copy(answer, wrong, 8, "DtoH")
    device.synchronize()
    mismatches = int.from_bytes(ctypes.string_at(answer, 8), "little")
    times = {"context_at_s": context_s, "mapped_at_s": mapped_s, "checked_at_s": time.monotonic()}
    say(imported=len(handles), failures=failures, words=count, mismatches=mismatches, times=times, **spent)
    hear()


def used_mib() -> str:
    """Returns the used device memory by nvidia-smi, which makes no context."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader"]
    with suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
    return "unknown"


def measure_variant(setting: Setting, name: str, nodes: tuple[str, ...], *, early: bool, pause_s: float) -> None:
    """Says whether the memory survives: holder with the named nodes open; a successor that has its context before the
    kill or not; seconds without any CUDA process."""
    to_holder, from_writer = socket.socketpair()
    to_successor, from_holder = socket.socketpair()
    sockets = [to_holder, from_writer, to_successor, from_holder]
    with children() as started:
        inbox, outbox = from_writer.fileno(), to_successor.fileno()
        holder = Child(f"{MODULE}:hold", setting, (inbox, outbox), inbox=inbox, outbox=outbox, nodes=list(nodes))
        started.append(holder)
        held = holder.hear()
        inbox, outbox = from_holder.fileno(), to_holder.fileno()
        writer = Child(f"{MODULE}:write_and_export", setting, (outbox,), outbox=outbox)
        started.append(writer)
        successor = Child(f"{MODULE}:import_and_check", setting, (inbox,), inbox=inbox, early=early)
        started.append(successor)
        for end in sockets:
            end.close()
        successor.hear()
        written = writer.hear()
        received = holder.hear()
        used = {"written": used_mib()}
        dead_s = time.monotonic()
        waited_s = writer.kill()
        if pause_s:
            time.sleep(pause_s)  # the time in which no CUDA process lives
        if nodes:  # nvidia-smi opens the nodes, too
            used["all CUDA processes dead"] = used_mib()
        begin_s = time.monotonic()
        holder.tell(give=True)
        holder.hear()
        successor.tell(begin=True)
        checked = successor.hear(15)
        successor.finish()
        holder.tell(give=False)
        holder.hear()
        used["holder closed"] = used_mib()
        holder.finish()
        used["holder ended"] = used_mib()
    after = {key: value - begin_s for key, value in checked.pop("times", {}).items()}
    say(
        experiment="survival",
        variant=name,
        survived=checked.get("mismatches") == 0,
        holder=held,
        received=received,
        writer=written,
        kill_to_waitpid_s=waited_s,
        kill_to_begin_s=begin_s - dead_s,
        seconds_after_begin=after,
        successor=checked,
        used_mib=used,
    )


def reserve_at_hints(setting: Setting, **_others: Any) -> None:
    """Says which hinted addresses the driver grants."""
    device = setting.device()
    for hint in HINTS:
        for gib in (64, 1024):
            size = gib * setting.gib
            try:
                begin = time.perf_counter()
                found = device.reserve(size, hint)
                spent_ms = (time.perf_counter() - begin) * 1000
                say(experiment="reserve", hint=hex(hint), found=hex(found), kept=hint == found, gib=gib, ms=spent_ms)
                if gib == 64:
                    device.free_reserved(found, size)
            except CudaError as error:
                say(experiment="reserve", hint=hex(hint), gib=gib, code=error.code)
    say(done=True)


def measure_hints(setting: Setting) -> None:
    """Says whether two processes get the same address ranges."""
    with children() as started:
        started += [Child(f"{MODULE}:reserve_at_hints", setting) for _ in range(2)]
        for index, child in enumerate(started):
            while not (facts := child.hear()).get("done"):
                say(process=index, **facts)


def run(setting: Setting, **_others: Any) -> None:
    """Says the survival by variant, then the addresses."""
    variants: list[tuple[str, tuple[str, ...], bool, float]] = [
        ("all dead, no node open", (), False, 0.5),
        ("all dead, all nodes open", NODES, False, 0.5),
        ("all dead, nvidiactl open", NODES[:1], False, 0.0),
        ("successor has its context before the kill", (), True, 0.0),
    ]
    say(experiment="used before", used_mib=used_mib())
    for name, nodes, early, pause_s in variants:
        with attempt(name):
            measure_variant(setting, name, nodes, early=early, pause_s=pause_s)
    with attempt("reserve"):
        measure_hints(setting)
