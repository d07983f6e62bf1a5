"""The worker's end of `memory_holder`: gives descriptors of GPU memory to the holder of an arena, and takes them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from elastichost.arena.recovery.device_residence import read_residence
from elastichost.errors import ArenaError, GpuMemoryError
from elastichost.gpu.memory import memory_holder

__all__ = ["HeldPieces", "drop_memory", "hold_memory", "is_held", "take_memory", "why_model_is_gone"]

STARTS_WITHIN_S = 2.0
ANSWERS_WITHIN_S = 0.5
ATTEMPTS = 2
LOOK_EVERY_S = 0.01


@dataclass(frozen=True, slots=True)
class HeldPieces:
    """The pieces of memory that a holder has. The caller closes the descriptors (`close`)."""

    sizes: tuple[int, ...]
    descriptors: tuple[int, ...]

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


def hold_memory(arena: Path, token: str, sizes: Sequence[int], descriptors: Sequence[int]) -> None:
    """Returns when the holder of this arena has the descriptors, and holds nothing else. Starts a holder if there is
    none. The descriptors stay the caller's. Raises GpuMemoryError."""
    most = memory_holder.MOST_PIECES
    if len(sizes) > most:
        raise GpuMemoryError(f"the model has {len(sizes)} pieces of memory, at most {most} can be kept")
    if not _is_answered(arena):
        _start(arena)
    held = _asked(arena, {"keep": token, "sizes": list(sizes)}, descriptors)
    if held is None or list(held.sizes) != list(sizes):
        raise GpuMemoryError("the process that keeps the GPU's memory has not taken it")


def take_memory(arena: Path, token: str) -> HeldPieces | None:
    """The pieces that are held under this token; None: no process holds them any more."""
    return _asked(arena, {"give": token})


def is_held(arena: Path, token: str) -> bool:
    """Whether the pieces of this token are held."""
    held = take_memory(arena, token)
    if held is not None:
        held.close()
    return held is not None


def why_model_is_gone(arena: Path, *, may_be_resident: bool) -> str:
    """Why the model of an arena cannot be used, in words; "": it can, or it is in the arena. may_be_resident: the
    caller's worker can use it in memory of its GPU."""
    try:
        resident = read_residence(arena)
    except ArenaError as error:
        return str(error)
    if resident is None:
        return ""
    if not may_be_resident:
        return f"its model is in memory of GPU {resident.device}, which this run does not use for it"
    is_usable = is_held(arena, resident.token)
    return "" if is_usable else f"no process holds its model in memory of GPU {resident.device} any more"


def drop_memory(arena: Path, token: str) -> None:
    """Lets the holder forget the pieces of this token."""
    _asked(arena, {"drop": token})


def _asked(arena: Path, request: dict[str, object], descriptors: Sequence[int] = ()) -> HeldPieces | None:
    """None: there is no holder, or it holds nothing under this token. Raises GpuMemoryError when it does not answer, or
    not all descriptors came."""
    problem = ""
    for _ in range(ATTEMPTS):
        try:
            with _connected(arena) as connection:
                return _answer(connection, request, descriptors)
        except (FileNotFoundError, ConnectionRefusedError):
            return None
        except (OSError, ValueError) as error:
            problem = str(error)
    raise GpuMemoryError(f"the process that keeps the GPU's memory does not answer: {problem}")


def _answer(connection: socket.socket, request: dict[str, object], descriptors: Sequence[int]) -> HeldPieces | None:
    """Raises OSError, and ValueError for an incomplete answer."""
    socket.send_fds(connection, [json.dumps(request).encode()], list(descriptors))
    packet, given, flags, _ = socket.recv_fds(connection, memory_holder.LARGEST_PACKET, memory_holder.MOST_PIECES)
    sizes = json.loads(packet)["sizes"] if packet else None
    held = HeldPieces(tuple(sizes or ()), tuple(given))
    if not packet or flags & socket.MSG_CTRUNC or ("give" in request and len(held.sizes) != len(held.descriptors)):
        held.close()
        raise ValueError(f"{len(given)} descriptors came for {len(held.sizes)} pieces")
    return held if sizes is not None else None


@contextlib.contextmanager
def _connected(arena: Path) -> Iterator[socket.socket]:
    """A connection to the holder. Raises OSError without one."""
    directory = os.open(arena, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(ANSWERS_WITHIN_S)
            connection.connect(memory_holder.address_in(directory))
            yield connection
    finally:
        os.close(directory)


def _is_answered(arena: Path) -> bool:
    with contextlib.suppress(OSError), _connected(arena):
        return True
    return False


def _start(arena: Path) -> None:
    """Starts a holder. Raises GpuMemoryError when it does not listen in time."""
    program = [sys.executable, "-I", "-S", str(Path(memory_holder.__file__)), str(arena)]
    process = subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    ends_s = time.monotonic() + STARTS_WITHIN_S
    while not _is_answered(arena):
        if process.poll() is not None or time.monotonic() > ends_s:
            raise GpuMemoryError(f"the process that keeps the GPU's memory has not begun (exit code {process.poll()})")
        time.sleep(LOOK_EVERY_S)
