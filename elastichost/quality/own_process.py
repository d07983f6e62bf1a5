"""The program that calls metric functions: `python -m elastichost.quality.own_process TABLE OUT FUNCTION...`.

It is a process of its own, so that slow or broken code of the user does not hold up the run. It reads the scores from
TABLE (see `own_metrics`), and writes one `OwnFigure` for each function and label to OUT.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

# Must be set before numpy is imported, as in __main__. Training needs the cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.atomic_write import write_atomically
from elastichost.errors import ModelError
from elastichost.host.prctl import set_parent_death_signal
from elastichost.quality.own_metrics import OwnFigure
from elastichost.user_model.source import import_path

__all__ = ["call_functions", "load_function", "main"]

Floats = npt.NDArray[np.float64]
Function = Callable[[Floats, Floats, Floats], float]
NICE = 5


def load_function(text: str) -> Function:
    """The function that "file.py:function" or "package.module:function" names. Raises what its code raises, and
    ModelError when there is no such function."""
    left, _, name = text.rpartition(":")
    if left.endswith(".py"):
        file = Path(left)
        with import_path(file.parent):
            spec = importlib.util.spec_from_file_location(f"elastichost_metric_{file.stem}", file)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
    else:
        with import_path(Path.cwd()):
            module = importlib.import_module(left)
    function = getattr(module, name, None)
    if not callable(function):
        raise ModelError(f"{left} has no function {name!r}")
    return function  # type: ignore[no-any-return]  # callable, as checked above


def call_functions(functions: list[str], scores: Floats, labels: Floats, weights: Floats) -> list[OwnFigure]:
    """One figure for each function and label. scores, labels: float64 [n, labels]; weights: float64 [n]."""
    return [
        _figure(text, label, np.ascontiguousarray(scores[:, label]), np.ascontiguousarray(labels[:, label]), weights)
        for text in functions
        for label in range(labels.shape[1])
    ]


def _figure(text: str, label: int, scores: Floats, labels: Floats, weights: Floats) -> OwnFigure:
    try:
        value = float(load_function(text)(scores, labels, weights.copy()))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's code raises is an answer
        last = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno})"
        return OwnFigure(text, label, None, said)
    return OwnFigure(text, label, value if np.isfinite(value) else None)


def main(arguments: list[str]) -> int:
    set_parent_death_signal(signal.SIGKILL)
    os.nice(NICE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal: the supervisor decides when the run ends
    table, out, *functions = arguments
    with np.load(table, allow_pickle=False) as stored:
        figures = call_functions(functions, stored["scores"], stored["labels"], stored["weights"])
    write_atomically(Path(out), msgspec.json.encode(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
