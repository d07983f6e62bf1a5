"""The knobs that a worker's input begins with, and those that the job file fixes."""

from __future__ import annotations

import msgspec

from elastichost.config.sections.input import AUTO, InputSettings, size_of
from elastichost.wire.facts import InputKnobs

__all__ = ["first_knobs", "fixed_knobs"]

SIZES = ("prefetch_bytes", "range_bytes")


def fixed_knobs(settings: InputSettings) -> dict[str, int]:
    """The knobs that the job file fixes, by name; those with "auto" are left out."""
    given = {name: getattr(settings, name) for name in InputKnobs.__struct_fields__}
    return {name: size_of(value) if name in SIZES else int(value) for name, value in given.items() if value != AUTO}


def first_knobs(settings: InputSettings) -> InputKnobs:
    """The knobs before the tuner has measured anything."""
    return msgspec.structs.replace(InputKnobs(), **fixed_knobs(settings))
