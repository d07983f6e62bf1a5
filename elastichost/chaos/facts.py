"""Reads the facts that the checks of promises need from the files of a run that has ended. It checks nothing itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elastichost.checkpoint.format import latest
from elastichost.checkpoint.places import RUN_FILE, checkpoint_source, read_identity
from elastichost.config.job import JobSpec
from elastichost.datasets import open_reader
from elastichost.datasets.files import read_pinned
from elastichost.errors import CheckpointError
from elastichost.plan import ProcessId
from elastichost.run_files import JOURNAL_FILE
from elastichost.runs.events import AnyEvent, BatchTorn, PlanChanged, ProcessLost
from elastichost.runs.journal import read_journal
from elastichost.supervisor.ledger.checkpoint_record import RunRecord, read_record
from elastichost.supervisor.ledger.state import LedgerSettings
from elastichost.wire.applied import read_applied

__all__ = ["RunFacts", "read_facts"]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Two independent records of the samples (the journal and the log of applied batches), and the newest checkpoint.

    access: of the last plan. events: the journal. applied: the committed batches that the newest checkpoint contains,
    dtype APPLIED_RECORD; all of them without a checkpoint. record: the record of the newest checkpoint; None: there is
    none.
    """

    settings: LedgerSettings
    access: str
    events: tuple[AnyEvent, ...]
    applied: npt.NDArray[np.void]
    record: RunRecord | None

    @property
    def torn(self) -> Counter[ProcessId]:
        """Worker incarnation that died without its supervisor -> number of its torn batches, if it left any."""
        return self._torn(with_supervisor=False)

    @property
    def torn_with_supervisor(self) -> Counter[ProcessId]:
        """Worker incarnation that died with its supervisor -> number of its torn batches, if it left any."""
        return self._torn(with_supervisor=True)

    def _torn(self, *, with_supervisor: bool) -> Counter[ProcessId]:
        found: Counter[ProcessId] = Counter()
        for event in self.events:
            if isinstance(event, BatchTorn) and event.with_supervisor == with_supervisor:
                found[event.process] += event.batches
        return found

    @property
    def lost(self) -> int:
        """How often the run lost a process."""
        return sum(isinstance(event, ProcessLost) for event in self.events)


def read_facts(run_dir: Path, job: JobSpec) -> RunFacts:
    """Reads the facts of the run in `run_dir`. job: the resolved job.

    Raises CheckpointError when the run never began to train, or when it has checkpoints and all are bad; DataError when
    the data cannot be described."""
    described = open_reader(job, "train", pinned=read_pinned(run_dir).with_sizes_only()).describe()
    units = tuple(unit.samples for unit in described.units)
    settings = LedgerSettings(
        units=units, epochs=job.train.epochs, batch_size=job.train.batch_size, order=job.data.order, seed=job.job.seed
    )
    identity = read_identity(run_dir)
    if identity is None:
        raise CheckpointError(f"{run_dir} has no {RUN_FILE}: the run ended before it trained")
    source = checkpoint_source(run_dir, identity, job)
    found = latest(source.places[0], run_id=source.run_id)
    record = read_record(found.manifest) if found is not None else None
    events = tuple(line.event for line in read_journal(run_dir / JOURNAL_FILE))
    access = [event.access for event in events if isinstance(event, PlanChanged)]
    applied = read_applied(run_dir)
    if record is not None:
        applied = applied[: record.dense_version]
    applied = applied[applied["incarnation"] > 0]  # element 0 is the header
    if not access:
        raise CheckpointError(f"the journal of {run_dir} has no plan: the run ended before it trained")
    return RunFacts(settings, access[-1], events, applied, record)
