"""tf.data with AUTOTUNE over the same Parquet files, in a Python of its own that has tensorflow and pyarrow.

    PYTHON -m benchmarks.input.tfdata SETTINGS      as JSON; prints samples/s

A parallel map reads row groups (over as many connections as AUTOTUNE starts calls), and `prefetch` holds batches ahead.
Strings become their numbers in the dictionary of their row group, which is less work than our hashes. This module
imports nothing of elastichost.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["has_tensorflow", "measure_tfdata"]

ROOT = Path(__file__).parents[2]
START_LIMIT_S = 120.0


def has_tensorflow(python: str) -> bool:
    """Whether this Python can import what the arm needs."""
    command = [python, "-c", "import tensorflow, pyarrow"]
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=START_LIMIT_S).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def measure_tfdata(python: str, settings: Mapping[str, object], limit_s: float) -> float:
    """Samples/s that the consumer takes. Raises CalledProcessError and TimeoutExpired."""
    command = [python, "-m", "benchmarks.input.tfdata", json.dumps(dict(settings))]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=START_LIMIT_S + limit_s
    )
    return float(done.stdout.splitlines()[-1])


# --- in the other Python ----------------------------------------------------------------------------------------------


class _RangeFile(io.RawIOBase):
    """A file at a URL of which one range was fetched; the footer is fetched when it is read."""

    def __init__(self, url: str) -> None:
        self._url, self._at = url, 0
        self._held: tuple[int, bytes] = (0, b"")
        self._size = int(self._get(0, 1)[1])

    def _get(self, start: int, stop: int) -> tuple[bytes, str]:
        request = urllib.request.Request(self._url, headers={"Range": f"bytes={start}-{stop - 1}"})
        with urllib.request.urlopen(request) as answer:
            return answer.read(), answer.headers["Content-Range"].rpartition("/")[2]

    def hold(self, start: int, stop: int) -> None:
        self._held = (start, self._get(start, stop)[0])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        stop = self._size if size < 0 else min(self._size, self._at + size)
        start, held = self._held
        inside = start <= self._at and stop <= start + len(held)
        found = held[self._at - start : stop - start] if inside else self._get(self._at, stop)[0]
        self._at += len(found)
        return found


def _columns_of(path: str, group: int, given: Mapping[str, Any]) -> list[Any]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    source: Any = path
    names = [*given["labels"], *given["dense"], *given["categorical"]]
    if path.startswith("http"):
        source = _RangeFile(path)
        facts = pq.ParquetFile(source).metadata.row_group(group)
        chunks = [facts.column(number) for number in range(facts.num_columns)]
        starts = [c.dictionary_page_offset or c.data_page_offset for c in chunks]
        source.hold(min(starts), max(s + c.total_compressed_size for s, c in zip(starts, chunks, strict=True)))
    table = pq.ParquetFile(source).read_row_group(group, columns=names, use_threads=False)
    label = table[given["labels"][0]].to_numpy().astype(np.float32)
    dense = [np.nan_to_num(table[name].to_numpy().astype(np.float32)) for name in given["dense"]]
    ids = []
    for name in given["categorical"]:
        column = table[name].combine_chunks()
        column = column.values if pa.types.is_list(column.type) else column
        codes = column.dictionary_encode().indices if pa.types.is_string(column.type) else column
        if pa.types.is_large_string(column.type):
            codes = column.dictionary_encode().indices
        ids.append(np.asarray(codes.fill_null(0), dtype=np.int64)[: len(label)])
    return [label, np.stack(dense, axis=1), np.stack(ids, axis=1)]


def main() -> None:
    """Measures, and prints the speed."""
    import numpy as np
    import pyarrow.parquet as pq
    import tensorflow as tf

    given = json.loads(sys.argv[1])
    path, rate = given["path"], float(given["samples_per_s"])
    groups = pq.ParquetFile(_RangeFile(path) if path.startswith("http") else path).num_row_groups

    def read(group: Any) -> Any:
        types = [tf.float32, tf.float32, tf.int64]
        return tf.numpy_function(lambda number: _columns_of(path, int(number), given), [group], types)

    def shaped(label: Any, dense: Any, ids: Any) -> Any:
        label.set_shape([None])
        dense.set_shape([None, len(given["dense"])])
        ids.set_shape([None, len(given["categorical"])])
        return label, dense, ids

    found = tf.data.Dataset.range(groups).repeat()
    found = found.map(read, num_parallel_calls=tf.data.AUTOTUNE).map(shaped)
    size = given["batch_size"]
    found = found.flat_map(lambda *group: tf.data.Dataset.from_tensor_slices(group).batch(size))
    batches = iter(found.prefetch(tf.data.AUTOTUNE))
    samples, free_s, began_s = 0, 0.0, time.perf_counter()
    for counts_s in (given["tune_s"], given["window_s"]):
        samples, began_s = 0, time.perf_counter()
        while (now_s := time.perf_counter()) < began_s + counts_s:
            if free_s > now_s:
                time.sleep(min(free_s, began_s + counts_s) - now_s)
                continue
            taken = int(np.shape(next(batches)[0])[0])
            samples += taken
            free_s = max(free_s, time.perf_counter()) + taken / rate
    print(samples / (time.perf_counter() - began_s))


if __name__ == "__main__":
    main()
