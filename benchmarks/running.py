"""One run of a job file as a user would start it, and the figures of its result."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

__all__ = ["EXAMPLES", "Measurement", "Quality", "train"]

EXAMPLES = Path(__file__).parent.parent / "examples"


class Quality(msgspec.Struct, frozen=True):
    auc: float
    logloss: float


class Measurement(msgspec.Struct, frozen=True):
    """The part of a run's JSON result that is compared."""

    status: str
    samples_per_s: float
    wall_s: float
    arena_bytes: int
    test: Quality


def train(job: Path, settings: Mapping[str, object], run_dir: Path) -> Measurement:
    """Runs the job to its end. Raises CalledProcessError when it fails; its messages are on stderr then."""
    overrides = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "elastichost", "run", str(job), "--json", "--run-dir", str(run_dir), *overrides]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Measurement)
