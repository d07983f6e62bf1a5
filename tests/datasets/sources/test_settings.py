"""The knobs to begin with, from the job file."""

from __future__ import annotations

from elastichost.config.sections.input import InputSettings
from elastichost.datasets.sources.settings import first_knobs, fixed_knobs
from elastichost.wire.facts import InputKnobs


def test_without_settings_nothing_is_fixed_and_nothing_is_read_ahead() -> None:
    assert fixed_knobs(InputSettings()) == {}
    assert first_knobs(InputSettings()) == InputKnobs(1, 1, 0, 0)


def test_a_number_or_a_size_is_fixed() -> None:
    settings = InputSettings(connections=8, prefetch_bytes="64MiB", range_bytes=1 << 16)
    assert fixed_knobs(settings) == {"connections": 8, "prefetch_bytes": 64 << 20, "range_bytes": 1 << 16}
    assert first_knobs(settings).connections == 8
