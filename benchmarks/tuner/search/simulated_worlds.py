"""Worlds of the queue simulator: clusters, from its recorded tables, and hosts with shared cores, from lattices that
are simulated here. Pure."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product

import msgspec
import numpy as np
import numpy.typing as npt

from benchmarks.simulator.cluster import calibration
from benchmarks.simulator.queueing.job_speed import ScaledSpeedTable, SpeedTable
from benchmarks.simulator.queueing.truth_tables import point, tables
from benchmarks.tuner.search.world import Costs, Met
from elastichost.emulation.scenarios import Scenario, scenario
from elastichost.history.features import JobFeatures
from elastichost.tuner.facts import Configuration, ConfigurationArray, Workload
from elastichost.tuner.policy.candidates import Bounds

__all__ = ["SIMULATED", "Simulated", "SimulatedTruth"]

OVERSUBSCRIPTION, DIRECT_SERVERS = 2.0, 4  # as in `supervisor.startup.tuner_settings`
CHEAPEST, DEAREST = Costs(0.5, 0.6, 0.6), Costs(2.0, 1.8, 1.8)
Floats = npt.NDArray[np.float64]


class Simulated(msgspec.Struct, frozen=True):
    """A world of the queue simulator. host_cores: cores that all processes share; 0 for a cluster, where each process
    has its own cores. quota: cores of the cluster that the job may use; 0 for no limit."""

    scenario: str
    host_cores: int = 0
    quota: int = 0

    @property
    def name(self) -> str:
        if self.host_cores:
            return f"{self.scenario.partition('_')[0]}, {self.host_cores} cores"
        return f"{self.scenario}, {self.quota} cores" if self.quota else self.scenario

    @property
    def workload(self) -> Workload:
        return self.costs.workload

    @property
    def bounds(self) -> Bounds:
        """The bounds of a job. Cluster: 1 to 32 workers, 1 to 16 PS, 1 to 8 cores each. Host: the supervisor's bounds
        for a job with everything "auto"."""
        if not self.host_cores:
            return Bounds(Configuration(1, 1), Configuration(32, 16, 8, 8), cores=self.quota, share_cores=False)
        cores = self.host_cores
        servers = DIRECT_SERVERS if self.workload.access == "direct" else cores
        return Bounds(
            Configuration(1, 1),
            Configuration(int(OVERSUBSCRIPTION * cores), servers, cores),
            cores=cores,
            oversubscription=OVERSUBSCRIPTION,
        )

    @property
    def costs(self) -> Scenario:
        """The costs of a part. On a host of another size, memory bandwidth scales with the number of cores."""
        found = scenario(self.scenario)
        if not self.host_cores:
            return found
        larger = self.host_cores / found.workload.host_cores
        workload = msgspec.structs.replace(found.workload, host_cores=self.host_cores)
        return msgspec.structs.replace(found, workload=workload, memory_threads=found.memory_threads * larger)

    @property
    def default(self) -> Configuration:
        """Host: one worker for each core and one PS, as in `cold_start`. Cluster: the simulator's reference."""
        return Configuration(self.host_cores, 1) if self.host_cores else Configuration(8, 4, 2, 2)

    def draw(self, random: np.random.Generator) -> tuple[Costs, float, float]:
        low, high = (np.log(msgspec.structs.astuple(one)) for one in (CHEAPEST, DEAREST))
        costs = Costs(*np.exp(random.uniform(low, high)).tolist())
        least, most = _cov_class(random.random())
        cov = math.exp(random.uniform(math.log(least), math.log(most)))
        return costs, cov, random.uniform(*calibration.NOISE_RHO)

    def features(self, seed: int, costs: Costs) -> JobFeatures:
        workload = self.workload
        return JobFeatures(
            family=f"{self.scenario}_{seed}:build",
            name=f"{self.scenario}_{seed}",
            tables=26,
            rows=10_000_000,
            mean_dim=round(16 * costs.server),
            ids_per_sample=workload.ids_per_sample,
            dense_bytes=int(workload.dense_bytes * costs.compute),
            batch_size=workload.batch_size,
            mode=workload.mode,
            access=workload.access,
            host_cores=workload.host_cores,
        )

    def truth(self, costs: Costs) -> SimulatedTruth:
        if not self.host_cores:
            return SimulatedTruth(ScaledSpeedTable(tables()[self.scenario], costs.time, costs.compute, costs.server))
        table = _host_table(self, round(costs.compute, 6), round(costs.server, 6))
        return SimulatedTruth(ScaledSpeedTable(table, costs.time))


