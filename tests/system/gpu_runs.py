"""A run whose GPUs are recorded answers of NVML, and whose kernels run in Triton's interpreter."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from elastichost.metrics import RunStatus, read_status
from elastichost.wire.crash import POINTS
from tests.host.nvml.recorded import TWO_BUSY
from tests.system.test_run import JOB, ROOT

__all__ = ["POINTS_OF_MODEL", "GpuRun", "gpu_environment", "gpu_job"]

SHADOW = ROOT / "tests" / "host" / "nvml" / "shadow"
LIMIT_S = 120.0
# Of a worker whose model is in memory of a GPU.
POINTS_OF_MODEL = [point.name for point in POINTS if point.name.startswith("worker.model.")]


def gpu_job(folder: Path, resources: str, **settings: Any) -> Path:
    """Writes a job with fixed tables. resources: lines of this section."""
    facts = {"build": "elastichost.models:dlrm", "rows": 50_000_000, "epochs": 1, "restarts": 3, "every_s": 60}
    text = JOB.format(**{**facts, **settings}).replace('rows = "dynamic"', "rows = 500")
    job = folder / "job.toml"
    job.write_text(text.replace("workers = 2", resources))
    return job


def gpu_environment(told: Path) -> dict[str, str]:
    """The environment in which a program finds the GPUs of the file `told`."""
    paths = os.pathsep.join((str(SHADOW), str(ROOT)))
    return {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths, "NVML_DOUBLE": str(told)}


class GpuRun:
    """A run on recorded GPUs. told: what the double of NVML tells at first. environment: more variables of it."""

    def __init__(
        self, folder: Path, job: Path | None, environment: Mapping[str, str] = MappingProxyType({}), **told: Any
    ) -> None:
        self._folder, self.directory = folder, folder / "run"
        self._told = folder / "nvml.json"
        self.tell(**told)
        verb = ["resume", str(self.directory)] if job is None else ["run", str(job), "--run-dir", str(self.directory)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "elastichost", *verb, "--dashboard", "no"],
            cwd=ROOT,
            env={**gpu_environment(self._told), **environment},
            stderr=subprocess.PIPE,
            text=True,
        )

    def resumed(self) -> GpuRun:
        """Resumes the run, whose supervisor has ended."""
        return GpuRun(self._folder, None)

    def tell(self, state: str = TWO_BUSY, **told: Any) -> None:
        new = self._told.with_suffix(".new")
        new.write_text(json.dumps({"state": state, **told}))
        new.rename(self._told)

    def wait(self, is_so: Callable[[RunStatus], bool]) -> RunStatus:
        """Waits for a status. It fails when the run ends before."""
        ends_s = time.monotonic() + LIMIT_S
        while time.monotonic() < ends_s and self.process.poll() is None:
            if (self.directory / "status.json").exists() and is_so(status := read_status(self.directory)):
                return status
            select.select([], [], [], 0.05)
        raise AssertionError(f"it did not come to that; {self.stop()}")

    def finish(self) -> str:
        """Waits for the end of the run, and returns what it showed."""
        return self.process.communicate(timeout=LIMIT_S)[1]

    def stop(self) -> str:
        self.process.terminate()
        return self.finish()
