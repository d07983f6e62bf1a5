"""Which settings of a run may change when it is resumed."""

from __future__ import annotations

from elastichost.config.job import JobSpec
from elastichost.errors import ConfigError

__all__ = ["check_same_job"]

CHANGEABLE_SECTIONS = ("resources", "checkpoint", "supervision", "evaluate", "logging", "tuner")


def check_same_job(before: JobSpec, after: JobSpec) -> None:
    """Raises ConfigError that names the changed sections, unless all of them may change. A checkpoint belongs to one
    model and one order of samples."""
    same = after.model_copy(
        update={
            **{section: getattr(before, section) for section in CHANGEABLE_SECTIONS},
            "train": after.train.model_copy(update={"access": before.train.access, "any_cpu": before.train.any_cpu}),
        }
    )
    changed = [section for section in type(before).model_fields if getattr(same, section) != getattr(before, section)]
    if changed:
        raise ConfigError(
            "a resumed run cannot change these sections of its job",
            problems=tuple(f"[{section}] is changed" for section in changed),
            hint=f"change only {', '.join(CHANGEABLE_SECTIONS)}, train.access and train.any_cpu, or start a new run",
        )
