"""The probes by name."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PROBES", "Probe"]


@dataclass(frozen=True)
class Probe:
    """A function that says its results, and the seconds after which it is killed."""

    function: str
    limit_s: float


# In order of importance: when the time is over, the last ones are cut.
PROBES: dict[str, Probe] = {
    "P0": Probe("benchmarks.gpu.probes.environment:run", 20),
    "P1": Probe("benchmarks.gpu.probes.registration:run", 40),
    "P1b": Probe("benchmarks.gpu.probes.coherence:run", 20),
    "P2": Probe("benchmarks.gpu.probes.crash_survival:run", 30),
    "P3": Probe("benchmarks.gpu.probes.row_access:run", 45),
    "P4": Probe("benchmarks.gpu.probes.kill_in_kernel:run", 25),
    "NVML": Probe("benchmarks.gpu.probes.nvml_recording:run", 15),
    "P7": Probe("benchmarks.gpu.probes.start_time:run", 40),
    "P5": Probe("benchmarks.gpu.probes.graph_replay:run", 45),
}
