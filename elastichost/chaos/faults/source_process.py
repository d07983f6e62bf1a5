"""A process of its own that stands for the source of training data, and has faults when it is told to.

Its first line on stdout is its port; each line on stdin is an `Order` as JSON; it ends at the end of stdin.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, Literal, Self

import msgspec

from elastichost.errors import JobFailedError

__all__ = ["FaultKind", "Order", "SourceProcess"]

FaultKind = Literal["stall", "reset", "slow", "refuse", "gone"]


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault. stall: no byte for `seconds`. reset: every open connection ends within its next piece. slow: for
    `seconds` each connection and the link have `factor` of their rates. refuse: for `seconds` requests are answered
    with 503. gone: for `seconds` nothing listens, and open connections end."""

    fault: FaultKind
    seconds: float = 0.0
    factor: float = 1.0


class SourceProcess:
    """A process; use as a context manager. module, words: what it runs. port: where it listens, on 127.0.0.1."""

    def __init__(self, module: str, words: Sequence[str], environment: dict[str, str] | None = None) -> None:
        self._command = [sys.executable, "-m", module, *words]
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(self._command, stdin=pipe, stdout=pipe, env=self._environment)
        line = _of(self._process.stdout).readline()
        if not line.strip().isdigit():
            self.__exit__()
            raise JobFailedError("the server of the training data did not start")
        self.port = int(line)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            _of(self._process.stdin).close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _of(self._process.stdout).close()

    def order(self, order: Order) -> None:
        """Has the fault begin now."""
        assert self._process is not None
        stdin = _of(self._process.stdin)
        stdin.write(msgspec.json.encode(order) + b"\n")
        stdin.flush()


def _of(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream
