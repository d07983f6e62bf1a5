"""Takes the place of ssh: a child of the supervisor that carries the streams of an agent on a Ray node.

    python -m elastichost.supervisor.remote.ray.relay CLUSTER NODE CORES COMMAND...

An actor (`remote.ray.carrier`), pinned to the node, starts COMMAND there. It reserves all CPUs of the node, so that Ray
places no other work there. It is not detached: Ray ends it with this process, however this process ends; and the agent
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
ENDS_WITHIN_S = 10.0  # the time that the agent has to end after the supervisor has closed this process's input
AGAIN_AFTER_S = 0.2
LOOK_EVERY_S = 1.0
KNOCK_TIMEOUT_S = 1.0
CANNOT_START = 127  # the exit code of a shell for a command that is not found
NO_PART = "the node is no part of the Ray cluster any more"
CALLS_AT_ONCE = 4  # a read, a write, and calls beside them, such as `end_input`


class _NodeGoneError(Exception):
    """Ray does not run on the node any more. Ray itself notices that only after 10 to 15 s."""


class _Relay:
    """Carries bytes between the supervisor and the actor. carrier: the actor; raylet: address and port of the raylet
    (Ray's daemon) on its node; output: the descriptor to write the agent's output to."""

    def __init__(self, carrier: Any, raylet: tuple[str, int], output: int) -> None:
        self._carrier, self._raylet, self._output = carrier, raylet, output
        self._hung_up_s: float | None = None  # when the supervisor closed this process's input

    def carry(self) -> int:
        """Carries both streams until the agent has ended, and returns its exit code. Raises RayError, _NodeGoneError,
        and SystemExit when the supervisor has closed the input and the agent does not end."""
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
            return  # the call of `read` in the other thread fails as well, and that error is reported

    def _call(self, ask: Callable[[], Any]) -> Any:
        """Repeats a call of the actor until there is an answer. Raises RayError when the actor is dead, _NodeGoneError
        when Ray does not run on its node any more, SystemExit when the supervisor closed the input ENDS_WITHIN_S ago
        (at once if the connection is broken too)."""
        reference = ask()
        while True:
            if self._hung_up_s is not None and time.monotonic() - self._hung_up_s > ENDS_WITHIN_S:
                raise SystemExit(0)
            try:
                return ray.get(reference, timeout=LOOK_EVERY_S)
            except GetTimeoutError:
                continue
            except (ActorUnavailableError, ObjectLostError):  # the call may have arrived or not
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
                return  # the supervisor has closed its end: no process reads the rest


def _refuses(address: tuple[str, int]) -> bool:
    """Whether the machine answers that no process listens at the port. A machine that is cut off does not answer."""
    try:
        socket.create_connection(address, KNOCK_TIMEOUT_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        pass
    return False


def _raylet_of(node: str) -> tuple[str, int]:
    """Address and port of a node's raylet. Raises _NodeGoneError when the cluster has no such node alive."""
    for one in ray.nodes():
        if one["NodeID"] == node and one["Alive"]:
            return str(one["NodeManagerAddress"]), int(one["NodeManagerPort"])
    raise _NodeGoneError(NO_PART)


def _carrier_on(node: str, cores: int) -> Any:
    """Creates the actor on a node."""
    cloudpickle.register_pickle_by_value(ray_carrier)
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    name = f"agent on {node[:8]} for {platform.node()}:{os.getpid()}"
    kind: Any = ray.remote(ray_carrier.Carrier)
    settings = {"max_restarts": 0, "max_task_retries": 0, "max_concurrency": CALLS_AT_ONCE, "num_cpus": cores}
    return kind.options(name=name, scheduling_strategy=strategy, **settings).remote(os._exit)


def _begun(carrier: Any, command: Sequence[str], cores: int) -> str:
    """Lets the actor start the agent. Returns "", or why it did not start."""
    try:
        return str(ray.get(carrier.begin.remote("\0".join(command).encode()), timeout=PLACED_WITHIN_S))
    except GetTimeoutError:
        return f"not all of its {cores} CPUs are free: Ray has given some to other work, perhaps to another run"
    except ActorUnschedulableError:
        return f"{NO_PART}, or has fewer CPUs"
    except RayError as error:
        return str(error)


def main(arguments: Sequence[str]) -> int:
    """Runs the relay. Returns the exit code."""
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
