"""What a run left in its files, as facts for the checkers. Reading only; nothing is judged here."""

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
from elastichost.errors import CheckpointError
from elastichost.plan import ProcessId
from elastichost.runs.events import AnyEvent, BatchTorn, PlanChanged, ProcessLost
from elastichost.runs.journal import read_journal
from elastichost.supervisor.ledger.checkpoint_record import RunRecord, read_record
from elastichost.supervisor.ledger.state import LedgerSettings
from elastichost.wire.applied import read_applied

__all__ = ["RunFacts", "read_facts"]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Two independent records of the samples, and what the last checkpoint says.

    applied: committed batches, dtype APPLIED_RECORD, those of the surviving lineage. record: of the newest checkpoint;
    None: there is none.
    """

    settings: LedgerSettings
    access: str
    events: tuple[AnyEvent, ...]
    applied: npt.NDArray[np.void]
    record: RunRecord | None

    @property
    def torn(self) -> Counter[ProcessId]:
        """Torn batches of each incarnation of a worker that left any, and died alone or with a PS."""
        return self._torn(with_supervisor=False)

    @property
    def torn_with_supervisor(self) -> Counter[ProcessId]:
        """Of those that died with their supervisor."""
        return self._torn(with_supervisor=True)

    def _torn(self, *, with_supervisor: bool) -> Counter[ProcessId]:
        found: Counter[ProcessId] = Counter()
        for event in self.events:
            if isinstance(event, BatchTorn) and event.with_supervisor == with_supervisor:
                found[event.process] += event.batches
        return found

    @property
    def lost(self) -> int:
        return sum(isinstance(event, ProcessLost) for event in self.events)


def read_facts(run_dir: Path, job: JobSpec) -> RunFacts:
    """job: the resolved one. Raises CheckpointError when there are checkpoints and all are bad, DataError when the data
    cannot be described."""
    units = tuple(unit.samples for unit in open_reader(job, "train").describe().units)
    settings = LedgerSettings(
        units=units, epochs=job.train.epochs, batch_size=job.train.batch_size, order=job.data.order, seed=job.job.seed
    )
    identity = read_identity(run_dir)
    if identity is None:
        raise CheckpointError(f"{run_dir} has no {RUN_FILE}: nothing was trained")
    source = checkpoint_source(run_dir, identity, job)
    found = latest(source.places[0], run_id=source.run_id)
    record = read_record(found.manifest) if found is not None else None
    events = tuple(line.event for line in read_journal(run_dir / "journal.jsonl"))
    access = [event.access for event in events if isinstance(event, PlanChanged)]
    applied = read_applied(run_dir)
    if record is not None:
        applied = applied[: record.dense_version]
    applied = applied[applied["incarnation"] > 0]  # the place before the first version is blank
    if not access:
        raise CheckpointError(f"{run_dir} never had a plan: nothing was trained")
    return RunFacts(settings, access[-1], events, applied, record)
