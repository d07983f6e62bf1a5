"""The section [data.input]: the values it accepts, and those it refuses."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from elastichost.config.sections.input import InputSettings, size_of


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("readers", "auto"),
        ("readers", 0),
        ("readers", 4),
        ("connections", "auto"),
        ("connections", 32),
        ("decode_threads", 16),
        ("prefetch_batches", 0),
        ("prefetch_bytes", "1.5GiB"),
        ("range_bytes", "256KiB"),
    ],
)
def test_an_accepted_value_is_kept(name: str, value: int | str) -> None:
    assert getattr(InputSettings(**{name: value}), name) == value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("readers", 5, "whole number from 0 to 4"),
        ("connections", 0, "whole number from 1 to 32"),
        ("connections", True, "whole number from 1 to 32"),
        ("connections", "4", "whole number from 1 to 32"),
        ("decode_threads", 17, "whole number from 1 to 16"),
        ("prefetch_batches", -1, "whole number from 0 to 64"),
        ("prefetch_bytes", "50%", "a number of bytes"),
        ("prefetch_bytes", "2TB", "a number of bytes"),
        ("range_bytes", 100, "a number of bytes from 4096"),
        ("memory_share", 1.0, "less than 1"),
        ("stall_s", 0, "greater than 0"),
    ],
)
def test_a_refused_value_names_the_allowed_ones(name: str, value: object, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        InputSettings(**{name: value})  # type: ignore[arg-type]


def test_a_size_is_a_number_of_bytes() -> None:
    assert size_of("1MiB") == 1 << 20
    assert size_of(7) == 7
