"""A real Jupyter kernel, and what a notebook would show of its cells."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

__all__ = ["ROOT", "Cell", "Kernel", "kernel_environment", "kernel_in"]

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 100.0


def kernel_environment(folder: Path) -> dict[str, str]:
    """The environment of a kernel that finds the package and leaves the user's files alone."""
    return os.environ | {"PYTHONPATH": str(ROOT), "ELASTICHOST_HISTORY": "off", "IPYTHONDIR": str(folder / ".ipython")}


@dataclass
class Cell:
    """The output of a cell. displays: by display_id, or by number where there is none, the newest content. texts: of
    stdout and stderr. error: what a notebook shows below the cell."""

    displays: dict[str, dict[str, Any]] = field(default_factory=dict)
    updates: int = 0
    stdout: str = ""
    stderr: str = ""
    error: str = ""
    ename: str = ""
    result: dict[str, Any] = field(default_factory=dict)

    def take(self, kind: str, content: dict[str, Any]) -> None:
        match kind:
            case "stream" if content["name"] == "stdout":
                self.stdout += content["text"]
            case "stream":
                self.stderr += content["text"]
            case "display_data" | "update_display_data":
                name = content.get("transient", {}).get("display_id", str(len(self.displays)))
                assert kind == "display_data" or name in self.displays, "an update of an output that is not there"
                self.displays[name] = content["data"]
                self.updates += kind == "update_display_data"
            case "execute_result":
                self.result = content["data"]
            case "error":
                self.error, self.ename = "\n".join(content["traceback"]), content["ename"]


class Kernel:
    """A kernel that runs one cell at a time."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager, self.client = manager, client

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.pid)  # type: ignore[union-attr]

    def start_cell(self, code: str) -> str:
        return self.client.execute(code)

    def output_of(self, cell: str) -> Cell:
        """Waits for the end of the cell."""
        found = Cell()
        deadline_s = time.monotonic() + LIMIT_S
        while True:
            message = self.client.get_iopub_msg(timeout=deadline_s - time.monotonic())
            if message["parent_header"].get("msg_id") != cell:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return found
            found.take(message["msg_type"], message["content"])

    def run(self, code: str) -> Cell:
        return self.output_of(self.start_cell(code))

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.pid).children(recursive=True)


@contextmanager
def kernel_in(folder: Path) -> Iterator[Kernel]:
    """A kernel whose working directory is this one."""
    manager = KernelManager()
    manager.start_kernel(cwd=str(folder), env=kernel_environment(folder))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=LIMIT_S)
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
