"""A Ray cluster with all its nodes on this machine. It shares no directory with another cluster.

bed = RayBed([1, 2, 2])    the head node with one CPU, and two more nodes with two CPUs each
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.workshop import ROOT
from elastichost.arena.host import arena_root

__all__ = ["RayBed"]

LIMIT_S = 30.0


class RayBed:
    """A Ray cluster; use it as a context manager. Its nodes have their own directories, which must be empty after
    a run.

    environment: for all processes that the cluster starts; by default the environment of this process. The attribute
    `environment` is for processes that connect to the cluster.
    """

    def __init__(self, cpus: Sequence[int], environment: Mapping[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ehr-"))  # short, because the path of a socket has at most 108 bytes
        self.arenas = arena_root() / f"test-{os.getpid()}-ray"
        self._scratch, self._sockets = self.folder / "tmp", self.folder / "run"
        for directory in (self.arenas, self._scratch, self._sockets, self.folder / "ray"):
            directory.mkdir()
        self.environment = {
            **(os.environ if environment is None else environment),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "RAY_TMPDIR": str(self.folder),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        self._of_nodes = {
            **self.environment,
            "ELASTICHOST_ARENA_DIR": str(self.arenas),
            "RAY_worker_niceness": "0",  # Ray's default of 15 leaves its workers too little CPU time beside other tests
            "XDG_RUNTIME_DIR": str(self._sockets),
            "TMPDIR": str(self._scratch),
        }
        command = [sys.executable, "-m", "benchmarks.ray_recovery.ray_bed_cluster"]
        self._cluster = subprocess.Popen(
            command, cwd=ROOT, env=self._of_nodes, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.address = ""
        self.nodes: list[str] = []  # node ids
        for count in cpus:
            self.add(count)

    def __enter__(self) -> RayBed:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._cluster.stdin is not None and self._cluster.stdout is not None
        self._cluster.stdin.close()
        self._cluster.wait(LIMIT_S)
        self._cluster.stdout.close()
        shutil.rmtree(self.folder)
        shutil.rmtree(self.arenas)

    def _ask(self, order: str, **facts: object) -> Any:
        assert self._cluster.stdin is not None and self._cluster.stdout is not None
        self._cluster.stdin.write(json.dumps({"do": order, **facts}) + "\n")
        self._cluster.stdin.flush()
        line = self._cluster.stdout.readline()
        assert line, f"the cluster has ended with exit code {self._cluster.wait(LIMIT_S)}"
        return json.loads(line)

    def add(self, cpus: int) -> None:
        """Adds a node."""
        node, self.address = self._ask("add", cpus=cpus)
        self.nodes.append(node)

    def kill(self, node: str) -> None:
        """Kills all Ray processes of a node, as if its machine had failed."""
        self._ask("kill", node=node)
        self.nodes.remove(node)

    def actors(self) -> list[str]:
        """The names of actors that live or start."""
        found: list[str] = self._ask("actors")
        return found

    def left(self) -> list[str]:
        """The actors and files that runs have left on the nodes."""
        directories = (self.arenas, self._sockets)
        found = [str(path) for directory in directories for path in directory.iterdir()]
        return [*found, *(str(path) for path in self._scratch.glob("elastichost-*")), *self.actors()]

    def assert_nothing_is_left(self) -> None:
        """Fails if runs have left actors or files. It waits first, because Ray ends actors a moment after their
        creator."""
        deadline_s = time.monotonic() + LIMIT_S
        while (found := self.left()) and time.monotonic() < deadline_s:
            select.select([], [], [], 0.05)
        assert found == []
