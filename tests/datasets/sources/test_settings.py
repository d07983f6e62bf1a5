"""The knobs to begin with, from the job file."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from elastichost.config.sections.input import InputSettings
from elastichost.datasets.sources.settings import (
    cache_bytes,
    decoded_directory,
    first_knobs,
    fixed_knobs,
    ranges_directory,
)
from elastichost.wire.facts import InputKnobs


def test_without_settings_nothing_is_fixed_and_nothing_is_read_ahead() -> None:
    assert fixed_knobs(InputSettings()) == {}
    assert first_knobs(InputSettings()) == InputKnobs(1, 1, 0, 0)


def test_a_number_or_a_size_is_fixed() -> None:
    settings = InputSettings(connections=8, prefetch_bytes="64MiB", range_bytes=1 << 16)
    assert fixed_knobs(settings) == {"connections": 8, "prefetch_bytes": 64 << 20, "range_bytes": 1 << 16}
    assert first_knobs(settings).connections == 8


def test_the_tuner_begins_without_a_cache_and_the_job_file_may_fix_one() -> None:
    assert first_knobs(InputSettings()).cache == "none"
    assert first_knobs(InputSettings(cache="memory")).cache == "memory"
    assert "cache" not in fixed_knobs(InputSettings(cache="disk"))
    with pytest.raises(ValidationError):
        InputSettings.model_validate({"cache": "ram"})


def test_the_places_and_bounds_of_caches() -> None:
    caches = Path("/caches")
    assert ranges_directory(InputSettings(), caches) == Path("/caches/ranges")
    assert ranges_directory(InputSettings(cache_directory="/scratch"), caches) == Path("/scratch")
    assert decoded_directory(Path("/dev/shm/arena")) == Path("/dev/shm/arena/decoded")
    assert cache_bytes(InputSettings()) == 0
    assert cache_bytes(InputSettings(cache_bytes="2MiB")) == 2 << 20
