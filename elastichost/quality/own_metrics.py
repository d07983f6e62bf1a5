"""The user's own metric functions (`evaluate.metrics = ["file.py:function"]`), called by a process of their own.

A function is called as function(scores, labels, weights) for each label: three float64 arrays [n], which are predicted
probabilities, labels (0 or 1), and sample weights (1 where the job has none). It returns a number.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.errors import ModelError

__all__ = ["TIMEOUT_S", "OwnFigure", "OwnMetrics", "check_functions"]

PROGRAM = "elastichost.quality.own_process"
TIMEOUT_S = 300.0
SHOWN_BYTES = 500
TRIAL_SAMPLES = 64

Floats = npt.NDArray[np.float64]


class OwnFigure(msgspec.Struct, frozen=True):
    """The answer of one function for one label. value: None if it is not finite, or was not computed; problem: why it
    could not be computed, "" if it could."""

    function: str
    label: int
    value: float | None
    problem: str = ""


class OwnMetrics:
    """One call of all functions, in a process of its own. directory: made for its files, and removed by `close`.

    Use: make it, call `poll` until it returns the figures, then `close`."""

    def __init__(
        self, functions: Sequence[str], directory: Path, scores: Floats, labels: Floats, weights: Floats, now_s: float
    ) -> None:
        """Starts the process. scores (probabilities), labels: [n, labels]; weights [n]. Raises OSError when the files
        cannot be written."""
        self._functions, self._labels = tuple(functions), labels.shape[1]
        self._directory, self._deadline_s = directory, now_s + TIMEOUT_S
        directory.mkdir(parents=True, exist_ok=True)
        self._out, self._log = directory / "figures.json", directory / "output.log"
        self._out.unlink(missing_ok=True)  # of a supervisor that was killed
        np.savez(directory / "scores.npz", scores=scores, labels=labels, weights=weights)
        command = [sys.executable, "-m", PROGRAM, str(directory / "scores.npz"), str(self._out), *functions]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def poll(self, now_s: float) -> tuple[OwnFigure, ...] | None:
        """The figures of all functions and labels, with a problem where there is none; None: it still computes."""
        code = self._process.poll()
        if code is None:
            if now_s < self._deadline_s:
                return None
            return self._failed(f"it was not done after {TIMEOUT_S:.0f} s")
        try:
            return msgspec.json.decode(self._out.read_bytes(), type=tuple[OwnFigure, ...])
        except (OSError, msgspec.MsgspecError):
            said = self._log.read_bytes()[-SHOWN_BYTES:].decode(errors="replace").strip()
            return self._failed(f"its process ended with exit code {code}" + (f": {said}" if said else ""))

    def close(self) -> None:
        """Ends the process if it still works, and removes its files."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _failed(self, problem: str) -> tuple[OwnFigure, ...]:
        return tuple(OwnFigure(name, label, None, problem) for name in self._functions for label in range(self._labels))


def check_functions(functions: Sequence[str], directory: Path) -> None:
    """Calls each function with a few made-up samples. Raises ModelError for the first one that fails."""
    labels = np.arange(TRIAL_SAMPLES, dtype=np.float64)[:, None] % 2
    scores = np.linspace(0.01, 0.99, TRIAL_SAMPLES)[:, None]
    trial = OwnMetrics(functions, directory, scores, labels, np.ones(TRIAL_SAMPLES), time.monotonic())
    try:
        while (figures := trial.poll(time.monotonic())) is None:
            time.sleep(0.02)
    finally:
        trial.close()
    for figure in figures:
        if figure.problem:
            raise ModelError(
                f"evaluate.metrics: {figure.function!r} fails on {TRIAL_SAMPLES} samples: {figure.problem}",
                hint="it is called as function(scores, labels, weights) with float64 arrays [n], and returns a number",
            )
