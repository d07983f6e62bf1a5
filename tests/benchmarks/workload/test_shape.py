"""Shapes: their layers, and how they are written on the command line."""

from __future__ import annotations

import pytest

from benchmarks.workload.shape import SHAPES, SMALL, Shape, parse_shape


def test_a_shape_is_parsed_and_what_is_not_named_is_as_in_the_small_one() -> None:
    found = parse_shape("dim=96 batch=1024 bottom=384-96 top=768-384-1 tables=13 rows=5000 ids=3")
    assert found == Shape(96, (384, 96), (768, 384, 1), tables=13, rows=5000, ids=3, batch_size=1024)
    assert parse_shape("") == SMALL
    assert parse_shape("rows=7") == Shape(rows=7)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("depth=3", "'depth=3' is not a size of a shape"),
        ("dim", "'dim' is not a size of a shape"),
        ("dim=many", "sizes are whole numbers"),
        ("rows=0", "a size is one number of at least 1"),
        ("dim=16-32", "a size is one number of at least 1"),
        ("dim=32", "bottom must end in dim \\(32\\), not in 16"),
        ("top=64-2", "top needs at least two layers, and must end in 1"),
        ("top=1", "top needs at least two layers, and must end in 1"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_shape(text)


def test_layers_of_mlperfs_net() -> None:
    layers = list(SHAPES["mlperf"].layers())
    assert layers[:3] == [(13, 512, False), (512, 256, True), (256, 128, True)]
    assert layers[3:] == [(479, 1024, True), (1024, 1024, True), (1024, 512, True), (512, 256, True), (256, 1, True)]
    products = sum(
        (3 if has_input_gradient else 2) * 2 * inputs * outputs for inputs, outputs, has_input_gradient in layers
    )
    assert 14.1e6 < products < 14.2e6, "floating-point operations of a sample"
