"""The cases: files on the disk, and the same files behind a server that is slow in several ways."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.reader import sample_files
from elastichost.chaos.faults.source_server import SourceServer
from elastichost.datasets.settings import CRITEO_CATEGORICAL, CRITEO_DENSE, CRITEO_LABEL, DataSettings
from elastichost.wire.facts import Cache

__all__ = ["CASES", "Case", "case_settings", "opened_case", "served_case", "write_files", "write_parquet"]

GROUP_ROWS = 16_384


@dataclass(frozen=True, slots=True)
class Case:
    """A file and how it is reached. file: name in the folder. bytes_per_s, latency_s: of each connection,
    link_bytes_per_s of all; jitter_s: requests wait longer by up to this time. All 0: the file is on the disk. is_cold:
    its pages are dropped before each pass. cache: the arms may keep what they read, and are measured from the second
    pass on."""

    name: str
    file: str
    bytes_per_s: float = 0.0
    latency_s: float = 0.0
    link_bytes_per_s: float = 0.0
    jitter_s: float = 0.0
    is_cold: bool = False
    cache: Cache = "none"

    @property
    def is_remote(self) -> bool:
        return bool(self.bytes_per_s or self.link_bytes_per_s)


CASES = (
    Case("parquet", "criteo.parquet"),
    Case("parquet, cold", "criteo.parquet", is_cold=True),
    Case("strings and lists", "clicks.parquet"),
    Case("criteo tsv", "criteo.tsv"),
    Case("remote, capped per connection", "criteo.parquet", bytes_per_s=2e6, latency_s=0.01),
    Case("remote, capped per link", "criteo.parquet", bytes_per_s=2e6, latency_s=0.01, link_bytes_per_s=6e6),
    Case("remote csv.gz", "criteo.csv.gz", bytes_per_s=4e6, latency_s=0.01),
    Case("remote criteo tsv", "criteo.tsv", bytes_per_s=4e6, latency_s=0.01),
    Case("remote, jitter", "criteo.parquet", bytes_per_s=2e6, latency_s=0.01, jitter_s=0.15),
    Case("remote, cached second epoch", "criteo.parquet", latency_s=0.01, link_bytes_per_s=6e6, cache="disk"),
)


def write_files(folder: Path, rows: int) -> None:
    """Writes the files of all cases."""
    table = write_parquet(folder, rows)
    sample_files.write_text(table, folder / "criteo.tsv", delimiter="\t", header=False)
    sample_files.write_text(table, folder / "criteo.csv", delimiter=",", header=True)
    with (folder / "criteo.csv").open("rb") as plain, gzip.open(folder / "criteo.csv.gz", "wb", 1) as packed:
        shutil.copyfileobj(plain, packed)
    sample_files.write_clicks(folder / "clicks.parquet", rows, 6)


def write_parquet(folder: Path, rows: int) -> pa.Table:
    """Writes the file of the first case. Returns its rows."""
    table = sample_files.criteo_table(rows, 5)
    pq.write_table(table, folder / "criteo.parquet", row_group_size=GROUP_ROWS)
    return table


@contextmanager
def opened_case(case: Case, folder: Path) -> Iterator[DataSettings]:
    """The settings to read the case with; its server runs meanwhile."""
    path = folder / case.file
    if not case.is_remote:
        yield case_settings(case, str(path))
        return
    with served_case(case, folder) as (_, settings):
        yield settings


@contextmanager
def served_case(case: Case, folder: Path) -> Iterator[tuple[SourceServer, DataSettings]]:
    """The server of a remote case, and the settings to read it with."""
    limits = (case.bytes_per_s, case.latency_s, case.link_bytes_per_s, case.jitter_s)
    with SourceServer(folder, *limits) as server:
        yield server, case_settings(case, server.url(case.file))


def case_settings(case: Case, path: str) -> DataSettings:
    """The settings to read the file of a case with, at this path or address."""
    is_clicks = case.file.startswith("clicks")
    dense = sample_files.CLICK_DENSE if is_clicks else CRITEO_DENSE
    categorical = sample_files.CLICK_CATEGORICAL if is_clicks else CRITEO_CATEGORICAL
    formats = {".tsv": "criteo_tsv", ".gz": "csv", ".parquet": "parquet"}
    return DataSettings(
        split="train",
        patterns=(path,),
        format=formats[Path(case.file).suffix],
        labels=("label",) if is_clicks else (CRITEO_LABEL,),
        dense=dense,
        categorical=categorical,
        text_unit_lines=GROUP_ROWS,
    )
