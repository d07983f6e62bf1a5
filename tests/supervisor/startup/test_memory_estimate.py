"""Facts about a job for its memory estimate: its model, from a separate process, and the ids of its first samples."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastichost.arena.host import stale_arenas
from elastichost.config.job import JobSpec, load_job
from elastichost.config.tables import resolve_tables
from elastichost.datasets import open_reader
from elastichost.supervisor.startup.data_sample import DataSample, sample_data
from elastichost.supervisor.startup.memory_estimate import estimate_memory, memory_facts
from elastichost.supervisor.startup.preflight import preflight
from elastichost.tuner.memory.peak_memory import MemoryEstimate
from elastichost.tuner.memory.peak_memory_facts import BESIDE, EMULATED, EMULATED_BESIDE, JobMemoryFacts
from tests.supervisor import heavy_reader
from tests.system.test_run import zygote

LIMIT_S = 120.0
SYNTHETIC = """
[model]
build = "{build}"
[data]
{data}
[data.synthetic]
rows = {samples}
test_rows = 5000
tables = 4
table_rows = {id_range}
[tables.default]
dim = 8
rows = {rows}
{table}
[train]
batch_size = 256
access = "{access}"
[tuner]
mode = "off"
[resources]
workers = 2
servers = 1
"""
MODELS = """
import torch
from torch import nn
from torchrec import EmbeddingBagCollection


class Fails(nn.Module):
    def __init__(self, tables):
        super().__init__()
        self.rows = EmbeddingBagCollection(tables=list(tables))
        self.layer = nn.Linear(32, 1)

    def forward(self, dense, sparse):
        raise ValueError("not of this data")


def fails(tables, num_dense):
    return Fails(tables)


KEPT = bytearray(b"1") * 30_000_000


def heavy(tables, num_dense):
    from elastichost.models import dlrm

    return dlrm(tables, num_dense)


def nothing(tables, num_dense):
    raise RuntimeError("cannot be built")
"""


HEAVY = f"""format = "{heavy_reader.__name__}:heavy_reader"
train = ["a-name"]
test = ["another"]
label = "label"
dense = {json.dumps([f"d{number}" for number in range(13)])}
categorical = ["c0", "c1", "c2", "c3"]"""


def text_of(**settings: Any) -> str:
    """A job file with these settings."""
    facts = {
        "build": "elastichost.models:dlrm",
        "data": 'format = "synthetic"',
        "samples": 20_000,
        "id_range": 10_000,
        "rows": 10_000,
        "access": "direct",
        "table": "",
        **settings,
    }
    return SYNTHETIC.format(**facts)


def write(folder: Path, **settings: Any) -> Path:
    """Writes a job file with these settings. Returns its folder."""
    folder.mkdir()
    (folder / "job.toml").write_text(text_of(**settings))
    return folder


@pytest.fixture(scope="module")
def estimated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with estimates of several jobs, all made by one process."""
    root = tmp_path_factory.mktemp("estimated")
    (root / "models.py").write_text(MODELS)
    folders = [
        write(root / "fixed"),
        write(root / "served", access="served"),
        write(root / "dynamic", rows='"dynamic"', samples=2_000_000, id_range=50_000),
        write(root / "twice", rows='"dynamic"', table="admit_after = 2"),
        write(root / "dropped", rows='"dynamic"', table="evict_after_samples = 4000", id_range=1_000_000),
        write(root / "fails", build=f"{root}/models.py:fails"),
        write(root / "heavy", build=f"{root}/models.py:heavy", data=HEAVY),
        write(root / "nothing", build=f"{root}/models.py:nothing"),
    ]
    child = zygote().fork("tests.supervisor.estimate", [str(folder) for folder in folders])
    _, errors = child.communicate(timeout=LIMIT_S)
    assert child.returncode == 0, errors
    (root / "pid").write_text(str(child.pid))
    return root


@functools.cache
def read(folder: Path) -> tuple[JobMemoryFacts, MemoryEstimate]:
    """The facts and the estimate of a job."""
    return msgspec.json.decode((folder / "estimate.json").read_bytes(), type=tuple[JobMemoryFacts, MemoryEstimate])


def part(estimate: MemoryEstimate, name: str) -> int:
    """Bytes of a part of the estimate."""
    return sum(one.bytes for one in estimate.parts if one.name == name)


def test_the_facts_have_the_model_and_the_memory_of_its_computation(estimated: Path) -> None:
    facts, found = read(estimated / "fixed")
    assert [table.rows for table in facts.model.tables] == [10_000] * 4
    assert facts.model.dense.parameters > 1000
    assert (facts.workers, facts.servers, facts.access, facts.test_samples) == (2, 1, "direct", 5000)
    assert facts.working is not None and facts.working.training and facts.working.scoring
    assert part(found, "rows") == pytest.approx(4 * 10_000 * 8 * 4, abs=20_000)
    assert part(found, "optimizer state") == pytest.approx(4 * 10_000 * 4, abs=20_000)
    assert facts.bases == BESIDE


def test_served_rows_are_staged_and_sent(estimated: Path) -> None:
    (_, direct), (_, served) = read(estimated / "fixed"), read(estimated / "served")
    assert part(served, "pushes") > part(direct, "pushes")
    assert part(served, "PS") > part(direct, "PS")


def test_dynamic_tables_have_the_rows_of_all_the_data(estimated: Path) -> None:
    facts, _ = read(estimated / "dynamic")
    seen = read(estimated / "fixed")[0].ids_per_batch
    assert facts.rows == pytest.approx([50_000] * 4, rel=0.1)  # nearly all ids are among 2,000,000 samples
    assert facts.ids == facts.rows
    assert all(1 < ids < 256 for ids in (*facts.ids_per_batch, *seen))


