"""Writes what a run has measured to the history, for similar jobs: at each decision of its tuner, and at its end.

Jobs of one kind often run at the same time: the trials of a search, the jobs of a team. If a job were recorded only at
its end, those that start meanwhile would begin with nothing, and repeat its search.
"""

from __future__ import annotations

import contextlib
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
from elastichost.tuner.policy.policy import Decision, TunerSettings, TunerState, decision_costs
from elastichost.tuner.policy.profile import merged, so_far

__all__ = ["is_worth_recording", "record_of", "remember", "remember_so_far"]

SHORT_WAIT_S = 0.5  # longest wait for other runs that write to the history, if the record has no measured speed
LEAST_WAIT_S = 0.05  # the same while the run trains; its next record has all that this one would have


def is_worth_recording(decision: Decision | None) -> bool:
    """Whether others should know what a running job has measured: its tuner has learnt enough to decide something."""
    return decision is not None


def record_of(
    features: JobFeatures,
    state: TunerState,
    settings: TunerSettings,
    final: Configuration,
    written_utc: str,
    memory: Estimates,
    *,
    ended_well: bool,
    run: str = "",
) -> JobRecord | None:
    """The record of a run; None: nothing was measured. memory: estimates of the growth of dynamic tables; may be empty.
    ended_well, run: see `JobRecord`.

    A block that was cut short by the end of the run counts too, with its larger error. Without any observation of a
    speed the record contains only the estimates of memory.
    """
    state = _with_last_block(state, settings)
    if not state.observations:
        return _of_memory(features, final, written_utc, memory, run, ended_well=ended_well)
    best = best_known(state.observations, decision_costs(state, 0, settings))
    found = fit(settings.model, settings.workload, state.observations, settings.prior).posterior()
    return JobRecord(
        features=features,
        written_utc=written_utc,
        best=_size(best.configuration),
        samples_per_s=best.samples_per_s,
        final=_size(final),
        ended_well=ended_well,
        model=settings.model,
        parameters=Estimates(found.mean, found.sd),
        memory=memory,
        observations=msgspec.json.encode(state.observations).decode(),
        run=run,
    )


def _of_memory(
    features: JobFeatures, final: Configuration, written_utc: str, memory: Estimates, run: str, *, ended_well: bool
) -> JobRecord | None:
    if not memory.mean:
        return None
    size = _size(final)
    return JobRecord(features, written_utc, size, 0.0, size, ended_well=ended_well, memory=memory, run=run)


def remember(run: RunContext, record: JobRecord | None) -> None:
    """Adds the record of a run that ends to the history. Without one, what the run has told there while it trained is
    removed. If the history cannot be written, an event is journaled and the run goes on."""
    try:
        path = history_path(os.environ)
        if path is None or (record is None and not path.exists()):
            return
        # the processes of a failed run are ended only after this call, so it must not wait long
        with History(path, wait_s=WAIT_S if record is not None and record.is_measured else SHORT_WAIT_S) as history:
            if record is not None:
                history.add(record)
            else:
                history.forget(run.directory.identity.run_id)
    except HistoryError as error:
        run.note(HistoryUnavailable(str(error)))


def remember_so_far(record: JobRecord | None) -> None:
    """Adds the record of a run that goes on to the history. If the history cannot be written now, nothing happens: the
    next record has all that this one has, and the last one tells about the problem."""
    with contextlib.suppress(HistoryError):
        path = history_path(os.environ)
        if path is not None and record is not None:
            with History(path, wait_s=LEAST_WAIT_S) as history:
                history.add(record)


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
