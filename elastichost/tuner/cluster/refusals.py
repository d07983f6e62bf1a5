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
    """until_s: (job, configuration) -> time until which it is not granted."""

    until_s: Mapping[tuple[JobId, Configuration], float] = {}


def noted(
    refusals: RefusedGrants,
    granted: Mapping[JobId, Configuration],
    running: Mapping[JobId, Configuration | None],
    now_s: float,
) -> RefusedGrants:
    """Adds the grants that were not carried out. granted: the last grant of each job. running: what each job runs
    now."""
    known = {key: until_s for key, until_s in refusals.until_s.items() if until_s > now_s and key[0] in running}
    for job, present in running.items():
        asked = granted.get(job)
        if asked is not None and asked != present:
            known[job, asked] = now_s + REFUSED_S
    return RefusedGrants(known)


def is_refused(refusals: RefusedGrants, job: JobId, configuration: Configuration) -> bool:
    """Whether a configuration of a job is not granted now."""
    return (job, configuration) in refusals.until_s


def open_options(refusals: RefusedGrants, job: JobId, options: OptionArray) -> OptionArray:
    """The options of a job without the refused ones; all options if none would be left."""
    if not refusals.until_s:
        return options
    kept = [at for at in range(len(options)) if not is_refused(refusals, job, options[at].configuration)]
    if len(kept) in (0, len(options)):
        return options
    rows = np.array(kept, dtype=np.int64)
    return OptionArray(
        options.configurations[rows], options.samples_per_s[rows], options.cores[rows], options.memory_bytes[rows]
    )
