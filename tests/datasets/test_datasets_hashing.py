"""XXH64 against the published vectors, the reference library, and every Arrow layout of strings."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.datasets.kernels.hashing import hash_arrow_strings, hash_bytes
from tests.effort import examples

from .conftest import hash_string

PUBLISHED = [
    (b"", 0xEF46DB3751D8E999),
    (b"a", 0xD24EC4F1A98C6E5B),
    (b"abc", 0x44BC2CF5AD770999),
    (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
]


@pytest.mark.parametrize(("text", "expected"), PUBLISHED)
def test_published_vectors(text: bytes, expected: int) -> None:
    assert hash_bytes(text) % 2**64 == expected


@given(st.binary(max_size=200))
def test_equals_the_reference_library(text: bytes) -> None:
    assert hash_bytes(text) % 2**64 == xxhash.xxh64_intdigest(text)


def test_a_key_is_the_hash_as_a_signed_integer() -> None:
    assert hash_string("a") == 0xD24EC4F1A98C6E5B - 2**64


@settings(max_examples=examples(50))
@given(st.lists(st.one_of(st.none(), st.text(max_size=40)), max_size=20), st.integers(0, 5))
def test_every_arrow_layout_gives_the_same_keys(values: list[str | None], cut: int) -> None:
    expected = [0 if value is None else hash_string(value) for value in values[cut:]]
    valid = np.array([value is not None for value in values[cut:]], dtype=bool)
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        keys = hash_arrow_strings(pa.array(values, type=kind).slice(cut))
        assert keys.dtype == np.int64
        assert np.where(valid, keys, 0).tolist() == expected
