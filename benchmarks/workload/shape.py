"""The sizes of the models that benchmarks train, and of their data. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal

__all__ = ["DENSE", "DENSE_COLUMNS", "SHAPES", "SMALL", "ModelName", "Shape", "parse_shape"]

ModelName = Literal["dlrm", "wide_deep"]

DENSE = 13
DENSE_COLUMNS = tuple(f"I{number}" for number in range(1, DENSE + 1))
SYNTAX = "dim=96 batch=1024 bottom=384-96 top=768-384-1 tables=26 rows=100000 ids=1"


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a DLRM with 13 numbers a sample. tables: one for each categorical column; each has `rows` rows of
    `dim` elements. ids: of each column and sample; their rows are summed. bottom, top: sizes of the layers below and
    above the interaction. batch_size: samples in a batch of one process."""

    dim: int = 16
    bottom: tuple[int, ...] = (64, 16)
    top: tuple[int, ...] = (64, 1)
    tables: int = 26
    rows: int = 100_000
    ids: int = 1
    batch_size: int = 2048

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the categorical columns."""
        return tuple(f"C{number}" for number in range(1, self.tables + 1))

    @property
    def table_bytes(self) -> int:
        """Bytes of all rows in float32."""
        return 4 * self.tables * self.rows * self.dim

    def layers(self) -> Iterator[tuple[int, int, bool]]:
        """(inputs, outputs, whether a gradient of the inputs is computed) of each linear layer."""
        inputs = DENSE
        for number, outputs in enumerate(self.bottom):
            yield inputs, outputs, number > 0
            inputs = outputs
        inputs = self.dim + self.tables * (self.tables + 1) // 2
        for outputs in self.top:
            yield inputs, outputs, True
            inputs = outputs

    def __str__(self) -> str:
        bottom, top = ("-".join(map(str, sizes)) for sizes in (self.bottom, self.top))
        ids = f" x {self.ids} ids" if self.ids > 1 else ""
        return f"dim {self.dim}, bottom {bottom}, top {top}, {self.tables} tables of {self.rows:,} rows{ids}"


SMALL = Shape()
SHAPES: dict[str, Shape] = {
    "small": SMALL,
    "multi_hot": Shape(dim=32, bottom=(64, 32), top=(256, 64, 1), tables=13, ids=20),
    "large_tables": Shape(dim=32, bottom=(64, 32), tables=8, rows=5_000_000),
    "middle": Shape(dim=64, bottom=(512, 256, 64), top=(512, 256, 1)),
    "mlperf": Shape(dim=128, bottom=(512, 256, 128), top=(1024, 1024, 512, 256, 1)),
}


def parse_shape(text: str) -> Shape:
    """Parses words like "dim=96 batch=1024 bottom=384-96 top=768-384-1". What is not named is as in `SMALL`. Raises
    ValueError for unknown words and for sizes that do not fit together."""
    known = {("batch" if one.name == "batch_size" else one.name): one.name for one in fields(Shape)}
    given: dict[str, int | tuple[int, ...]] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        if name not in known or not equals:
            raise ValueError(f"{word!r} is not a size of a shape: write for instance {SYNTAX!r}")
        try:
            sizes = tuple(int(part) for part in value.split("-"))
        except ValueError:
            raise ValueError(f"{word!r}: sizes are whole numbers, and layers are separated by '-'") from None
        is_list = name in ("bottom", "top")
        if min(sizes) < 1 or (len(sizes) > 1 and not is_list):
            raise ValueError(f"{word!r}: a size is one number of at least 1")
        given[known[name]] = sizes if is_list else sizes[0]
    shape = Shape(**given)  # type: ignore[arg-type]
    if shape.bottom[-1] != shape.dim:
        raise ValueError(f"bottom must end in dim ({shape.dim}), not in {shape.bottom[-1]}")
    if shape.top[-1] != 1 or len(shape.top) < 2:
        raise ValueError("top needs at least two layers, and must end in 1: one label is predicted")
    return shape
