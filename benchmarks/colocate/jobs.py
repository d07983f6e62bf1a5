"""The small jobs of the benchmark: their shapes, their files, their mixes, and all their constants.

There are five kinds, three shapes of each kind, and many jobs of each shape, which differ in their seed:

    input      a small model; its reader has one connection of a fixed rate (`data.remote`), as RMixer's jobs had one
               single-threaded reader; it waits for its input most of the time and leaves the cores idle
    embedding  26 tables of 64 floats a row, a tiny dense part, large batches
    dense      few tables, wide layers
    balanced   a smaller form of examples/synthetic.toml
    disk       a small model whose samples are large; all disk jobs of a batch read from one source of a fixed rate, as
               from one disk (`shared_source`), and one of them alone is as fast as all of them together

In the disk-bound mix half of the jobs are disk jobs and half dense jobs, and the memory is limited: jobs that only wait
for each other hold memory that jobs which compute could use.

The rate is that of one reader, and every worker has a reader. Therefore the file of an input job sets
`resources.workers = 1`, and no arm may have more workers, including "sequential tuned". With more connections an input
job would be faster alone too, but the benchmark measures the resources that one connection leaves unused.

The data is synthetic and is generated while it is read: 1 to 2 CPU microseconds a sample, of 15 to 120 in total for a
sample of the other kinds. The bytes of a sample are the bytes of its arrays.
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
    "LONG",
    "MEMORY",
    "MIXES",
    "QUICK",
    "SHAPES",
    "SOURCE_BYTES_PER_S",
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

Kind = Literal["input", "embedding", "dense", "balanced", "disk"]
MixName = Literal["input_bound", "embedding_bound", "dense_bound", "balanced", "disk_bound"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MIXES: Mapping[MixName, tuple[Kind, ...]] = {
    "input_bound": ("input",),
    "embedding_bound": ("embedding",),
    "dense_bound": ("dense",),
    "balanced": ("input", "embedding", "dense", "balanced"),
    "disk_bound": ("disk", "dense"),
}
MEMORY: Mapping[MixName, str] = {"disk_bound": "750MiB"}  # of all jobs together; of other mixes: the default
SOURCE_BYTES_PER_S = 8e6  # of all disk jobs together
TEST_SAMPLES = 20_000  # gives an AUC with an error of 0.004; the AUCs of a job in two arms use the same samples
ORDER_SEED = 5  # of the queue: every arm gets the same jobs in the same shuffled order
FIXED_S = 1.0  # time of a job alone for its start, evaluation and last checkpoint
LEAST_BATCHES = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """One variant of a kind. model, args: the build function of `elastichost.models` and, as TOML, its arguments.
    samples_per_s: speed alone as shipped, on two cores of a 2.x GHz server; the number of samples is computed from it.
    For an input job it is the exact rate of its reader, for a disk job that of the source. data_seed: all jobs of a
    shape learn the same data, so that
    differences between their AUCs are chance."""

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
    Shape("disk-a", "disk", "dlrm", "bottom = [32, 16], top = [16, 1]", 8, 20_000, 16, 8, 128, 2_000, 51),
    Shape("disk-b", "disk", "wide_deep", "hidden = [32]", 12, 20_000, 16, 4, 128, 4_000, 52),
    Shape("disk-c", "disk", "dlrm", "bottom = [32, 16], top = [16, 1]", 6, 30_000, 16, 8, 64, 1_000, 53),
)


@dataclass(frozen=True, slots=True)
class Size:
    """The intended duration of a job alone as shipped, and the number of jobs in a mix."""

    name: Literal["full", "quick", "long", "fidelity"]
    jobs: int
    alone_s: Mapping[Kind, float]


FULL = Size("full", 24, {"input": 10.0, "embedding": 6.5, "dense": 6.5, "balanced": 6.5, "disk": 6.5})
QUICK = Size("quick", 8, {"input": 5.0, "embedding": 4.0, "dense": 4.0, "balanced": 4.0, "disk": 4.0})
LONG = Size("long", 12, dict.fromkeys(KINDS, 65.0))  # more than a minute each, as real jobs would


@dataclass(frozen=True, slots=True)
class Job:
    """One job. samples: in its one epoch."""

    name: str
    shape: Shape
    seed: int
    samples: int


def job_of(shape: Shape, number: int, size: Size) -> Job:
    """A job of a shape. number: among the jobs of that shape, from 1."""
    samples = round(shape.samples_per_s * (size.alone_s[shape.kind] - FIXED_S))
    return Job(f"{shape.name}-{number}", shape, number, max(samples, LEAST_BATCHES * shape.batch_size))


def jobs_of(mix: MixName, count: int, size: Size) -> tuple[Job, ...]:
    """The jobs of a mix in the order of the queue, with equal numbers of each kind and shape as far as possible. Raises
    ValueError for a count below 1."""
    if count < 1:
        raise ValueError(f"a mix needs at least 1 job, not {count}")
    kinds, jobs = MIXES[mix], list[Job]()
    for index in range(count):
        turn, kind = divmod(index, len(kinds))
        shapes = [shape for shape in SHAPES if shape.kind == kinds[kind]]
        jobs.append(job_of(shapes[turn % len(shapes)], turn // len(shapes) + 1, size))
    random.Random(ORDER_SEED).shuffle(jobs)
    return tuple(jobs)


def rate_bytes_per_s(shape: Shape) -> int:
    """The byte rate that gives `samples_per_s`. The arrays of a sample are float32 dense values, a float32 label and,
    for each table, an int64 id and the int32 length of its list."""
    return round(shape.samples_per_s * (4 * shape.dense + 4 + 12 * shape.tables))


def job_text(job: Job, workers: int | None = None, *, on_gpu: bool = False) -> str:
    """The text of the job file. workers: of a static plan; None for a plan as shipped, where only input jobs set the
    number of workers. on_gpu: the dense part computes on a GPU with one worker. With one worker for each core, a short
    asynchronous job learns less, and each worker would get a smaller part of the GPU's memory."""
    shape = job.shape
    rate = f"\n[data.remote]\nbytes_per_s = {rate_bytes_per_s(shape)}\n"
    one = "\n[data.input]\nconnections = 1\n"  # as RMixer's readers
    remote = rate + one if shape.kind == "input" else ""
    fixed = 1 if shape.kind in ("input", "disk") or on_gpu else workers
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
{_source(shape)}
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


def _source(shape: Shape) -> str:
    """The lines of [data] that name the reader. A custom reader implies no columns, so its job names the generated
    ones."""
    if shape.kind != "disk":
        return 'format = "synthetic"\n'
    dense = ", ".join(f'"d{index}"' for index in range(shape.dense))
    categorical = ", ".join(f'"c{index}"' for index in range(shape.tables))
    size = round(SOURCE_BYTES_PER_S / shape.samples_per_s)
    return f"""\
format = "benchmarks.colocate.shared_reader:SharedReader"
train = ["{size}.bytes"]
test = ["test"]
label = "label"
dense = [{dense}]
categorical = [{categorical}]
"""


def write_job(folder: Path, job: Job, workers: int | None = None, *, on_gpu: bool = False) -> Path:
    """Writes the job file into `folder`, which must exist."""
    path = folder / f"{job.name}.toml"
    path.write_text(job_text(job, workers, on_gpu=on_gpu), encoding="utf-8")
    return path
