"""Digests of jobs. Jobs of equal shape share one examination; twins share what was measured of their speed. Pure."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from elastichost.config.job import JobSpec

__all__ = ["shape_of", "twin_of"]


def shape_of(job: JobSpec, working_directory: Path) -> str:
    """Returns a digest of the whole job except its name and seed, and of the directory from which its modules are
    imported. The examination of one job holds for all jobs of its shape."""
    facts = job.model_dump(mode="json", exclude={"job"})
    return _digest((facts, str(working_directory)))


def twin_of(job: JobSpec) -> str:
    """Returns a digest that is equal for jobs with the same speed. It leaves out name, seed, the number of epochs, the
    numbers of rows, and the settings of checkpoints, supervision and tuner."""
    facts = job.model_dump(mode="json", exclude={"job", "checkpoint", "supervision", "tuner"})
    facts["train"].pop("epochs", None)
    facts["data"].pop("limit_rows", None)
    facts["data"]["synthetic"] = {
        k: v for k, v in facts["data"]["synthetic"].items() if k not in ("rows", "test_rows", "seed")
    }
    return _digest(facts)


def _digest(facts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()[:16]
