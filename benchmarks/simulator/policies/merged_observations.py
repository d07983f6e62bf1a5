"""The observations of every job, one for each of its configurations. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchmarks.simulator.cluster.views import EndedJob, JobView
from elastichost.tuner.facts import Configuration, Observation
from elastichost.tuner.policy.profile import merged

__all__ = ["MergedObservations"]


class MergedObservations:
    """The observations of every job, one for each of its configurations, updated block by block."""

    @staticmethod
    def age(job: JobView, known: Mapping[Configuration, Observation]) -> tuple[int, int]:
        """A value that changes when a model should be fitted again: with each new configuration, and when the number of
        blocks has doubled. One more block of a configuration with many blocks changes no model."""
        return len(known), len(job.observations).bit_length()

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._merged: dict[int, dict[Configuration, Observation]] = {}

    def update(self, job: JobView) -> dict[Configuration, Observation]:
        """Adds the new blocks, and returns the observations in the order in which the configurations were first
        seen."""
        known = self._merged.setdefault(job.job, {})
        for observation in job.observations[self._seen.get(job.job, 0) :]:
            before = known.get(observation.configuration)
            known[observation.configuration] = observation if before is None else merged(before, observation)
        self._seen[job.job] = len(job.observations)
        return known

    def forget(self, ended: Iterable[EndedJob]) -> None:
        for one in ended:
            self._seen.pop(one.view.job, None)
            self._merged.pop(one.view.job, None)
