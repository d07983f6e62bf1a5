"""Compiles every kernel of `elastichost.gpu` for an H100, which needs no GPU, and prints one line for each.

    python -m tests.gpu.compile_kernels

Triton's interpreter runs what its compiler refuses: a test in the interpreter does not show that a kernel compiles.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from elastichost.gpu.row_updates import KeyFormat, chunk_lookups

__all__ = ["main"]

MODULES = ("bag_kernels", "row_updates", "interaction_kernels", "dense_kernels", "dense_updates")
INLINED = {"_load_vectors", "_round"}  # parts of other kernels
TARGET = GPUTarget("cuda", 90, 32)
WIDTHS = (4, 16, 64, 256)
INTEGERS, FLOATS, NARROW = "*i64", "*fp32", "*bf16"


class Variant(NamedTuple):
    """A kernel with the types of its arguments and the values of its constants."""

    module: str
    kernel: str
    types: Mapping[str, str]
    constants: Mapping[str, Any]
    warps: int = 4


def _variants() -> Iterator[Variant]:
    for width in WIDTHS:
        yield from _of_rows(width)
    yield from _of_interaction()
    for has_relu in (True, False):
        types = dict.fromkeys(("gradient", "output", "masked"), NARROW) | {"sums": FLOATS}
        sizes = dict.fromkeys(("rows", "columns", "stride"), "i32")
        constants = {"HAS_RELU": has_relu, "ROWS": 128, "COLUMNS": 64}
        yield Variant("dense_kernels", "_mask_and_sum", types | sizes, constants)
    yield from _of_dense_updates()


def _of_rows(width: int) -> Iterator[Variant]:
    from elastichost.gpu.bag_kernels import bags_per_program

    ids = {"values": "*i32", "offsets": "*i32"}
    pool = {"rows_address": "i64", "entries": INTEGERS, "output": NARROW} | ids
    yield Variant("bag_kernels", "_pool_bags", pool, {"BAGS": bags_per_program(width), "WIDTH": width})
    for keys in (KeyFormat.of(26, 1_000_000), KeyFormat.of(26, 1 << 40)):
        key = "*i32" if keys.dtype == torch.int32 else INTEGERS
        lists = {"keys": key, "places": INTEGERS, "scales": FLOATS}
        bits = {"ROW_BITS": keys.row_bits}
        listed = dict.fromkeys(("entries", "embeddings", "firsts"), INTEGERS) | ids | lists
        yield Variant("bag_kernels", "_list_lookups", listed, {"BAGS": 64} | bits)
        sizes = {"LOOKUPS": chunk_lookups(width), "WIDTH": width, "NO_LOOKUP": keys.none}
        sums = {"sums": FLOATS, "parts": FLOATS, "capacity": "i32"}
        for gradients, is_exact in ((NARROW, True), (FLOATS, False)):
            summed = {"tables": INTEGERS, "order": INTEGERS, "gradients": gradients} | lists | sums
            yield Variant("row_updates", "_sum_chunks", summed, sizes | bits | {"IS_EXACT": is_exact})
        yield Variant("row_updates", "_add_parts", {"keys": key} | sums, sizes)
        applied = {"rows_address": "i64", "state_address": "i64", "tables": INTEGERS, "rates": FLOATS, "keys": key}
        applied |= {"rate_scale": FLOATS, "is_refused": "*i32", "sums": FLOATS, "capacity": "i32", "embeddings": "i32"}
        for has_adagrad, has_rowwise in ((False, True), (True, True), (False, False)):
            which = {"HAS_ADAGRAD": has_adagrad, "HAS_ROWWISE": has_rowwise}
            yield Variant("row_updates", "_apply", applied, which | sizes | bits)


def _of_interaction() -> Iterator[Variant]:
    from elastichost.gpu.interaction_kernels import constants_of

    for dtype, kind in ((torch.bfloat16, NARROW), (torch.float32, FLOATS)):
        for fields, dim in ((26, 16), (40, 32), (8, 128)):
            constants = constants_of(fields, dim, dtype)
            warps = constants.pop("num_warps")
            constants["IN_FLOAT32"] = False
            types = dict.fromkeys(("dense", "sparse", "output"), kind) | {"samples": "i32"}
            yield Variant("interaction_kernels", "_interact", types, constants, warps)
            of_gradients = dict.fromkeys(("gradient", "dense_gradient", "sparse_gradient"), kind)
            backward = types | of_gradients | {"stride": "i32"}
            yield Variant("interaction_kernels", "_interact_backward", backward, constants, warps)


def _of_dense_updates() -> Iterator[Variant]:
    flag = {"is_refused": "*i32"}
    for kind in (NARROW, FLOATS):
        values = {"values": kind, "flag": "*i32", "count": "i32"}
        yield Variant("dense_updates", "_flag_non_finite", values, {"BLOCK": 4096})
    factors = {"step": INTEGERS, "factors": FLOATS, "beta1": "*fp64", "beta2": "*fp64"} | flag
    for is_adam in (True, False):
        yield Variant("dense_updates", "_advance", factors, {"IS_ADAM": is_adam})
    numbers = dict.fromkeys(("rate", "first_decay", "second_decay", "eps", "weight_decay"), "fp32")
    vectors = dict.fromkeys(("parameters", "state", "gradients", "factors", "rate_scale"), FLOATS)
    types = vectors | numbers | flag | {"low": NARROW, "count": "i32"}
    for optimizer, is_decoupled in ((0, False), (1, False), (2, False), (2, True)):
        which = {"OPTIMIZER": optimizer, "IS_DECOUPLED": is_decoupled}
        constants = which | {"HAS_LOW": True, "BLOCK": 1024}
        yield Variant("dense_updates", "_update", types, constants)
    copied = {"source": FLOATS, "address": "i64", "count": "i32"}
    yield Variant("dense_updates", "_copy_to_address", copied, {"BLOCK": 1024})
    yield Variant("dense_updates", "_report", {"loss": FLOATS, "address": "i64"} | flag, {})


def main() -> int:
    """Compiles all variants. Returns 1 if one fails, or if a kernel has no variant."""
    loaded = {name: importlib.import_module(f"elastichost.gpu.{name}") for name in MODULES}
    known = {
        (name, attribute)
        for name, module in loaded.items()
        for attribute, value in vars(module).items()
        if isinstance(value, triton.JITFunction) and value.__module__ == module.__name__
    }
    failures, seen = 0, set()
    for variant in _variants():
        kernel = getattr(loaded[variant.module], variant.kernel)
        seen.add((variant.module, variant.kernel))
        names = kernel.arg_names
        signature = {name: "constexpr" if name in variant.constants else variant.types[name] for name in names}
        constants = {(names.index(name),): value for name, value in variant.constants.items()}
        try:
            triton.compile(ASTSource(kernel, signature, constants), target=TARGET, options={"num_warps": variant.warps})
        except Exception as error:  # noqa: BLE001 - whatever the compiler raises is the finding
            failures += 1
            print(f"failed {variant.kernel} {dict(variant.constants)}: {error!r:.200}")
        else:
            print(f"ok {variant.kernel} {dict(variant.constants)}")
    forgotten = {one for one in known - seen if one[1] not in INLINED}
    for module, kernel in sorted(forgotten):
        print(f"no variant of {module}.{kernel}")
    return 1 if failures or forgotten else 0


if __name__ == "__main__":
    sys.exit(main())