def test_ids_that_are_admitted_at_their_second_occurrence_get_fewer_rows(estimated: Path) -> None:
    facts, _ = read(estimated / "twice")
    assert all(500 < rows < 0.8 * ids for rows, ids in zip(facts.rows, facts.ids, strict=True))


def test_rows_that_are_evicted_do_not_accumulate(estimated: Path) -> None:
    facts, _ = read(estimated / "dropped")
    assert all(500 < rows < 4400 for rows in facts.rows)  # at most one row for each id of the last 4000 samples


def test_a_model_that_fails_on_the_data_is_estimated_with_a_note(estimated: Path) -> None:
    facts, found = read(estimated / "fails")
    assert facts.working is None and facts.model.dense.parameters == 33
    assert "not of this data" in found.notes[0]
    assert part(found, "activations") > 0


def test_modules_of_the_users_own_reader_and_model_are_counted_in_each_process(estimated: Path) -> None:
    facts, found = read(estimated / "heavy")
    assert facts.own_reader_bytes == pytest.approx(heavy_reader.KEPT_BYTES, rel=0.2)
    assert facts.own_model_bytes == pytest.approx(30_000_000, rel=0.2)
    # the supervisor and two workers import the reader, and the workers the model
    assert part(found, "own reader and model") == 3 * facts.own_reader_bytes + 2 * facts.own_model_bytes
    plain, _ = read(estimated / "fixed")
    assert (plain.own_reader_bytes, plain.own_model_bytes) == (0, 0)


def test_a_model_that_cannot_be_built_fails_with_the_error_of_a_start(estimated: Path) -> None:
    name, error = msgspec.json.decode((estimated / "nothing" / "error.json").read_bytes())
    assert name == "ModelError" and "cannot be built" in error


def test_the_estimate_leaves_no_arena_behind(estimated: Path) -> None:
    pid = int((estimated / "pid").read_text())
    assert not [stale for stale in stale_arenas() if stale.owner.pid == pid]


def test_the_plan_command_prints_the_estimate(estimated: Path) -> None:
    output = msgspec.json.decode((estimated / "fixed" / "plan.json").read_bytes())
    _, beside = read(estimated / "fixed")
    memory = output["memory"]
    parts = {one["name"]: one["bytes"] for one in memory["parts"]}
    assert memory["host_bytes"] == sum(parts.values()) > beside.host_bytes  # a job of its own also has a fork server
    assert parts["rows"] == part(beside, "rows")


# --- without a process ------------------------------------------------------------------------------------------------


def job_of(path: Path, text: str) -> JobSpec:
    """A job with this job file."""
    (path / "job.toml").write_text(text)
    return load_job(path / "job.toml", environ={})


def sampled(job: JobSpec, batch_size: int) -> DataSample:
    """The sample of a job's data."""
    reader = open_reader(job, "train")
    tables = resolve_tables(job, reader.describe().key_kinds)
    return sample_data(reader, tables, job.data.categorical, batch_size)


def test_ids_of_columns_and_batches_are_counted(tmp_path: Path) -> None:
    samples = 6000
    columns = {
        "label": np.zeros(samples, np.int8),
        "one": np.arange(samples) % 100,
        "other": np.arange(samples) % 150,
        "many": pa.array([[f"id{n % 7}", f"id{n % 11}", f"id{n}"][: n % 4] for n in range(samples)]),
    }
    pq.write_table(pa.table(columns), tmp_path / "train.parquet", row_group_size=1000)
    job = job_of(
        tmp_path,
        f"""
[model]
build = "elastichost.models:wide_deep"
[data]
train = ["{tmp_path / "train.parquet"}"]
label = "label"
categorical = ["one", "other", "many"]
[tables.both]
features = ["one", "other"]
rows = 1000
[tables.many]
rows = "dynamic"
""",
    )
    found = sampled(job, 500)
    assert found.samples == samples
    both, many = found.tables
    assert (both.ids, both.per_batch, both.law) == (2.0, 150.0, None)
    assert many.ids == pytest.approx(1.5, rel=0.01)
    assert many.per_batch == len({one for n in range(500) for one in columns["many"][n].as_py()})
    assert many.law is not None
    distinct = len({one for n in range(samples) for one in columns["many"][n].as_py()})
    assert many.law.distinct(many.ids * samples) == pytest.approx(distinct, rel=0.01)
    assert found.ids == pytest.approx(3.5, rel=0.01)


def test_for_fixed_tables_one_batch_is_read(tmp_path: Path) -> None:
    job = job_of(tmp_path, text_of(samples=500_000, id_range=100, rows=100))
    found = sampled(job, 10_000)
    assert found.samples == 10_000
    assert [table.per_batch for table in found.tables] == [100.0] * 4


EMULATION = """
[model]
build = "elastichost.models:dlrm"
[data]
format = "synthetic"
[train]
batch_size = 256
[resources]
workers = 5
servers = 2
[tuner]
mode = "off"
[emulate]
enabled = true
"""


def test_the_estimate_of_an_emulated_job_has_only_its_processes(tmp_path: Path) -> None:
    job = job_of(tmp_path, EMULATION)
    prepared = preflight(job)
    found = estimate_memory(job, prepared)
    processes = EMULATED.fork_server + EMULATED.supervisor + 2 * EMULATED.server + 5 * EMULATED.worker
    assert found.host_bytes == processes
    assert memory_facts(job, prepared, bases=BESIDE).bases == EMULATED_BESIDE
