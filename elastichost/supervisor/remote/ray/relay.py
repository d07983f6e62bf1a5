"""Stands where ssh would: a child of the supervisor whose streams are those of an agent on a node of Ray.

    python -m elastichost.supervisor.remote.ray.relay CLUSTER NODE CORES COMMAND...

An actor (`remote.ray.carrier`), pinned to that node, starts COMMAND there. It has all of the node's CPUs, so nobody
else is sent there meanwhile. It is not detached: Ray itself ends it with this process, however that ends; and the agent
ends with the actor.
"""

from __future__ import annotations

import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import ActorUnavailableError, ActorUnschedulableError, GetTimeoutError, ObjectLostError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from elastichost.supervisor.remote.ray import carrier as ray_carrier
from elastichost.supervisor.remote.ray.connection import connected, take_output

__all__ = ["main"]

PLACED_WITHIN_S = 20.0
ENDS_WITHIN_S = 10.0  # once nobody is left to carry for
AGAIN_AFTER_S = 0.2
LOOK_EVERY_S = 1.0
KNOCK_TIMEOUT_S = 1.0
CANNOT_START = 127  # as a shell has it
NO_PART = "the node is no part of the Ray cluster any more"
CALLS_AT_ONCE = 4  # a read, a write, and what comes beside them


class _NodeGoneError(Exception):
    """Ray itself takes 10 to 15 s to know."""


class _Relay:
    """carrier: the actor; raylet: where that of its node listens."""

    def __init__(self, carrier: Any, raylet: tuple[str, int], output: int) -> None:
        self._carrier, self._raylet, self._output = carrier, raylet, output
        self._hung_up_s: float | None = None  # since when

    def carry(self) -> int:
        """Until the agent has ended, or nobody listens any more. Its exit code. Raises RayError, _NodeGoneError."""
        threading.Thread(target=self._carry_input, daemon=True).start()
        position = 0
        while (piece := self._call(partial(self._carrier.read.remote, position))) is not None:
            self._write(piece)
            position += len(piece)
        code, last_words = self._call(self._carrier.outcome.remote)
        os.write(2, last_words)
        return int(code)

    def _carry_input(self) -> None:
        position = 0
        try:
            while data := os.read(0, ray_carrier.PIECE_BYTES):
                self._call(partial(self._carrier.write.remote, position, data))
                position += len(data)
            self._hung_up_s = time.monotonic()
            self._call(self._carrier.end_input.remote)
        except (RayError, _NodeGoneError):
            return  # who reads is told

    def _call(self, ask: Callable[[], Any]) -> Any:
        """Asks until there is an answer. Raises RayError when the actor is dead, _NodeGoneError, SystemExit."""
        reference = ask()
        while True:
            if self._hung_up_s is not None and time.monotonic() - self._hung_up_s > ENDS_WITHIN_S:
                raise SystemExit(0)
            try:
                return ray.get(reference, timeout=LOOK_EVERY_S)
            except GetTimeoutError:
                continue
            except (ActorUnavailableError, ObjectLostError):  # cut off: nobody knows whether the call has arrived
                if self._hung_up_s is not None:
                    raise SystemExit(0) from None
                if _refuses(self._raylet):
                    raise _NodeGoneError("Ray does not run on the node any more") from None
                time.sleep(AGAIN_AFTER_S)
                reference = ask()

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._output, left) :]
            except BrokenPipeError:
                return  # it has hung up: what the agent says last is for nobody


def _refuses(address: tuple[str, int]) -> bool:
    """Whether that machine answers, and nobody listens there; one that is cut off does not answer."""
    try:
        socket.create_connection(address, KNOCK_TIMEOUT_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False


def _raylet_of(node: str) -> tuple[str, int]:
    """Raises _NodeGoneError."""
    for one in ray.nodes():
        if one["NodeID"] == node and one["Alive"]:
            return str(one["NodeManagerAddress"]), int(one["NodeManagerPort"])
    raise _NodeGoneError(NO_PART)


def _carrier_on(node: str, cores: int) -> Any:
    cloudpickle.register_pickle_by_value(ray_carrier)
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    name = f"agent on {node[:8]} for {platform.node()}:{os.getpid()}"
    kind: Any = ray.remote(ray_carrier.Carrier)
    settings = {"max_restarts": 0, "max_task_retries": 0, "max_concurrency": CALLS_AT_ONCE, "num_cpus": cores}
    return kind.options(name=name, scheduling_strategy=strategy, **settings).remote(os._exit)


def _begun(carrier: Any, command: Sequence[str], cores: int) -> str:
    """ "" or why not."""
    try:
        return str(ray.get(carrier.begin.remote("\0".join(command).encode()), timeout=PLACED_WITHIN_S))
    except GetTimeoutError:
        return f"not all of its {cores} CPUs are free: Ray has given them to others, perhaps to another run"
    except ActorUnschedulableError:
        return f"{NO_PART}, or has fewer CPUs"
    except RayError as error:
        return str(error)


def main(arguments: Sequence[str]) -> int:
    address, node, cores, *command = arguments
    output = take_output()
    with connected(address):
        try:
            raylet = _raylet_of(node)
            carrier = _carrier_on(node, int(cores))
            if problem := _begun(carrier, command, int(cores)):
                os.write(2, f"{problem}\n".encode())
                return CANNOT_START
            return _Relay(carrier, raylet, output).carry()
        except (RayError, _NodeGoneError) as error:
            os.write(2, f"{error}\n".encode())
            return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
