"""When two jobs are alike: of one shape, or twins. Pure."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from elastichost.config.job import JobSpec

__all__ = ["shape_of", "twin_of"]


def shape_of(job: JobSpec, working_directory: Path) -> str:
    """Digest of all but name and seed, and of where its modules are imported from: what is found out about one before
    it starts holds for the other."""
    facts = job.model_dump(mode="json", exclude={"job"})
    return _digest((facts, str(working_directory)))


def twin_of(job: JobSpec) -> str:
    """Equal for jobs that differ in name, seed and how long they train only."""
    facts = job.model_dump(mode="json", exclude={"job", "checkpoint", "supervision", "tuner"})
    facts["train"].pop("epochs", None)
    facts["data"].pop("limit_rows", None)
    facts["data"]["synthetic"] = {
        k: v for k, v in facts["data"]["synthetic"].items() if k not in ("rows", "test_rows", "seed")
    }
    return _digest(facts)


def _digest(facts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()[:16]
