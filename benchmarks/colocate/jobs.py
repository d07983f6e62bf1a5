"""The small jobs of the benchmark: their shapes, their files, and how they are mixed. All constants of jobs are here.

Four kinds, three shapes of each, and many jobs of a shape that differ in their seed:

    input      a small model whose one reader has a connection of a stated rate (`data.remote`), as RMixer's jobs had
               one single-threaded reader: it waits for its input most of the time, and leaves the cores to others
    embedding  26 tables of 64 floats a row, hardly any dense part, big batches
    dense      few tables, wide layers
    balanced   examples/synthetic.toml, smaller

The rate is each reader's, and every worker has a reader. So the file of an input job says `resources.workers = 1`, and
no arm may have more, "sequential tuned" neither: with more connections such a job would be faster alone as well, and
what is measured here is what one connection leaves unused.

Data is the built-in synthetic one, made while it is read: 1 to 2 CPU microseconds a sample, of 15 to 120 that a sample
of the other kinds takes in all. Its bytes are those of its arrays.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

__all__ = [
    "FULL",
    "KINDS",
    "MIXES",
    "QUICK",
    "SHAPES",
    "Job",
    "Kind",
    "MixName",
    "Shape",
    "Size",
    "job_of",
    "job_text",
    "jobs_of",
    "rate_bytes_per_s",
    "write_job",
]

Kind = Literal["input", "embedding", "dense", "balanced"]
MixName = Literal["input_bound", "embedding_bound", "dense_bound", "balanced"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MIXES: Mapping[MixName, tuple[Kind, ...]] = {
    "input_bound": ("input",),
    "embedding_bound": ("embedding",),
    "dense_bound": ("dense",),
    "balanced": KINDS,
}
TEST_SAMPLES = 20_000  # an AUC of so many is known to 0.004; a job's AUCs in two arms are of the same ones
ORDER_SEED = 5  # of the queue: every arm gets the same jobs in the same, shuffled order
FIXED_S = 1.0  # of a job alone: to start, to be judged and to be saved
LEAST_BATCHES = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """One variant of a kind. model, args: the build function of `elastichost.models` and, as TOML, its arguments.
    samples_per_s: alone on two cores (of a 2.x GHz server) as shipped, from which the number of samples follows; of an
    input job exactly what its reader gets. data_seed: all jobs of a shape learn the same data, so that what their AUCs
    differ by is chance."""

    name: str
    kind: Kind
    model: str
    args: str
    tables: int
    table_rows: int
    dim: int
    dense: int
    batch_size: int
    samples_per_s: float
    data_seed: int


SHAPES: tuple[Shape, ...] = (
    Shape("input-a", "input", "dlrm", "bottom = [16, 8], top = [16, 1]", 8, 10_000, 8, 8, 128, 1_500, 11),
    Shape("input-b", "input", "dlrm", "bottom = [32, 16], top = [32, 1]", 12, 20_000, 16, 13, 128, 2_500, 12),
    Shape("input-c", "input", "wide_deep", "hidden = [32]", 16, 10_000, 8, 4, 256, 4_000, 13),
    Shape("embedding-a", "embedding", "wide_deep", "hidden = [8]", 26, 20_000, 64, 1, 4_096, 70_000, 21),
    Shape("embedding-b", "embedding", "wide_deep", "hidden = [8]", 26, 10_000, 64, 1, 2_048, 70_000, 22),
    Shape("embedding-c", "embedding", "wide_deep", "hidden = [16]", 26, 15_000, 64, 2, 8_192, 45_000, 23),
    Shape(
        "dense-a", "dense", "dlrm", "bottom = [512, 256, 64], top = [512, 256, 1]", 4, 10_000, 64, 13, 512, 30_000, 31
    ),
    Shape("dense-b", "dense", "wide_deep", "hidden = [1024, 512, 64]", 6, 10_000, 32, 64, 512, 15_000, 32),
    Shape(
        "dense-c", "dense", "dlrm", "bottom = [768, 256, 32], top = [256, 128, 1]", 3, 20_000, 32, 32, 1_024, 35_000, 33
    ),
    Shape("balanced-a", "balanced", "dlrm", "bottom = [64, 16], top = [64, 1]", 26, 20_000, 16, 13, 512, 70_000, 41),
    Shape("balanced-b", "balanced", "dlrm", "bottom = [64, 16], top = [64, 1]", 20, 40_000, 16, 13, 1_024, 90_000, 42),
    Shape("balanced-c", "balanced", "deepfm", "hidden = [64, 32]", 16, 20_000, 16, 8, 512, 75_000, 43),
)


@dataclass(frozen=True, slots=True)
class Size:
    """How long jobs are meant to take alone as shipped, and how many there are of a mix."""

    name: Literal["full", "quick"]
    jobs: int
    alone_s: Mapping[Kind, float]


FULL = Size("full", 24, {"input": 10.0, "embedding": 6.5, "dense": 6.5, "balanced": 6.5})
QUICK = Size("quick", 8, {"input": 5.0, "embedding": 4.0, "dense": 4.0, "balanced": 4.0})


@dataclass(frozen=True, slots=True)
class Job:
    """samples: of one epoch."""

    name: str
    shape: Shape
    seed: int
    samples: int


def job_of(shape: Shape, number: int, size: Size) -> Job:
    """number: among the jobs of its shape, from 1."""
    samples = round(shape.samples_per_s * (size.alone_s[shape.kind] - FIXED_S))
    return Job(f"{shape.name}-{number}", shape, number, max(samples, LEAST_BATCHES * shape.batch_size))


def jobs_of(mix: MixName, count: int, size: Size) -> tuple[Job, ...]:
    """As many of each kind, and of each shape, as can be; in the order of the queue. Raises ValueError for none."""
    if count < 1:
        raise ValueError(f"a mix of {count} jobs is none")
    kinds, jobs = MIXES[mix], list[Job]()
    for index in range(count):
        turn, kind = divmod(index, len(kinds))
        shapes = [shape for shape in SHAPES if shape.kind == kinds[kind]]
        jobs.append(job_of(shapes[turn % len(shapes)], turn // len(shapes) + 1, size))
    random.Random(ORDER_SEED).shuffle(jobs)
    return tuple(jobs)


def rate_bytes_per_s(shape: Shape) -> int:
    """That brings `samples_per_s`: a sample's arrays are float32 dense values and a label, and for each table an int64
    id and the int32 length of its list."""
    return round(shape.samples_per_s * (4 * shape.dense + 4 + 12 * shape.tables))


def job_text(job: Job, workers: int | None = None, *, on_gpu: bool = False) -> str:
    """The job file. workers: of a static plan; None: as shipped, where only input jobs say how many. on_gpu: its dense
    part computes on a GPU, with one worker: as many as there are cores learn less from a short job, asynchronously, and
    each would cut the memory of the GPU in smaller parts."""
    shape = job.shape
    remote = f"\n[data.remote]\nbytes_per_s = {rate_bytes_per_s(shape)}\n" if shape.kind == "input" else ""
    fixed = 1 if shape.kind == "input" or on_gpu else workers
    asked = [f"workers = {fixed}\n"] if fixed is not None else []
    asked += ["gpus = 1\n"] if on_gpu else []
    resources = f"\n[resources]\n{''.join(asked)}" if asked else ""
    tuner = '\n[tuner]\nmode = "off"\n' if workers is not None else ""
    return f"""\
[job]
name = "{job.name}"
seed = {job.seed}

[model]
build = "elastichost.models:{shape.model}"
args = {{ {shape.args} }}

[data]
format = "synthetic"

[data.synthetic]
rows = {job.samples}
test_rows = {TEST_SAMPLES}
tables = {shape.tables}
table_rows = {shape.table_rows}
dense = {shape.dense}
seed = {shape.data_seed}
{remote}
[tables.default]
dim = {shape.dim}
rows = {shape.table_rows}

[train]
batch_size = {shape.batch_size}
optimizer_rows = {{ name = "rowwise_adagrad", lr = 0.05 }}
optimizer_dense = {{ name = "adam", lr = 1e-3 }}
{resources}{tuner}"""


def write_job(folder: Path, job: Job, workers: int | None = None, *, on_gpu: bool = False) -> Path:
    """`folder` is there."""
    path = folder / f"{job.name}.toml"
    path.write_text(job_text(job, workers, on_gpu=on_gpu), encoding="utf-8")
    return path
