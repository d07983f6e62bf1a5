"""The settings of a simulation: times of decisions, styles of changes and recovery, and rates of incidents. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from benchmarks.simulator.cluster import calibration
from benchmarks.simulator.cluster.hosts import ClusterHost, Placement
from benchmarks.simulator.cluster.jobs import DEFAULT_LIMITS
from benchmarks.simulator.cluster.random_streams import IncidentRates
from benchmarks.simulator.cluster.views import GrantLimits
from elastichost.tuner.facts import Configuration

__all__ = ["SEAMLESS", "STOP_AND_RESTART", "ClusterSettings", "RescaleStyle", "move_cost", "moved_share"]


class RescaleStyle(msgspec.Struct, frozen=True):
    """How a runtime changes a job. "seamless": new processes join while the others train, and rows are handed over.
    "stop_and_restart": it writes a checkpoint, stops all processes and starts them again; also after a failure."""

    name: Literal["seamless", "stop_and_restart"] = "seamless"
    stop_s: float = sum(calibration.STOP_AND_RESTART_S) / 2

    @property
    def stops(self) -> bool:
        return self.name == "stop_and_restart"


SEAMLESS, STOP_AND_RESTART = RescaleStyle(), RescaleStyle("stop_and_restart")


class ClusterSettings(msgspec.Struct, frozen=True):
    """The settings of a simulation. hosts: of the cluster. bucket_style: how buckets of a hot PS are moved; None: with
    `style`. varies: the noise is in the true speed too (with mean 1), not only in measurements. drain_s: a simulation
    ends at the latest this many seconds after the last arrival."""

    hosts: tuple[ClusterHost, ...] = (ClusterHost(64, 256 * 2**30),) * 16
    limits: GrantLimits = DEFAULT_LIMITS
    style: RescaleStyle = SEAMLESS
    bucket_style: RescaleStyle | None = None
    rates: IncidentRates = IncidentRates()
    tick_s: float = calibration.TICK_S
    block_s: float = calibration.BLOCK_S
    interference: float = calibration.INTERFERENCE
    most_oom_kills: int = calibration.MOST_OOM_KILLS
    varies: bool = False
    drain_s: float = 14 * 86_400.0


def moved_share(before: Placement, after: Placement) -> float:
    """The share of a job's rows that change their host, if every PS has the same number of rows: half the sum over
    hosts of |share before - share after|."""
    old, new = sum(count[1] for count in before.values()), sum(count[1] for count in after.values())
    if not old or not new:
        return 0.0
    hosts = before.keys() | after.keys()
    differ = (abs(before.get(host, (0, 0))[1] / old - after.get(host, (0, 0))[1] / new) for host in sorted(hosts))
    return sum(differ) / 2


def move_cost(
    style: RescaleStyle, before: Configuration, after: Configuration, moved_bytes: float
) -> tuple[float, float]:
    """Returns (seconds that a change takes, share of the old speed that is kept during it)."""
    if style.stops:
        return style.stop_s, 0.0
    seconds = moved_bytes / calibration.NETWORK_BYTES_PER_S
    if after.workers > before.workers or after.worker_cores != before.worker_cores:
        seconds += calibration.JOIN_S
    if (after.servers, after.server_cores) != (before.servers, before.server_cores) or moved_bytes > 0:
        seconds += calibration.HANDOVER_S
    return max(seconds, calibration.HANDOVER_S), calibration.PARTIAL_RATE
