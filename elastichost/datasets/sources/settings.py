"""The knobs that a worker's input begins with, those that the job file fixes, and the places of its caches."""

from __future__ import annotations

from pathlib import Path

import msgspec

from elastichost.config.sections.input import AUTO, InputSettings, size_of
from elastichost.wire.facts import Cache, InputKnobs

__all__ = ["cache_bytes", "decoded_directory", "first_knobs", "fixed_knobs", "ranges_directory"]

SIZES = ("prefetch_bytes", "range_bytes")


def fixed_knobs(settings: InputSettings) -> dict[str, int]:
    """The knobs that the job file fixes, by name; those with "auto" are left out."""
    given = {name: getattr(settings, name) for name in InputKnobs.__struct_fields__ if name != "cache"}
    return {name: size_of(value) if name in SIZES else int(value) for name, value in given.items() if value != AUTO}


def first_knobs(settings: InputSettings) -> InputKnobs:
    """The knobs before the tuner has measured anything."""
    cache: Cache = "none" if settings.cache == "auto" else settings.cache
    return msgspec.structs.replace(InputKnobs(cache=cache), **fixed_knobs(settings))


def cache_bytes(settings: InputSettings) -> int:
    """The bound of what is kept; 0: it is for the free space or memory to say."""
    return 0 if settings.cache_bytes == AUTO else size_of(settings.cache_bytes)


def ranges_directory(settings: InputSettings, caches: Path) -> Path:
    """The directory of the ranges that are kept on the disk. caches: the user's directory of caches."""
    return Path(settings.cache_directory or caches / "ranges").expanduser().absolute()


def decoded_directory(arena: Path) -> Path:
    """The directory of decoded units in memory, in that of a run's arena."""
    return arena / "decoded"
