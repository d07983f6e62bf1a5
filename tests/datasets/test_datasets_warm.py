"""After `warm_kernels`, reading compiles nothing; and `warm_kernels` starts no thread."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from .conftest import criteo_line, write_parquet

CODE = """
import os, sys
import numpy, numba, pyarrow, pyarrow.parquet
from elastichost.datasets.kernels import hashing
from elastichost.datasets.kernels import ragged
from elastichost.datasets.text import criteo_kernel
from elastichost.datasets.synthetic import kernel as synthetic_kernel
from elastichost.datasets.warm import warm_kernels

def signatures():
    modules = (criteo_kernel, hashing, ragged, synthetic_kernel)
    kernels = [kernel for module in modules for kernel in vars(module).values() if hasattr(kernel, "signatures")]
    return sorted((kernel.py_func.__name__, str(kernel.signatures)) for kernel in kernels)

threads = len(os.listdir("/proc/self/task"))
warm_kernels()
print(len(os.listdir("/proc/self/task")) - threads)
warmed = signatures()
from pathlib import Path
from elastichost.config.job import load_job
from elastichost.datasets import open_reader
for name in sys.argv[1:]:
    reader = open_reader(load_job(Path(name)), "train")
    for unit in reader.describe().units:
        for seed in (None, 1):
            for _ in reader.batches(unit, 0, unit.samples, 4, seed):
                pass
print([new for new in signatures() if new not in warmed])
"""


def test_reading_after_warming_compiles_nothing(tmp_path: Path) -> None:
    words = [["a", None], None, ["b"], []]
    write_parquet(tmp_path / "a.parquet", {"y": [0, 1, 0, 1], "x": np.zeros(4), "c": ["a", None, "b", "c"], "l": words})
    (tmp_path / "a.tsv").write_text("\n".join([criteo_line(), criteo_line(categories="")]))
    model = '[model]\nbuild = "elastichost.models:dlrm"\n[data]\n'
    jobs = {
        "parquet": 'train = ["a.parquet"]\nlabel = "y"\ndense = ["x"]\ncategorical = ["c", "l"]',
        "criteo": 'train = ["a.tsv"]\nformat = "criteo_tsv"',
        "synthetic": 'format = "synthetic"\n[data.synthetic]\nrows = 5\nmulti_valued = 2',
    }
    for name, data in jobs.items():
        (tmp_path / f"{name}.toml").write_text(model + data)
    paths = [str(tmp_path / f"{name}.toml") for name in jobs]
    environ = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, "-c", CODE, *paths], capture_output=True, text=True, check=False, env=environ
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["0", "[]"]
