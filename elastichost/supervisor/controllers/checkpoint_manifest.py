"""The manifest of a checkpoint of a run."""

from __future__ import annotations

import msgspec

from elastichost.checkpoint.format import BestFigure, BlockRecord, Manifest
from elastichost.host.cpu_features import present_cpu
from elastichost.runs.journal import utc_now
from elastichost.sharding import bucket_count
from elastichost.specs import ModelSpec
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.ledger.checkpoint_record import RunRecord

__all__ = ["manifest_of"]


def manifest_of(
    run: RunContext,
    model: ModelSpec,
    record: RunRecord,
    blocks: tuple[BlockRecord, ...],
    trained: int,
    epoch: int,
    best: BestFigure | None,
) -> Manifest:
    """The manifest of one cut. record, trained, epoch: as they were when the PS took their copies. best: see
    `Manifest.best`."""
    return Manifest(
        run_id=run.directory.identity.run_id,
        job_name=run.job.job.name,
        seed=run.job.job.seed,
        samples_trained=trained,
        epoch=epoch,
        ledger=msgspec.Raw(msgspec.json.encode(record)),
        model=model,
        bucket_counts=tuple(bucket_count(table) for table in model.tables),
        dense_version=record.dense_version,
        blocks=blocks,
        created_utc=utc_now(),
        cpu=present_cpu(),
        best=best,
    )
