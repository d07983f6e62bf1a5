"""A Ray cluster whose nodes are all on this machine. It shares no directory with any other.

bed = RayBed([1, 2, 2])    the node that this machine is to Ray, with one CPU, and two others with two
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
    """Use as a context manager; its nodes have directories of their own, which have to be empty when a run is over.

    environment: of all that is started, this process' if it is left out; `environment` is then that of whoever is to
    find the cluster.
    """

    def __init__(self, cpus: Sequence[int], environment: Mapping[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ehr-"))  # short: a socket's path has 108 bytes
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
            "RAY_worker_niceness": "0",  # Ray has 15: beside other tests too little is left for them
            "XDG_RUNTIME_DIR": str(self._sockets),
            "TMPDIR": str(self._scratch),
        }
        command = [sys.executable, "-m", "benchmarks.ray_recovery.ray_bed_cluster"]
        self._cluster = subprocess.Popen(
            command, cwd=ROOT, env=self._of_nodes, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.address = ""
        self.nodes: list[str] = []  # their ids
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
        assert line, f"the cluster has ended with {self._cluster.wait(LIMIT_S)}"
        return json.loads(line)

    def add(self, cpus: int) -> None:
        """One more node."""
        node, self.address = self._ask("add", cpus=cpus)
        self.nodes.append(node)

    def kill(self, node: str) -> None:
        """All processes of Ray on it, as when the machine goes."""
        self._ask("kill", node=node)
        self.nodes.remove(node)

    def actors(self) -> list[str]:
        """Names of those that live or are about to."""
        found: list[str] = self._ask("actors")
        return found

    def left(self) -> list[str]:
        """What is still there of runs on its nodes."""
        directories = (self.arenas, self._sockets)
        found = [str(path) for directory in directories for path in directory.iterdir()]
        return [*found, *(str(path) for path in self._scratch.glob("elastichost-*")), *self.actors()]

    def assert_nothing_is_left(self) -> None:
        """Ray ends actors a moment after who made them."""
        deadline_s = time.monotonic() + LIMIT_S
        while (found := self.left()) and time.monotonic() < deadline_s:
            select.select([], [], [], 0.05)
        assert found == []
