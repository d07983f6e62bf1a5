"""Numbers as text for people, and suggestions for misspelt words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.human_readable import bytes_words, count_words, did_you_mean, duration_words, mib, plural


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0"), (9_999, "9999"), (10_000, "10.0k"), (999_949, "999.9k"), (999_950, "1.0M"), (12_345_678, "12.3M")],
)
def test_counts(count: int, words: str) -> None:
    assert count_words(count) == words


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 30, "3.0 GiB"), (5 << 40, "5.0 TiB")]
)
def test_sizes(size: int, words: str) -> None:
    assert bytes_words(size) == words


@pytest.mark.parametrize(
    ("duration_s", "words"),
    [(-1.0, "0.0s"), (0.44, "0.4s"), (59.4, "59s"), (59.6, "1m00s"), (75, "1m15s"), (3599.7, "1h00m"), (4000, "1h06m")],
)
def test_durations(duration_s: float, words: str) -> None:
    assert duration_words(duration_s) == words


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0.0 MiB"), (3_250_586, "3.1 MiB"), (1 << 20, "1.0 MiB"), (3 << 40, "3,145,728.0 MiB")]
)
def test_sizes_that_are_compared_keep_their_unit(size: int, words: str) -> None:
    assert mib(size) == words


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 buckets"), (1, "1 bucket"), (3, "3 buckets"), (1_234, "1,234 buckets")]
)
def test_plurals(count: int, words: str) -> None:
    assert plural(count, "bucket") == words


@given(st.integers(0, 10**14), st.floats(0, 3 * 10**6))
def test_words_stay_short(count: int, duration_s: float) -> None:
    assert len(count_words(count)) <= 6
    assert len(bytes_words(count)) <= 11
    assert len(duration_words(duration_s)) <= 7


@pytest.mark.parametrize(
    ("word", "suggestion"),
    [("batch_sise", "batch_size"), ("bacth", "batch_size"), ("EPOCHS", "epochs"), ("zzz", ""), ("", "")],
)
def test_spelling(word: str, suggestion: str) -> None:
    expected = f'; did you mean "{suggestion}"?' if suggestion else ""
    assert did_you_mean(word, ["epochs", "batch_size", "mode"]) == expected
