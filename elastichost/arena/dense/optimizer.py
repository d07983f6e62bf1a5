"""The optimizer of the dense vector, from the job file."""

from __future__ import annotations

from elastichost.arena.dense.store import DenseOptimizerSpec
from elastichost.config.job import JobSpec

__all__ = ["dense_optimizer"]


def dense_optimizer(job: JobSpec) -> DenseOptimizerSpec:
    """The specification from `train.optimizer_dense` and `train.clip_norm`; the same in every process of the job."""
    asked = job.train.optimizer_dense
    return DenseOptimizerSpec(
        name=asked.name,
        learning_rate=asked.lr,
        beta1=asked.beta1,
        beta2=asked.beta2,
        eps=asked.eps,
        weight_decay=asked.weight_decay,
        momentum=asked.momentum,
        clip_norm=job.train.clip_norm,
    )
