"""`elastichost serve` as a real process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

__all__ = ["ServerProcess", "served", "wait_for"]

LIMIT_S = 60.0


def wait_for(is_so: Callable[[], object], what: str) -> None:
    """Looks until `is_so()` is true; fails after LIMIT_S."""
    until_s = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < until_s, f"never: {what}"
        time.sleep(0.02)


@dataclass
class ServerProcess:
    """errors: the file with its stderr."""

    process: subprocess.Popen[str]
    url: str
    export: str
    client: httpx.Client
    errors: Path

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").partition(":")
        return host, int(port)

    def predict(self, rows: object) -> httpx.Response:
        return self.client.post("/predict", json={"rows": rows})

    def health(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.get("/healthz").json()
        return found

    def metric(self, name: str) -> float:
        lines = self.client.get("/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"elastichost_serve_{name}"))


@contextmanager
def served(directory: Path, folder: Path, options: Mapping[str, object] | None = None) -> Iterator[ServerProcess]:
    """A server of this export on a free port. folder: for its stderr."""
    command = [sys.executable, "-W", "ignore", "-m", "elastichost", "serve", str(directory), "--port", "0", "--json"]
    for name, value in (options or {}).items():
        command += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    errors = folder / "serve.err"
    with (
        errors.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, errors.read_text()
            facts = json.loads(line)
            assert "url" in facts, line
            with httpx.Client(base_url=facts["url"], timeout=LIMIT_S) as client:
                yield ServerProcess(process, facts["url"], facts["export"], client, errors)
        finally:
            if process.poll() is None:
                process.kill()
