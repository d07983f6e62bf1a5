"""The supervisor's part of a checkpoint (ledger, dense vector, evaluations), and which checkpoint is read."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from elastichost.arena.dense.store import DenseState
from elastichost.checkpoint.format import (
    MANIFEST_NAME,
    BestFigure,
    BlockRecord,
    FoundCheckpoint,
    Manifest,
    latest,
    load_manifest,
    read_block,
    verify_blocks,
)
from elastichost.checkpoint.places import CheckpointSource, RunIdentity
from elastichost.errors import CheckpointError
from elastichost.host.cpu_features import CpuFeatures
from elastichost.runs.facts import EvaluationMemory
from elastichost.runs.result import Lookups
from elastichost.sharding import bucket_count
from elastichost.specs import ModelSpec
from elastichost.supervisor.ledger.state import LedgerState

__all__ = ["RunRecord", "find_checkpoint", "load_dense", "manifest_of", "read_record"]


class RunRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The supervisor's part of a checkpoint; it is the field `ledger` of the manifest."""

    ledger: LedgerState
    dense_version: int
    dense_step: int  # updates of the dense optimizer so far (Adam's bias correction)
    samples_applied: int
    evaluations: EvaluationMemory = EvaluationMemory()
    lookups: Lookups = Lookups()


def find_checkpoint(source: CheckpointSource, *, verify: bool = True) -> FoundCheckpoint:
    """The newest intact checkpoint of a source, or the one checkpoint that the source names. verify: its blocks are
    read and checked too. Raises CheckpointError when the source has no checkpoint of its run, and when the one that it
    names is damaged."""
    if len(source.places) == 1 and (source.places[0] / MANIFEST_NAME).exists():
        manifest = load_manifest(source.places[0])
        if verify:
            verify_blocks(source.places[0], manifest)
        return FoundCheckpoint(source.places[0], manifest)
    found = latest(*source.places, verify=verify, run_id=source.run_id)
    if found is None:
        raise CheckpointError(
            f"no checkpoint in {source}",
            hint="nothing of the run was saved: run the job again, or start from another run's checkpoint with --from "
            "(Python: start_from)",
        )
    return found


def read_record(manifest: Manifest) -> RunRecord:
    """The supervisor's part of a checkpoint. Raises CheckpointError when the manifest has none or it is damaged."""
    try:
        return msgspec.json.decode(manifest.ledger, type=RunRecord)
    except msgspec.MsgspecError as error:
        raise CheckpointError(f"the checkpoint's record of the run cannot be read: {error}") from error


def manifest_of(
    identity: RunIdentity,
    seed: int,
    model: ModelSpec,
    record: RunRecord,
    blocks: tuple[BlockRecord, ...],
    trained: int,
    epoch: int,
    best: BestFigure | None,
    created_utc: str,
    cpu: CpuFeatures,
) -> Manifest:
    """The manifest of one cut. record, trained, epoch: as they were when the PS took their copies. best: see
    `Manifest.best`."""
    return Manifest(
        run_id=identity.run_id,
        job_name=identity.job_name,
        seed=seed,
        samples_trained=trained,
        epoch=epoch,
        ledger=msgspec.Raw(msgspec.json.encode(record)),
        model=model,
        bucket_counts=tuple(bucket_count(table) for table in model.tables),
        dense_version=record.dense_version,
        blocks=blocks,
        created_utc=created_utc,
        cpu=cpu,
        best=best,
    )


def load_dense(found: FoundCheckpoint, record: RunRecord) -> DenseState:
    """The dense vector and its optimizer state, float32. Raises CheckpointError with the block that is damaged."""
    arrays: dict[str, npt.NDArray[np.float32]] = {}
    for block in found.manifest.blocks:
        if block.kind in ("dense", "dense_state"):
            arrays[block.kind] = np.asarray(read_block(found.directory, block), dtype=np.float32)
    if "dense" not in arrays or "dense_state" not in arrays:
        raise CheckpointError(f"the checkpoint {found.directory} has no dense vector or no optimizer state for it")
    return DenseState(
        arrays["dense"], arrays["dense_state"], record.dense_version, record.dense_step, record.samples_applied
    )
