"""The dot interaction of DLRM in bfloat16 on AMX: `interaction_kernels` with products of tiles.

With X the `fields` vectors of a sample, padded with zeros to 32 rows, and U the triangle of gradients (see
`interaction_kernels`), tiles hold 16 x 32 bfloat16:

    Z = X X^T         three of its four 16 x 16 tiles, each a sum of dim / 32 products
    dX = U X + U^T X  dim / 16 columns of two tiles, each a sum of two products

Vectors of embeddings are rounded to bfloat16 here; products are summed in float32. A sample takes about a fifth of the
time that `interaction_kernels` takes at dim 128.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elastichost.arena.compiled import compiled, inlined
from elastichost.arena.rows.lanes import Array, load, store_nearest, transpose, zeros16
from elastichost.arena.rows.tiles import (
    configuration,
    has_tiles,
    pair_words,
    save_tiles,
    tile_load,
    tile_multiply,
    tile_store,
    tile_zero,
    use_tiles,
)
from elastichost.worker.model.interaction_kernels import (
    LANES,
    ROOM,
    aligned_zeros,
    gather,
    interaction_width,
    prefetch_gradients,
    prefetch_vectors,
    scatter,
    with_room,
    write_triangle,
    write_upper,
)

__all__ = ["interact_tiles", "interact_tiles_backward", "suits_tiles", "warm"]

Words = npt.NDArray[np.uint16]
Float32 = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

ROWS = 32  # of X, of which at most `fields` are not zero
LINE = ROWS + LANES  # of U: the overhang of the last vector of a row stays in that row


def suits_tiles(fields: int, dim: int) -> bool:
    """Whether these kernels can be used for this shape, on this CPU."""
    return fields <= ROWS and dim % ROWS == 0 and has_tiles()


@compiled
def interact_tiles(dense: Words, sparse: Array, out: Words, samples: int, fields: int, dim: int, tiles: Bytes) -> None:
    """dense bfloat16 [samples * dim], sparse [samples * (fields - 1) * dim] -> out bfloat16
    [samples * interaction_width + ROOM]. tiles: `configuration()`."""
    saved = np.empty_like(tiles)
    save_tiles(saved)
    use_tiles(tiles)
    half, width = dim // 2, interaction_width(fields, dim)
    doubles = aligned_zeros(ROWS * half)  # pairs of bfloat16
    rows = doubles.view(np.uint16)
    pairs = aligned_zeros(half * ROWS)
    products = aligned_zeros(ROWS * ROWS + ROOM)
    for sample in range(samples):
        prefetch_vectors(sparse, sample + 1, fields, dim)
        gather(dense, sparse, sample, fields, dim, rows)
        for row in range(0, ROWS, LANES):
            for pair in range(0, half, LANES):
                transpose(doubles, row * half + pair, half, pairs, pair * ROWS + row, ROWS, zeros16())
        tile_zero(0)
        tile_zero(1)
        tile_zero(2)
        for step in range(dim // ROWS):
            tile_load(3, rows, step * ROWS, 2 * dim)
            tile_load(4, rows, LANES * dim + step * ROWS, 2 * dim)
            tile_load(5, pairs, step * LANES * ROWS, 4 * ROWS)
            tile_load(6, pairs, step * LANES * ROWS + LANES, 4 * ROWS)
            tile_multiply(0, 3, 5)
            tile_multiply(1, 3, 6)
            tile_multiply(2, 4, 6)
        tile_store(0, products, 0, 4 * ROWS)
        tile_store(1, products, LANES, 4 * ROWS)
        tile_store(2, products, LANES * ROWS + LANES, 4 * ROWS)
        place = sample * width
        for element in range(0, dim, LANES):
            store_nearest(out, place + element, load(rows, element, zeros16()))
        write_triangle(products, ROWS, fields, out, place + dim)
    use_tiles(saved)


@inlined
def _triangles(gradient: Array, start: int, fields: int, upper: Words, lower: Words) -> None:
    """Writes U, and its transpose, from the gradients of all pairs."""
    write_upper(gradient, start, fields, upper, LINE)
    for row in range(0, ROWS, LANES):
        for column in range(0, ROWS, LANES):
            transpose(upper, row * LINE + column, LINE, lower, column * LINE + row, LINE, zeros16())


@inlined
def _products(rows: Words, upper: Words, lower: Words, pairs: Float32, dim: int, sums: Float32) -> None:
    """sums = U X + U^T X, float32 [ROWS * dim]."""
    for pair in range(ROWS // 2):
        for element in range(0, dim, LANES):
            pair_words(rows, 2 * pair * dim + element, (2 * pair + 1) * dim + element, pairs, pair * dim + element)
    tile_load(4, upper, 0, 2 * LINE)
    tile_load(5, upper, LANES * LINE, 2 * LINE)
    tile_load(6, lower, 0, 2 * LINE)
    tile_load(7, lower, LANES * LINE, 2 * LINE)
    for element in range(0, dim, LANES):
        tile_zero(0)
        tile_zero(1)
        tile_load(2, pairs, element, 4 * dim)
        tile_multiply(0, 4, 2)
        tile_multiply(1, 5, 2)
        tile_multiply(0, 6, 2)
        tile_multiply(1, 7, 2)
        tile_store(0, sums, element, 4 * dim)
        tile_store(1, sums, LANES * dim + element, 4 * dim)


@compiled
def interact_tiles_backward(
    dense: Words,
    sparse: Array,
    gradient: Words,
    dense_gradient: Words,
    sparse_gradient: Array,
    samples: int,
    fields: int,
    dim: int,
    tiles: Bytes,
) -> None:
    """Writes the gradients of `interact_tiles`'s inputs, in their shapes and types, from the gradient of its output,
    bfloat16 [samples * interaction_width]."""
    saved = np.empty_like(tiles)
    save_tiles(saved)
    use_tiles(tiles)
    width = interaction_width(fields, dim)
    rows = aligned_zeros(ROWS * dim // 2).view(np.uint16)
    upper, lower = np.zeros(ROWS * LINE, np.uint16), np.zeros(ROWS * LINE, np.uint16)
    pairs, sums = aligned_zeros(LANES * dim), aligned_zeros(ROWS * dim)
    end = np.zeros(width + ROOM, np.uint16)  # the last sample, with room behind it
    for sample in range(samples):
        prefetch_vectors(sparse, sample + 1, fields, dim)
        prefetch_gradients(sparse_gradient, sample + 1, fields, dim)
        gather(dense, sparse, sample, fields, dim, rows)
        source, start = with_room(gradient, sample, samples, width, end)
        _triangles(source, start + dim, fields, upper, lower)
        _products(rows, upper, lower, pairs, dim, sums)
        scatter(sums, source, start, dense_gradient, sparse_gradient, sample, fields, dim)
    use_tiles(saved)


def warm() -> None:
    """Compiles the kernels, or loads them from the cache on disk, on a CPU that has tiles."""
    if not has_tiles():
        return
    dense, out, tiles = np.zeros(ROWS, np.uint16), np.zeros(ROWS + 1 + ROOM, np.uint16), configuration()
    for sparse in (np.zeros(ROWS, np.float32), np.zeros(ROWS, np.uint16)):
        interact_tiles(dense, sparse, out, 1, 2, ROWS, tiles)
        interact_tiles_backward(dense, sparse, out, dense, sparse.copy(), 1, 2, ROWS, tiles)
