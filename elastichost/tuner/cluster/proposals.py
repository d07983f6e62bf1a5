"""What the tuner of one job proposes to run next, until it is granted or stale. Pure: the tuner loop of a run under the
dispatcher calls it, and the simulator of the benchmarks.

A proposal holds for the configuration that ran when it was made. It is stale, and dropped, as soon as another one runs.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.tuner.facts import Configuration, ConfigurationArray, as_array
from elastichost.tuner.placement.allocation import Option
from elastichost.tuner.policy.decision import Decision, Kind

__all__ = ["Proposal", "next_proposal", "option_of"]


class Proposal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A configuration that a job's own tuner would run next. present: the one that ran when it was proposed. kind,
    reason: of the tuner's decision."""

    present: Configuration
    wanted: Configuration
    kind: Kind
    reason: str


def next_proposal(before: Proposal | None, decision: Decision | None, running: Configuration | None) -> Proposal | None:
    """Returns the proposal that is open from now on; None: the tuner keeps what runs.

    before: the open one. decision: the tuner's, if it has just decided. running: None while the processes do not match
    the plan; an open proposal is kept meanwhile."""
    if decision is not None and running is not None:
        if decision.configuration == running:
            return None
        return Proposal(running, decision.configuration, decision.kind, decision.reason)
    if before is not None and running is not None and running != before.present:
        return None
    return before


def option_of(
    proposal: Proposal | None, cores: Callable[[ConfigurationArray], npt.NDArray[np.float64]]
) -> Option | None:
    """The proposal as an option for `decide`, which does not compare its speed. cores: the cores of
    configurations, counted as for the other options; float64 [n] of float64 [n, 4]."""
    if proposal is None:
        return None
    (needed,) = cores(as_array([proposal.wanted]))
    return Option(proposal.wanted, 0.0, int(needed))
