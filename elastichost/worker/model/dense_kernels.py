"""What a dense layer does around its products, in one pass each. Forward: bias and ReLU. With the gradient of its
output: the mask of ReLU, the sum, and for bfloat16 the transpose. With that of its weights: becomes float32.

With y = relu(x W^T + b), g the gradient of y, and m = g where y > 0, else 0 (without ReLU m = g):

    dx = m W        dW = m^T x        db = sum of m over the batch

oneDNN multiplies bfloat16 matrices at full speed when the left one is row by row in memory. m^T as a view is not: the
product then takes 1.6 to 2.6 times as long. So m^T is written while m is computed. Products of float32 take a view of
m as fast. torch's own sum with a bias writes the bias to every row first, and with few inputs takes eight times as long
as the product.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import compiled, inlined, prefetch, prefetch_written
from elastichost.arena.rows.lanes import add, greater, load, mask, store, total, transpose, zeros16

__all__ = ["SPARE", "add_bias", "mask_and_sum", "mask_and_transpose", "warm", "warm_narrow", "widen"]

Words = npt.NDArray[np.uint16]  # bfloat16: the upper half of a float32
Float32 = npt.NDArray[np.float32]

LANES = 16
# Rows of m^T that begin a multiple of 4096 bytes apart would share a few lines of the first-level cache.
SPARE = 32
TILE = 32  # rows and columns of a tile: 32 bfloat16 are one line of the cache
_SIGN = np.uint16(0x7FFF)
_NO_SEED = np.uint64(0)


@inlined
def _masked(gradient: Words, output: Words, position: int, has_relu: bool) -> np.uint16:
    word: np.uint16 = gradient[position]
    return np.uint16(0) if has_relu and output[position] & _SIGN == 0 else word


@inlined
def _add_words(sums: Float32, column: int, words: Words, position: int) -> None:
    """sums[column : column + 16] += the sixteen bfloat16 from `position` on."""
    lanes = load(words, position, zeros16())
    store(sums, column, add(load(sums, column, zeros16()), lanes), _NO_SEED)


@inlined
def _prefetch_tile(
    gradient: Words,
    output: Words,
    masked: Words,
    transposed: Words,
    first_row: int,
    first_column: int,
    columns: int,
    apart: int,
) -> None:
    """Prefetches the lines of a tile. The processor's own prefetcher does not follow so many rows at the same time."""
    for row in range(TILE):
        position = (first_row + row) * columns + first_column
        prefetch(gradient, position)
        prefetch(output, position)
        prefetch_written(masked, position)
        prefetch_written(transposed, (first_column + row) * apart + first_row)


@compiled
def mask_and_transpose(
    gradient: Words,
    output: Words,
    masked: Words,
    transposed: Words,
    sums: Float32,
    rows: int,
    columns: int,
    apart: int,
    has_relu: bool,
) -> None:
    """Writes m, m^T and the sums of the columns of m (see the module).

    gradient, output, masked: bfloat16 [rows * columns]. transposed: bfloat16 [columns * apart]; its rows begin `apart`
    >= `rows` elements apart. sums: float32 [columns]. Without ReLU `output` is not read, and `masked` may be
    `gradient`.
    """
    sums[:columns] = 0
    whole_rows, whole_columns = rows // LANES * LANES, columns // LANES * LANES
    for first_row in range(0, whole_rows, TILE):
        last_row = min(first_row + TILE, whole_rows)
        for first_column in range(0, whole_columns, TILE):
            last_column = min(first_column + TILE, whole_columns)
            _prefetch_tile(gradient, output, masked, transposed, first_row, first_column + TILE, columns, apart)
            if has_relu:
                for row in range(first_row, last_row):
                    for column in range(first_column, last_column, LANES):
                        mask(gradient, output, masked, row * columns + column, zeros16())
            for row in range(first_row, last_row, LANES):
                for column in range(first_column, last_column, LANES):
                    transpose(
                        masked, row * columns + column, columns, transposed, column * apart + row, apart, zeros16()
                    )
            for row in range(first_row, last_row):
                for column in range(first_column, last_column, LANES):
                    _add_words(sums, column, masked, row * columns + column)
    _mask_rest(gradient, output, masked, transposed, rows, columns, apart, has_relu, whole_rows, whole_columns)
    _sum_rest(masked, sums, rows, columns, whole_rows, whole_columns)


