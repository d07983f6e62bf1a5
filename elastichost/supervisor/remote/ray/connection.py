"""A connection to a Ray cluster, for a separate process: Ray starts threads, and takes seconds to start.

This module imports ray, so the supervisor must not import it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

import ray

__all__ = ["CANNOT_CONNECT", "NAMESPACE", "connected", "take_output"]

NAMESPACE = "elastichost"
CANNOT_CONNECT = 3  # the exit code; the last line on stderr is the reason


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """Connects to a cluster, and disconnects at the end. address: as for `ray.init`; "auto" finds the cluster that this
    machine is a node of. Raises SystemExit (CANNOT_CONNECT)."""
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:  # ConnectionError is an OSError
        reason = " ".join(str(error).split())
        os.write(2, f"no Ray cluster can be reached at {address!r}: {reason}\n".encode())
        raise SystemExit(CANNOT_CONNECT) from None
    try:
        yield
    finally:
        ray.shutdown()


def take_output() -> int:
    """Returns a new descriptor of this process's stdout, and sends stdout itself to /dev/null: Ray prints there."""
    output, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    return output
