"""The arena on operating systems with larger pages: other tests of this folder run in a process with another page size.

A layout for pages of 16 or 64 KiB is also a valid layout for pages of 4 KiB, so this runs on a machine with 4 KiB.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
TESTS = (
    *("test_arena_layout.py", "test_arena_arena.py", "test_arena_index.py", "test_crafted_ids.py"),
    *("tables/test_growth.py", "test_memory_board.py", "recovery/test_staging.py"),
)
# These tests have numbers for pages of 4 KiB, or they start their own processes.
LEFT_OUT = (
    "fixed_bytes_count_rows or growth_is_spread_over or pages_count_whole or index_that_may_not_grow or "
    "sightings_never_outgrow or outgrown_generations or killed_writers or slow_reader_looks"
)
PROGRAM = """
import mmap, sys
mmap.PAGESIZE = int(sys.argv[1])
import pytest
from elastichost.arena import layout
from elastichost.arena.index import table as index
from elastichost.host import machine
assert machine.PAGE_BYTES == mmap.PAGESIZE and index.MIN_CAPACITY * layout.SLOT_BYTES == mmap.PAGESIZE
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-k", f"not ({sys.argv[2]})", *sys.argv[3:]]))
"""


@pytest.mark.thorough
@pytest.mark.parametrize("page_bytes", [16_384, 65_536])
def test_the_arena_tests_pass_with_larger_pages(page_bytes: int) -> None:
    files = [str(FOLDER / name) for name in TESTS]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(page_bytes), LEFT_OUT, *files],
        capture_output=True,
        text=True,
        cwd=FOLDER.parents[1],
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) > 50
