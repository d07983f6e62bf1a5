"""Decides whether what is read is kept for the next epoch. Pure."""

from __future__ import annotations

from elastichost.tuner.input.facts import InputLook, InputTunerSettings
from elastichost.tuner.input.model import InputModel, unit_bytes
from elastichost.wire.facts import Cache

__all__ = ["chosen_cache"]

WORTH_KEEPING = 0.5  # a cache that holds less of the data than this share is not worth its memory
BY_SOURCE = ("source", "link", "decoding")  # with a remote source the bound of decoding contains the fetching


def chosen_cache(model: InputModel, limit: str, look: InputLook, settings: InputTunerSettings) -> Cache:
    """The cache for workers that wait for input although other knobs were tried, bound by `limit`; "none": no other is
    allowed, or would pay.

    Decoded data in memory spare fetching and decoding, so they come first where all of them fit. Otherwise bytes of a
    remote source are kept on the disk, and without one as much as fits in memory, if that is at least half."""
    units = settings.samples / settings.unit_samples if settings.unit_samples else 0.0
    needed_bytes = units * unit_bytes(model, settings)
    held = min(1.0, look.cache_bytes / needed_bytes) if needed_bytes else 0.0
    if "memory" in settings.caches and held >= 1.0:
        return "memory"
    if "disk" in settings.caches and settings.is_fetched and limit in BY_SOURCE:
        return "disk"
    return "memory" if "memory" in settings.caches and held >= WORTH_KEEPING else "none"
