"""Prepares applied.bin for a run that starts from a checkpoint: the file must contain all commits of the checkpoint.

Usually it does, and the dense owner cuts off the records beyond the checkpoint's version of the dense vector. The file
is replaced when the record of that version is already folded or missing, and when the checkpoint belongs to another
run. The new file contains no records, only a fold that is computed from the ledger of the checkpoint.
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
    """Keeps applied.bin if it contains all commits of the checkpoint, and replaces it otherwise. No PS may be alive.

    is_own: the checkpoint belongs to this run. The records of this run say nothing about the checkpoint of another one.
    Raises CheckpointSpaceError when the file cannot be written.
    """
    version = record.dense_version
    try:
        content = read_applied_content(run_dir)
        if is_own and content.first <= version <= content.end:
            return
    except ProtocolError:
        pass  # an unreadable file is replaced
    fold = fold_of_ledger(settings, record.ledger, version, record.samples_applied)
    try:
        write_atomically(run_dir / APPLIED_FILE, applied_bytes(fold, np.zeros(0, APPLIED_RECORD)))
    except OSError as error:
        path = run_dir / APPLIED_FILE
        raise CheckpointSpaceError(f"cannot write {path}: {error.strerror}", hint="free some space") from error


def fold_of_ledger(settings: LedgerSettings, state: LedgerState, version: int, samples: int) -> AppliedFold:
    """Returns the fold of all commits before this version of the dense vector, computed from a checkpoint's ledger.

    samples: applied by these commits. The fold names no incarnation, because no staged rows of any incarnation exist.
    """
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