@inlined
def _mask_rest(
    gradient: Words,
    output: Words,
    masked: Words,
    transposed: Words,
    rows: int,
    columns: int,
    apart: int,
    has_relu: bool,
    whole_rows: int,
    whole_columns: int,
) -> None:
    """Masks and transposes the rows and columns that fill no vector, and zeros what is between the rows of m^T: oneDNN
    multiplies whole blocks, and reads it."""
    for column in range(columns):
        transposed[column * apart + rows : (column + 1) * apart] = 0
    for row in range(rows):
        for column in range(whole_columns if row < whole_rows else 0, columns):
            word = _masked(gradient, output, row * columns + column, has_relu)
            masked[row * columns + column] = word
            transposed[column * apart + row] = word


@inlined
def _sum_rest(masked: Words, sums: Float32, rows: int, columns: int, whole_rows: int, whole_columns: int) -> None:
    """Adds the rows and columns that fill no vector to the sums."""
    for row in range(whole_rows, rows):
        for column in range(0, whole_columns, LANES):
            _add_words(sums, column, masked, row * columns + column)
    value = np.zeros(LANES, np.float32)
    word = np.zeros(LANES, np.uint16)
    for column in range(whole_columns, columns):
        for row in range(rows):
            word[0] = masked[row * columns + column]
            store(value, 0, load(word, 0, zeros16()), _NO_SEED)
            sums[column] += value[0]


@compiled
def add_bias(products: Float32, bias: Float32, rows: int, columns: int, has_relu: bool) -> None:
    """Makes y of the products x W^T, in place. products: float32 [rows * columns]. bias: float32 [columns]."""
    whole = columns // LANES * LANES
    for row in range(rows):
        first = row * columns
        for column in range(0, whole, LANES):
            lanes = add(load(products, first + column, zeros16()), load(bias, column, zeros16()))
            store(products, first + column, greater(lanes, zeros16()) if has_relu else lanes, _NO_SEED)
        for column in range(whole, columns):
            value = products[first + column] + bias[column]
            products[first + column] = np.float32(0) if has_relu and value < 0 else value


@compiled
def mask_and_sum(
    gradient: Float32, output: Float32, masked: Float32, sums: Float32, rows: int, columns: int, has_relu: bool
) -> None:
    """Writes m and the sums of the columns of m (see the module).

    gradient, output, masked: float32 [rows * columns]. sums: float32 [columns]. Without ReLU `output` and `masked` are
    not accessed: m is `gradient`.
    """
    sums[:columns] = 0
    whole = columns // LANES * LANES
    for row in range(rows):
        first = row * columns
        for column in range(0, whole, LANES):
            if has_relu:
                mask(gradient, output, masked, first + column, zeros16())
            lanes = load(masked if has_relu else gradient, first + column, zeros16())
            store(sums, column, add(load(sums, column, zeros16()), lanes), _NO_SEED)
        for column in range(whole, columns):
            value = gradient[first + column]
            if has_relu:
                value = np.float32(0) if output[first + column] == 0 else value
                masked[first + column] = value
            sums[column] += value


@compiled
def widen(words: Words, values: Float32) -> np.float32:
    """Writes bfloat16 [n] as float32 [n], and returns their sum: it is finite only if no element is NaN or infinite,
    but a sum of finite elements may overflow."""
    count = len(words)
    whole = count // LANES * LANES
    sums = zeros16()
    for position in range(0, whole, LANES):
        lanes = load(words, position, zeros16())
        store(values, position, lanes, _NO_SEED)
        sums = add(sums, lanes)
    if whole < count:
        rest, wide = np.zeros(LANES, np.uint16), np.zeros(LANES, np.float32)
        rest[: count - whole] = words[whole:]
        lanes = load(rest, 0, zeros16())
        store(wide, 0, lanes, _NO_SEED)
        values[whole:count] = wide[: count - whole]
        sums = add(sums, lanes)
    return total(sums)


def warm() -> None:
    """Compiles the kernel of float32 layers, or loads it from the cache on disk."""
    values = np.zeros(1, np.float32)
    add_bias(values, values, 1, 1, True)
    mask_and_sum(values, values, values, values, 1, 1, True)


def warm_narrow() -> None:
    """As `warm`, for layers that compute in bfloat16."""
    words, sums = np.zeros(1, np.uint16), np.zeros(1, np.float32)
    mask_and_transpose(words, words, words, words, sums, 1, 1, 1, True)
    widen(words, sums)
