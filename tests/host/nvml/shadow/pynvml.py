"""Stands in front of pynvml on PYTHONPATH: a run on a machine without GPUs finds GPUs, as one was recorded.

NVML_DOUBLE: a JSON file with {"state": one of the recorded states, "pids": {recorded pid: pid}, "gpus": how many,
"lost": [numbers of GPUs], "is_mute": bool}. All but the first may be left out.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

_HERE = str(Path(__file__).resolve().parent)
_spec = importlib.machinery.PathFinder.find_spec("pynvml", [path for path in sys.path if path != _HERE])
assert _spec is not None and _spec.loader is not None
_real = importlib.util.module_from_spec(_spec)
sys.modules["pynvml"] = _real
_spec.loader.exec_module(_real)

from tests.host.nvml.recorded import RecordedNvml  # noqa: E402 - it imports the real one


class _Shadow(RecordedNvml):
    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._read()
        return self.gpus

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        self._read()
        return super()._answer(name, arguments)

    def _read(self) -> None:
        told = json.loads(Path(os.environ["NVML_DOUBLE"]).read_text())
        self.state, self.is_mute = told["state"], told.get("is_mute", False)
        self.gpus, self.lost = told.get("gpus", 1), frozenset(told.get("lost", ()))
        self.pids = {int(pid): own for pid, own in told.get("pids", {}).items()}


sys.modules["pynvml"] = _Shadow()
