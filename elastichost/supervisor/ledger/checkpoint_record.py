"""What a checkpoint says of the run beside its rows: the ledger and the dense vector; and which checkpoint is read."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.arena.dense.store import DenseState
from elastichost.checkpoint.format import (
    MANIFEST_NAME,
    FoundCheckpoint,
    Manifest,
    latest,
    load_manifest,
    read_block,
)
from elastichost.checkpoint.places import CheckpointSource
from elastichost.errors import CheckpointError
from elastichost.runs.facts import EvaluationMemory
from elastichost.runs.result import Lookups
from elastichost.supervisor.ledger.state import LedgerState

__all__ = ["RunRecord", "find_checkpoint", "load_dense", "read_record"]


class RunRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The supervisor's part of a checkpoint; the manifest carries it as its `ledger`."""

    ledger: LedgerState
    dense_version: int
    dense_step: int  # updates of the dense optimizer so far (Adam's bias correction)
    samples_applied: int
    evaluations: EvaluationMemory = EvaluationMemory()
    lookups: Lookups = Lookups()


def find_checkpoint(source: CheckpointSource, *, verify: bool = True) -> FoundCheckpoint:
    """The newest good checkpoint, or the only one where a single one was named. `verify` reads its blocks, too. Raises
    CheckpointError when there is none of the run that the source names."""
    if len(source.places) == 1 and (source.places[0] / MANIFEST_NAME).exists():
        return FoundCheckpoint(source.places[0], load_manifest(source.places[0]))
    found = latest(*source.places, verify=verify, run_id=source.run_id)
    if found is None:
        raise CheckpointError(
            f"no checkpoint in {source}",
            hint="run the job anew, or begin from the checkpoint of another run with --from: nothing of it was saved",
        )
    return found


def read_record(manifest: Manifest) -> RunRecord:
    """Raises CheckpointError when the manifest carries no record of a run."""
    try:
        return msgspec.json.decode(manifest.ledger, type=RunRecord)
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"the checkpoint's record of the run cannot be read: {error}") from error


def load_dense(found: FoundCheckpoint, record: RunRecord) -> DenseState:
    """The dense vector and its optimizer state. Raises CheckpointError naming the block."""
    arrays: dict[str, npt.NDArray[np.float32]] = {}
    for block in found.manifest.blocks:
        if block.kind in ("dense", "dense_state"):
            arrays[block.kind] = np.asarray(read_block(found.directory, block), dtype=np.float32)
    if "dense" not in arrays or "dense_state" not in arrays:
        raise CheckpointError(f"{found.directory} lacks the dense vector or its optimizer state")
    return DenseState(
        arrays["dense"], arrays["dense_state"], record.dense_version, record.dense_step, record.samples_applied
    )
