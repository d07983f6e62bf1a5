"""A connection to a Ray cluster, for a process that has nothing else to do: Ray brings threads, and starts slowly.

Whoever imports this imports ray: never the supervisor itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

import ray

__all__ = ["CANNOT_CONNECT", "NAMESPACE", "connected", "take_output"]

NAMESPACE = "elastichost"
CANNOT_CONNECT = 3  # the exit code then; why is the last line on stderr


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """address: as `ray.init` takes it, "auto" finds the cluster that this machine is a node of. Raises SystemExit."""
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:  # ConnectionError is an OSError
        reason = " ".join(str(error).split())
        os.write(2, f"no Ray cluster is reached at {address!r}: {reason}\n".encode())
        raise SystemExit(CANNOT_CONNECT) from None
    try:
        yield
    finally:
        ray.shutdown()


def take_output() -> int:
    """A descriptor of this process' output; what Ray prints there (logs of its daemons) is lost from now on."""
    output, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    return output
