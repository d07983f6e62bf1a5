"""What a probe and its children are told."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.gpu.device.driver import CudaDevice
from benchmarks.gpu.device.fake_driver import FakeDevice
from benchmarks.gpu.device.interface import Device

__all__ = ["Setting"]

DRY_GIB = 4 << 20


@dataclass(frozen=True)
class Setting:
    """The folder for files on a disk, the compiled kernels, the folder of results, the deadline of the probe on the
    monotonic clock, which all processes share, and whether a double stands in for the device."""

    folder: str
    kernels: str
    out: str
    deadline_s: float
    dry_run: bool

    @property
    def gib(self) -> int:
        """The bytes that stand for 1 GiB: fewer in a dry run."""
        return DRY_GIB if self.dry_run else 1 << 30

    def device(self) -> Device:
        """Returns the device of this process; it makes the context. Raises CudaError."""
        return FakeDevice() if self.dry_run else CudaDevice(Path(self.kernels))

    def left_s(self) -> float:
        """Returns the seconds until the deadline."""
        return self.deadline_s - time.monotonic()

    def as_text(self) -> str:
        """Returns the setting as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_text(text: str) -> Setting:
        """Returns the setting that `as_text` wrote."""
        return Setting(**json.loads(text))