def _cov_class(uniform: float) -> tuple[float, float]:
    shares = np.cumsum([share for share, _, _ in calibration.COV_CLASSES])
    return calibration.COV_CLASSES[min(int(np.searchsorted(shares, uniform)), len(shares) - 1)][1:]


class SimulatedTruth(msgspec.Struct, frozen=True):
    """Implements `world.Truth`."""

    of: ScaledSpeedTable

    @property
    def workload(self) -> Workload:
        return self.of.workload

    @property
    def log_error(self) -> float:
        return 0.0

    def speed(self, configuration: Configuration) -> float:
        return self.of.speed(configuration).samples_per_s

    def speeds(self, configurations: ConfigurationArray) -> Floats:
        return self.of.speeds(configurations)

    def met(self, configuration: Configuration, random: np.random.Generator) -> Met:
        """A visit: each timing has an error that stays constant during the visit."""
        speed = self.of.speed(configuration)
        timings = [name for name in speed.__struct_fields__ if name != "samples_per_s"]
        noise = np.exp(calibration.DIRECT_LOG_ERROR * random.standard_normal(len(timings) + 1)).tolist()
        off = {name: getattr(speed, name) * factor for name, factor in zip(timings, noise, strict=False)}
        even = 1 / configuration.servers
        share = (self.of.skew + (1 - self.of.skew) * even) * noise[-1]
        return Met(msgspec.structs.replace(speed, **off), min(1.0, max(even, share)))


@lru_cache(maxsize=512)
def _host_table(of: Simulated, compute: float, server: float) -> SpeedTable:
    """A table simulated at powers of two, half-way between them, and at the sizes that just fill the host."""
    costs = of.costs
    scaled = {name: getattr(costs, name) * compute for name in ("serial_s", "sample_s")}
    scaled |= {
        name: getattr(costs, name) * server for name in ("pull_sample_s", "push_sample_s", "request_s", "dense_s")
    }
    costs = msgspec.structs.replace(costs, **scaled)
    most = of.bounds.most
    workers = _levels(most.workers)
    servers = _powers(most.servers)
    cores = sorted({*(n for n in (1, 2, 3, 4) if n <= most.worker_cores), most.worker_cores})
    axes = (workers, servers, cores, (1, 2), (0.0, 1.0))  # the last two axes (cores of a PS, skew) are not used
    logs = np.empty((len(workers), len(servers), len(cores), 2, 2, 7))
    for w, p, c in product(range(len(workers)), range(len(servers)), range(len(cores))):
        logs[w, p, c] = point(costs, Configuration(workers[w], servers[p], cores[c]), costs.skew)
    return SpeedTable(of.name, costs.workload, 0.0, axes, logs)


def _powers(most: int) -> list[int]:
    return sorted({*(1 << n for n in range(most.bit_length())), most})


def _levels(most: int) -> list[int]:
    return sorted({*_powers(most), *(3 << n for n in range(most.bit_length()) if 3 << n < most)})


CLUSTERS = (
    "compute_bound",
    "server_bound",
    "network_bound",
    "reader_bound",
    "hot_server",
    "unpipelined",
    "sync_stragglers",
    "bounded_noisy",
)
HOSTS = (("direct_small_host", 2), ("direct_small_host", 16), ("direct_small_host", 64), ("served_small_host", 16))
QUOTAS = (("compute_bound", 64), ("server_bound", 64), ("sync_stragglers", 64))
SIMULATED = (
    *(Simulated(name) for name in CLUSTERS),
    *(Simulated(name, quota=cores) for name, cores in QUOTAS),
    *(Simulated(name, host_cores=cores) for name, cores in HOSTS),
)
