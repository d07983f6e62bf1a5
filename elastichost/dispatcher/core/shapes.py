"""Digests of jobs. Jobs of equal shape share one examination; twins share what was measured of their speed. Pure."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from elastichost.config.job import JobSpec

__all__ = ["shape_of", "twin_of"]

# Not weight_decay and momentum: with 0 their part of the step is left out.
NUMBERS_OF_OPTIMIZERS = frozenset({"beta1", "beta2", "eps", "lr"})


def shape_of(job: JobSpec, working_directory: Path) -> str:
    """Returns a digest of the whole job except its name, its seed and the numbers of its optimizers, and of the
    directory from which its modules are imported. The examination of one job holds for all jobs of its shape."""
    facts = job.model_dump(mode="json", exclude={"job"})
    return _digest((_without_rates(facts), str(working_directory)))


def twin_of(job: JobSpec) -> str:
    """Returns a digest that is equal for jobs with the same speed. It leaves out name, seed, the number of epochs, the
    numbers of rows and of the optimizers, and the settings of checkpoints, supervision and tuner."""
    facts = _without_rates(job.model_dump(mode="json", exclude={"job", "checkpoint", "supervision", "tuner"}))
    facts["train"].pop("epochs", None)
    facts["data"].pop("limit_rows", None)
    facts["data"]["synthetic"] = {
        k: v for k, v in facts["data"]["synthetic"].items() if k not in ("rows", "test_rows", "seed")
    }
    return _digest(facts)


def _without_rates(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts of a job without the numbers of its optimizers, such as learning rates: trials of a search differ in
    them, and neither speed nor memory depends on them. The names of the optimizers stay."""
    optimizers = [facts["train"]["optimizer_rows"], facts["train"]["optimizer_dense"]]
    optimizers += [table["optimizer"] for table in facts["tables"].values() if table["optimizer"] is not None]
    for optimizer in optimizers:
        for setting in NUMBERS_OF_OPTIMIZERS & set(optimizer):
            del optimizer[setting]
    return facts


def _digest(facts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()[:16]
