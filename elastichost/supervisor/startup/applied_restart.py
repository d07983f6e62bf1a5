"""applied.bin of a run that goes on from a checkpoint: it has to say what is trained up to there.

Mostly it does: the dense owner cuts off what lies beyond the version of the checkpoint. It does not when the records
around that version are folded, or when the checkpoint is of another run directory. Then a new one is begun, with what
the ledger of the checkpoint accounts for in the place of the records.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from elastichost.atomic_write import write_atomically
from elastichost.errors import CheckpointSpaceError, ProtocolError
from elastichost.supervisor.ledger.checkpoint_record import RunRecord
from elastichost.supervisor.ledger.state import LedgerSettings, LedgerState, epoch_order
from elastichost.wire.applied import APPLIED_FILE, APPLIED_RECORD, AppliedFold, applied_bytes, read_applied_content

__all__ = ["fold_of_ledger", "keep_applied"]


def keep_applied(run_dir: Path, settings: LedgerSettings, record: RunRecord, *, is_own: bool = True) -> None:
    """Call it while no PS lives. is_own: the checkpoint is of this run; what is recorded here says nothing of another
    one's. Raises CheckpointSpaceError when the disk is full."""
    version = record.dense_version
    try:
        content = read_applied_content(run_dir)
        if is_own and content.first <= version <= content.end:
            return
    except ProtocolError:
        pass  # it is replaced
    fold = fold_of_ledger(settings, record.ledger, version, record.samples_applied)
    try:
        write_atomically(run_dir / APPLIED_FILE, applied_bytes(fold, np.zeros(0, APPLIED_RECORD)))
    except OSError as error:
        path = run_dir / APPLIED_FILE
        raise CheckpointSpaceError(f"cannot write {path}: {error.strerror}", hint="free some space") from error


def fold_of_ledger(settings: LedgerSettings, state: LedgerState, version: int, samples: int) -> AppliedFold:
    """What the commits before this version of the dense vector come to, by the ledger of a checkpoint. samples: applied
    by then. No incarnation of a worker is named: none of them has left rows."""
    pending: dict[int, list[tuple[int, int]]] = {}
    for span in state.pending:
        pending.setdefault(span.unit, []).append((span.start, span.stop))
    spans: list[tuple[int, int, int, int]] = []
    for unit in epoch_order(settings, state.epoch)[: state.next_unit]:
        at = 0
        for start, stop in (*sorted(pending.get(unit, [])), (settings.units[unit], 0)):
            if start > at:
                spans.append((state.epoch, unit, at, start))
            at = stop
    ranges = np.array(spans, "<i8").reshape(-1, 4)
    return AppliedFold(first=version, samples=samples, lease_id=state.next_lease_id - 1, spans=ranges.tobytes())
