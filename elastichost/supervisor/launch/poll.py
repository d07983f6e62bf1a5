"""Waits for descriptors with poll(): select() cannot wait for descriptors from 1024 on."""

from __future__ import annotations

import select
from collections.abc import Iterable

__all__ = ["wait_readable"]


def wait_readable(descriptors: Iterable[int], timeout_s: float) -> bool:
    """Waits until one of the descriptors can be read, at most `timeout_s`. Returns whether one can."""
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(max(0, int(timeout_s * 1000))))
