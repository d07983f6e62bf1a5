"""Free memory of the heap goes back to the system, and memory in use stays."""

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


def test_free_memory_of_the_heap_is_returned() -> None:
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(512 << 20)}
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=True)
    assert int(found.stdout) >= 60 << 20
