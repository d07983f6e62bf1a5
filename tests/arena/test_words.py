"""The instructions that order a publication, in machine code for ARM, where plain stores and loads are not ordered."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
import pytest

from elastichost.arena.dense.kernels import copy_half
from elastichost.arena.index import table as index
from elastichost.arena.words import announce, load_word

ARM = "aarch64-unknown-linux-gnu"
BARRIER, STORE_RELEASE, LOAD_ACQUIRE = "dmb", "stlr", "ldar"
STORE, LOAD = re.compile(r"^st(r|p|ur)"), re.compile(r"^ld(r|p|ur)")
Kernel = Callable[..., Any]


def arm_instructions(kernel: Kernel, *arguments: object) -> list[str]:
    """The names of the instructions of a kernel that is compiled for these arguments, in order."""
    fresh = numba.njit(nogil=True, error_model="numpy")(kernel.py_func)  # type: ignore[attr-defined]
    fresh(*arguments)
    (text,) = fresh.inspect_llvm().values()
    # Removes the parts that are only valid for this machine: its name, and the function that Python calls.
    text = re.sub(r"^target .*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\ndefine [^\n]*@(?!_ZN(?!7cpython))[^\n]*\{\n.*?\n\}\n", "\n", text, flags=re.DOTALL)
    for name in set(re.findall(r"@(NRT_\w+)\(", text)):
        if not re.search(rf"^declare .*@{name}\(", text, re.MULTILINE):
            text += f"\ndeclare void @{name}(ptr)\n"
    module = llvm.parse_assembly(text)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(ARM).create_target_machine(opt=2)
    module.triple, module.data_layout = ARM, str(machine.target_data)
    body = max(
        re.findall(r"^_ZN[^\n]*:\n(.*?)^\.Lfunc_end", machine.emit_assembly(module), re.MULTILINE | re.DOTALL), key=len
    )
    return [line.split()[0] for line in body.splitlines() if line.startswith("\t") and not line.startswith("\t.")]


@pytest.fixture
def words() -> np.ndarray:
    return np.zeros(64, np.int64)


def test_a_publication_comes_after_all_before_it_and_before_all_after_it(words: np.ndarray) -> None:
    found = arm_instructions(announce, words, 3, 7)
    ordered = [name for name in found if name in (BARRIER, STORE_RELEASE)]
    assert ordered == [BARRIER, STORE_RELEASE, BARRIER]


def test_a_published_word_is_read_before_all_that_follows(words: np.ndarray) -> None:
    assert arm_instructions(load_word, words, 3).count(LOAD_ACQUIRE) == 1


def test_a_slot_is_published_after_its_key_and_its_row_is_named_first(words: np.ndarray) -> None:
    """`publish_rows` stores INTENT, the value of a slot and INTENT again, each with release order. The key is stored
    after the first of them."""
    keys, rows = np.zeros(1, np.int64), np.zeros(1, np.int64)
    control, seen = np.zeros(16, np.int64), np.zeros(1, np.uint32)
    control[index.GENERATION] = 1 << index.CAPACITY_BITS | 16
    found = arm_instructions(index.publish_rows, words, control, 0, 0, 32, 16, 63, 0, keys, rows, seen, 1)
    assert found.count(STORE_RELEASE) == 3
    first, second, _ = (at for at, name in enumerate(found) if name == STORE_RELEASE)
    assert any(STORE.match(name) for name in found[first:second]), "plain stores of the key and of `seen`"


def test_a_reader_of_an_index_loads_values_before_keys_and_the_generation_again(words: np.ndarray) -> None:
    keys, out, control = np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(16, np.int64)
    control[index.GENERATION] = 1 << index.CAPACITY_BITS | 16
    found = arm_instructions(index.lookup_dynamic, words, control, 0, 0, 32, 16, 63, 0, keys, out)
    assert found.count(LOAD_ACQUIRE) >= 5, "generation, value, key, value again, generation again"


def test_a_copy_of_the_dense_vector_ends_before_the_check_whether_it_was_overwritten(words: np.ndarray) -> None:
    half, out = np.zeros(40, np.float32), np.zeros(40, np.float32)
    found = arm_instructions(copy_half, words, words, half, out, 0)
    barrier = found.index(BARRIER)
    assert LOAD_ACQUIRE in found[:barrier] and LOAD_ACQUIRE in found[barrier:]
    assert [name for name in found[barrier:] if LOAD.match(name)] == [], "no load of the vector after the fence"
