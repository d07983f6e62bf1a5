"""How far blocks extend the heap; free memory of it goes back to the system, and memory in use stays."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import ctypes
import os
from elastichost.worker.heap import release_free_heap
from elastichost.host.process_meter import anonymous_bytes

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
blocks = []
for _ in range(64):
    address = libc.malloc(1 << 20)
    ctypes.memset(address, 7, 1 << 20)
    blocks.append(address)
for address in blocks[:-1]:  # the last block keeps the heap from shrinking by itself
    libc.free(address)
before = anonymous_bytes(os.getpid())
release_free_heap()
after = anonymous_bytes(os.getpid())
assert ctypes.string_at(blocks[-1], 4) == b"\\x07" * 4
print(before - after)
"""


EXTENT = """
import os
from elastichost.worker.heap import heap_extent
from elastichost.host.process_meter import anonymous_bytes

MB = 1 << 20
heap_extent([(0, 100), (0, 0)])
before = anonymous_bytes(os.getpid())
two = heap_extent([(0, 20 * MB), (1, 20 * MB), (0, 0), (2, 20 * MB), (1, 0), (2, 0)])
grown = anonymous_bytes(os.getpid()) - before
print(two // MB, heap_extent([(0, 40 * MB), (0, 0)]), heap_extent([(0, 1 * MB), (0, 0), (1, 1 * MB)]) // MB, grown)
"""


def test_blocks_extend_the_heap_by_more_than_exist_at_a_time_and_take_no_memory() -> None:
    """Two of 20 MiB exist at a time. A block of 40 MiB has memory of its own."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(512 << 20)}
    found = subprocess.run([sys.executable, "-c", EXTENT], capture_output=True, text=True, env=environment, check=True)
    two, large, after_each_other, grown = map(int, found.stdout.split())
    assert 40 < two <= 200
    assert large == 0 and 1 <= after_each_other <= 4
    assert grown < 2 << 20


def test_free_memory_of_the_heap_is_returned() -> None:
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(512 << 20)}
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=True)
    assert int(found.stdout) >= 60 << 20
