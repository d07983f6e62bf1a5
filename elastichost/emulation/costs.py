"""The costs of an emulated job: a scenario that the job file names, or one made from the numbers in it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from elastichost.emulation.scenarios import SCENARIOS, Scenario, scenario
from elastichost.errors import ConfigError
from elastichost.human_readable import did_you_mean
from elastichost.tuner.facts import Workload

if TYPE_CHECKING:
    from elastichost.config.job import JobSpec

__all__ = ["AUTOCORRELATION", "scenario_of", "slowed"]

AUTOCORRELATION = 0.7  # of the logarithms of compute times; real runs have 0.6 to 0.75


def scenario_of(job: JobSpec) -> Scenario:
    """The true costs of an emulated job, in real seconds: they include `emulate.slowdown`.

    Half of `emulate.server_s` and `emulate.bytes` belongs to pulls, the other half to pushes. Raises ConfigError for an
    unknown scenario, and for one in which processes share a host.
    """
    emulate, train = job.emulate, job.train
    found = _named(emulate.scenario) if emulate.scenario else _of_numbers(job)
    workload = msgspec.structs.replace(found.workload, batch_size=train.batch_size, mode=train.mode)
    staleness = train.staleness if train.mode == "bounded" else found.staleness
    return slowed(msgspec.structs.replace(found, workload=workload, staleness=staleness), emulate.slowdown)


def _named(name: str) -> Scenario:
    try:
        found = scenario(name)
    except ValueError as error:
        known = [one.name for one in SCENARIOS]
        raise ConfigError(f"emulate.scenario: {error}{did_you_mean(name, known)}") from error
    if found.shares_host or found.workload.access == "direct":
        raise ConfigError(
            f'emulate.scenario = "{name}": its processes share the cores of one host, which is not emulated',
            hint="choose a scenario whose processes have their own cores, or train the job itself on this host",
        )
    return found


def _of_numbers(job: JobSpec) -> Scenario:
    emulate, batch = job.emulate, job.train.batch_size
    workload = Workload(
        batch_size=batch,
        mode=job.train.mode,
        access="served",
        dense_bytes=emulate.bytes // 2,
        bandwidth_bytes_per_s=emulate.bandwidth_bytes_per_s,
    )
    return Scenario(
        name="job",
        workload=workload,
        overlap=emulate.overlap,
        serial_s=emulate.serial_s,
        sample_s=emulate.compute_s / batch,
        parallel_cores=emulate.worker_cores_saturate,
        compute_cov=emulate.noise,
        autocorrelation=AUTOCORRELATION,
        pull_sample_s=emulate.server_s / batch / 2,
        push_sample_s=emulate.server_s / batch / 2,
        server_cov=0.0,
        skew=emulate.skew,
        latency_s=emulate.latency_s,
    )


def slowed(of: Scenario, times: float) -> Scenario:
    """The same job, in which everything takes `times` times as long."""
    workload = msgspec.structs.replace(of.workload, bandwidth_bytes_per_s=of.workload.bandwidth_bytes_per_s / times)
    return msgspec.structs.replace(
        of,
        workload=workload,
        serial_s=of.serial_s * times,
        sample_s=of.sample_s * times,
        reader_sample_s=of.reader_sample_s * times,
        pull_sample_s=of.pull_sample_s * times,
        push_sample_s=of.push_sample_s * times,
        request_s=of.request_s * times,
        dense_s=of.dense_s * times,
        latency_s=of.latency_s * times,
    )
