"""Configurations that were granted and did not fit on the hosts. They are not granted again for a while. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from elastichost.tuner.facts import Configuration
from elastichost.tuner.placement.allocation import JobId, OptionArray

__all__ = ["RefusedGrants", "is_refused", "noted", "open_options"]

REFUSED_S = 300.0  # time without a refused configuration


class RefusedGrants(msgspec.Struct, frozen=True):
    """until_s: by job, and by configuration the time until which it is not granted."""

    until_s: Mapping[JobId, Mapping[Configuration, float]] = {}


def noted(
    refusals: RefusedGrants,
    granted: Mapping[JobId, Configuration],
    running: Mapping[JobId, Configuration | None],
    now_s: float,
) -> RefusedGrants:
    """Adds the grants that were not carried out. granted: the last grant of each job that was to change something.
    running: what each job runs now, which is never refused."""
    known: dict[JobId, dict[Configuration, float]] = {}
    for job, refused in refusals.until_s.items():
        present = running.get(job)
        still = {one: until_s for one, until_s in refused.items() if until_s > now_s and one != present}
        if job in running and still:
            known[job] = still
    for job, present in running.items():
        asked = granted.get(job)
        if asked is not None and asked != present:
            known.setdefault(job, {})[asked] = now_s + REFUSED_S
    return RefusedGrants(known)


def is_refused(refusals: RefusedGrants, job: JobId, configuration: Configuration) -> bool:
    """Whether a configuration of a job is not granted now."""
    return configuration in refusals.until_s.get(job, {})


def open_options(refusals: RefusedGrants, job: JobId, options: OptionArray) -> OptionArray:
    """The options of a job without the refused ones; all options if none would be left."""
    refused = refusals.until_s.get(job)
    if not refused:
        return options
    closed = {options.place_of(one) for one in refused}
    rows = np.array([at for at in range(len(options)) if at not in closed], dtype=np.int64)
    if len(rows) in (0, len(options)):
        return options
    return OptionArray(
        options.configurations[rows], options.samples_per_s[rows], options.cores[rows], options.memory_bytes[rows]
    )
