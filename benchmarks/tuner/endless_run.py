"""A run that trains until a `with` block ends, for benchmarks that watch or change it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["running_job"]

START_S = 120.0
POLL_S = 0.1


@contextlib.contextmanager
def running_job(
    job: Path, settings: Mapping[str, str], run_dir: Path, *, keeps_history: bool = False
) -> Iterator[None]:
    """Starts the job; the body runs from the first committed batch on. settings: for `--set`. keeps_history: the run
    reads and writes the history that the environment names. Raises RuntimeError if the job does not train."""
    environment = dict(os.environ) if keeps_history else {**os.environ, "ELASTICHOST_HISTORY": "off"}
    overrides = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "elastichost", "run", str(job), "--dashboard", "no", "--run-dir", str(run_dir)]
    log = run_dir.with_suffix(".log")  # a file, because no process reads a pipe during the run
    with (
        log.open("w") as said,
        subprocess.Popen([*command, *overrides], stdout=said, stderr=said, env=environment) as run,
    ):
        try:
            until_s = time.monotonic() + START_S
            applied = run_dir / "applied.bin"
            while not applied.exists() or applied.stat().st_size == 0:
                if run.poll() is not None or time.monotonic() > until_s:
                    raise RuntimeError(f"{job.name} does not train: {log.read_text()[-2000:]}")
                time.sleep(POLL_S)
            yield
        finally:
            for _ in range(2):  # the second signal skips the last checkpoint
                if run.poll() is None:
                    run.send_signal(signal.SIGINT)
                    time.sleep(0.3)
            run.wait(timeout=60)
