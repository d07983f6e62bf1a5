"""Writes what a run has measured to the history, for similar jobs."""

from __future__ import annotations

import os

import msgspec

from elastichost.errors import HistoryError
from elastichost.history.features import Estimates, JobFeatures, JobRecord, PlanSize
from elastichost.history.store import WAIT_S, History, history_path
from elastichost.runs.events import HistoryUnavailable
from elastichost.supervisor.context import RunContext
from elastichost.tuner.facts import Configuration
from elastichost.tuner.models.registry import fit
from elastichost.tuner.policy.acquisition import best_known
from elastichost.tuner.policy.policy import TunerSettings, TunerState, decision_costs
from elastichost.tuner.policy.profile import merged, so_far

__all__ = ["record_of", "remember"]

SHORT_WAIT_S = 0.5  # longest wait for other runs that write to the history, if the record has no measured speed


def record_of(
    features: JobFeatures,
    state: TunerState,
    settings: TunerSettings,
    final: Configuration,
    ended_utc: str,
    memory: Estimates,
    *,
    ended_well: bool,
) -> JobRecord | None:
    """The record of a run; None: nothing was measured. memory: estimates of the growth of dynamic tables; may be empty.

    A block that was cut short by the end of the run counts too, with its larger error. Without any observation of a
    speed the record contains only the estimates of memory.
    """
    state = _with_last_block(state, settings)
    if not state.observations:
        return _of_memory(features, final, ended_utc, memory, ended_well=ended_well)
    best = best_known(state.observations, decision_costs(state, 0, settings))
    found = fit(settings.model, settings.workload, state.observations, settings.prior).posterior()
    return JobRecord(
        features=features,
        ended_utc=ended_utc,
        best=_size(best.configuration),
        samples_per_s=best.samples_per_s,
        final=_size(final),
        ended_well=ended_well,
        model=settings.model,
        parameters=Estimates(found.mean, found.sd),
        memory=memory,
        observations=msgspec.json.encode(state.observations).decode(),
    )


def _of_memory(
    features: JobFeatures, final: Configuration, ended_utc: str, memory: Estimates, *, ended_well: bool
) -> JobRecord | None:
    if not memory.mean:
        return None
    size = _size(final)
    return JobRecord(features, ended_utc, size, 0.0, size, ended_well=ended_well, memory=memory)


def remember(run: RunContext, record: JobRecord | None) -> None:
    """Adds a record to the history. If the history cannot be written, an event is journaled and the run goes on."""
    try:
        path = history_path(os.environ)
        if path is None or record is None:
            return
        # the processes of a failed run are ended only after this call, so it must not wait long
        with History(path, wait_s=WAIT_S if record.is_measured else SHORT_WAIT_S) as history:
            history.add(record)
    except HistoryError as error:
        run.note(HistoryUnavailable(str(error)))


def _with_last_block(state: TunerState, settings: TunerSettings) -> TunerState:
    block = so_far(state.profile, settings.workload, settings.block)
    if block is None:
        return state
    known = {one.configuration: one for one in state.observations}
    before = known.get(block.configuration)
    known[block.configuration] = block if before is None else merged(before, block)
    return msgspec.structs.replace(state, observations=tuple(known.values()))


def _size(configuration: Configuration) -> PlanSize:
    c = configuration
    return PlanSize(c.workers, c.servers, c.worker_cores, c.server_cores)
