"""The job file of elastichost's runs in a benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.workload.shape import DENSE_COLUMNS, ModelName, Shape

__all__ = ["JobSettings", "Precision", "job_text"]

Precision = Literal["float32", "bfloat16"]

ENDLESS_EPOCHS = 1_000_000
NEVER_S = 1e6


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The settings that differ between elastichost's runs. `fused` None: the default of the job file."""

    model: ModelName
    shape: Shape
    batch_size: int
    access: Literal["direct", "served"]
    workers: int
    fused: bool | None
    precision: Precision = "float32"


def job_text(settings: JobSettings, parquet: Path) -> str:
    """The job file: endless, without checkpoints or test data, and without hang detection, because arms are stopped."""
    shape = settings.shape
    fused = "" if settings.fused is None else f"fused = {str(settings.fused).lower()}\n"
    layers = (
        f"args = {{ bottom = {list(shape.bottom)}, top = {list(shape.top)} }}\n" if settings.model == "dlrm" else ""
    )
    dense, categorical = (", ".join(f'"{column}"' for column in columns) for columns in (DENSE_COLUMNS, shape.columns))
    return f"""\
[job]
name = "benchmark"

[model]
build = "elastichost.models:{settings.model}"
{layers}{fused}
[data]
train = ["{parquet}"]
label = "label"
dense = [{dense}]
categorical = [{categorical}]

[tables.default]
dim = {shape.dim}
rows = {shape.rows}

[train]
epochs = {ENDLESS_EPOCHS}
batch_size = {settings.batch_size}
access = "{settings.access}"
precision = "{settings.precision}"
optimizer_rows = {{ name = "rowwise_adagrad", lr = 0.1 }}
optimizer_dense = {{ name = "adam", lr = 1e-3 }}

[tuner]
mode = "off"
[resources]
workers = {settings.workers}
servers = 1

[checkpoint]
every_s = 0

[supervision]
hang_timeout_s = {NEVER_S}
start_timeout_s = {NEVER_S}
"""
