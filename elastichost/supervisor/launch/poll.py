"""Waiting for descriptors, however many a process has open: select() ends at 1024."""

from __future__ import annotations

import select
from collections.abc import Iterable

__all__ = ["wait_readable"]


def wait_readable(descriptors: Iterable[int], timeout_s: float) -> bool:
    """Whether one of these can be read within the timeout."""
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(max(0, int(timeout_s * 1000))))
