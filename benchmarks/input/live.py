"""Whole runs of the job whose source has 7.4 MB/s for each connection: the speed and the number of trainer
processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.harness.interleave import ArmFailedError
from benchmarks.harness.training_run import EXAMPLES
from benchmarks.harness.workshop import Workshop
from elastichost.chaos.tails import AppliedTail
from elastichost.run_files import JOURNAL_FILE
from elastichost.runs.events import PlanChanged
from elastichost.runs.journal import read_journal

__all__ = ["LiveRun", "live_run"]

START_LIMIT_S = 120.0
LOOK_S = 0.02
SETTINGS = {
    "data.remote.bytes_per_s": "7.4MB",
    "data.synthetic.rows": 100_000_000,
    "data.synthetic.test_rows": 1000,
    "model.fused": "true",
    "tuner.warm_start": "false",
    "checkpoint.every_s": 0,
}


@dataclass(frozen=True, slots=True)
class LiveRun:
    """What a run reached. workers: most trainer processes of any plan."""

    samples_per_s: float
    workers: int


def live_run(workshop: Workshop, name: str, settings: Mapping[str, object], after_s: float, window_s: float) -> LiveRun:
    """The speed of examples/synthetic.toml from such a source, in a window that begins `after_s` after the first
    sample. Raises ArmFailedError when the run ends or does not train."""
    run_dir = workshop.disk / name
    words = [word for key, value in {**SETTINGS, **settings}.items() for word in ("--set", f"{key}={value}")]
    job = EXAMPLES / "synthetic.toml"
    command = [sys.executable, "-m", "elastichost", "run", str(job), "--run-dir", str(run_dir), "--dashboard", "no"]
    pipe = subprocess.DEVNULL
    with subprocess.Popen([*command, *words], env=workshop.environment(), stdout=pipe, stderr=pipe) as process:
        try:
            speed = _measured(process, AppliedTail(run_dir), after_s, window_s)
        finally:
            process.send_signal(signal.SIGINT)
    plans = [line.event for line in read_journal(run_dir / JOURNAL_FILE) if isinstance(line.event, PlanChanged)]
    return LiveRun(speed, max((plan.workers for plan in plans), default=0))


def _measured(process: subprocess.Popen[bytes], applied: AppliedTail, after_s: float, window_s: float) -> float:
    def pass_time(until_s: float, *, to_first: bool = False) -> None:
        while time.monotonic() < until_s and not (to_first and applied.samples):
            if process.poll() is not None:
                raise ArmFailedError(f"the run ended with exit code {process.returncode}")
            time.sleep(LOOK_S)
            applied.poll()

    pass_time(time.monotonic() + START_LIMIT_S, to_first=True)
    if not applied.samples:
        raise ArmFailedError(f"the run did not train within {START_LIMIT_S:g} s")
    pass_time(time.monotonic() + after_s)
    before, began_s = applied.samples, time.monotonic()
    pass_time(began_s + window_s)
    return (applied.samples - before) / (time.monotonic() - began_s)
