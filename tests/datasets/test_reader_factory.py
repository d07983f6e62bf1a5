"""Opening readers: what is imported, other files, custom readers; and the optional retail data."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from elastichost.config.job import JobSpec
from elastichost.datasets import open_reader
from elastichost.datasets.api import Reader
from elastichost.datasets.preflight import check_data
from elastichost.datasets.reader import UnitReader
from elastichost.datasets.reader_factory import make_decoder
from elastichost.datasets.settings import data_settings
from elastichost.errors import DataError

from .conftest import load, write_parquet

COLUMNS = 'label = "y"\ndense = ["x"]\ncategorical = ["c"]\n'


def test_importing_the_package_loads_neither_pyarrow_nor_numba() -> None:
    code = (
        "import sys, elastichost.datasets, elastichost.datasets.api\n"
        "print([name for name in ('torch', 'pyarrow', 'numba') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_reading_loads_no_torch() -> None:
    code = (
        "import sys, elastichost.datasets.preflight, elastichost.datasets.text.convert\n"
        "print([name for name in ('torch', 'torchrec', 'zmq') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_other_files_replace_those_of_a_split(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train.parquet", {"y": [0], "x": [1.0], "c": [1]})
    other = write_parquet(tmp_path / "other.parquet", {"x": [1.0, 2.0], "c": [1, 2]})
    job = load(tmp_path, f'train = ["train.parquet"]\n{COLUMNS}')
    reader = open_reader(job, "test", files=[str(other)], labels_required=False)
    assert reader.describe().samples == 2
    with pytest.raises(DataError, match=r"data\.test: names no file"):
        open_reader(job, "test").describe()


class OwnReader:
    """A custom reader as a user writes it: it wraps a built-in one."""

    def __init__(self, job: JobSpec, split: str) -> None:
        data = job.data.model_copy(update={"format": "parquet"})
        self._reader: Reader = open_reader(
            job.model_copy(update={"data": data}), "train" if split == "train" else "test"
        )
        self.describe = self._reader.describe
        self.batches = self._reader.batches


def test_a_custom_reader(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train.parquet", {"y": [0], "x": [1.0], "c": [1]})
    job = load(tmp_path, f'format = "{__name__}:OwnReader"\ntrain = ["train.parquet"]\n{COLUMNS}')
    reader = open_reader(job, "train")
    assert isinstance(reader, OwnReader)
    assert check_data(job).train.samples == 1


class OwnUnits(UnitReader):
    """A custom reader of units, as a user writes it."""

    def __init__(self, job: JobSpec, split: str) -> None:
        decoder = make_decoder(replace(data_settings(job, "train" if split == "train" else "test"), format="parquet"))
        assert decoder is not None
        super().__init__(decoder)


def test_a_custom_reader_is_given_the_files_of_the_run(tmp_path: Path) -> None:
    write_parquet(tmp_path / "b.parquet", {"y": [0], "x": [1.0], "c": [1]})
    job = load(tmp_path, f'format = "{__name__}:OwnUnits"\ntrain = ["*.parquet"]\n{COLUMNS}')
    files = check_data(job).files
    assert [one.path for one in files.train] == [str(tmp_path / "b.parquet")]
    write_parquet(tmp_path / "a.parquet", {"y": [0], "x": [1.0], "c": [1]})
    assert open_reader(job, "train").describe().samples == 2
    assert open_reader(job, "train", pinned=files).describe().files == (str(tmp_path / "b.parquet"),)


@pytest.mark.parametrize(
    ("file_format", "message"),
    [("no_such_package.at_all:Reader", "cannot be imported"), ("json:NoSuchReader", "has no reader 'NoSuchReader'")],
)
def test_a_custom_reader_that_cannot_be_loaded(tmp_path: Path, file_format: str, message: str) -> None:
    job = load(tmp_path, f'format = "{file_format}"\ntrain = ["a"]\n{COLUMNS}')
    with pytest.raises(DataError, match=message):
        open_reader(job, "train")
    with pytest.raises(DataError, match=message):
        check_data(job)


class FailingReader:
    """A custom reader whose constructor raises an error."""

    def __init__(self, job: JobSpec, split: str) -> None:
        raise KeyError(f"no {split} here")


def test_an_error_of_a_custom_reader_names_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = load(tmp_path, f'format = "{__name__}:FailingReader"\ntrain = ["a"]\n{COLUMNS}')
    with pytest.raises(DataError, match="KeyError: 'no train here'") as raised:
        open_reader(job, "train")
    assert f"correct {__file__}, line " in raised.value.hint
    (tmp_path / "failing_reader_module.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    job = load(tmp_path, f'format = "failing_reader_module:Reader"\ntrain = ["a"]\n{COLUMNS}')
    with pytest.raises(DataError, match="ZeroDivisionError"):
        open_reader(job, "train")


RETAIL = Path(
    os.environ.get(
        "ELASTICHOST_RETAIL_DIR", str(Path(__file__).resolve().parents[2].parent / "shared" / "data" / "retail_ctr")
    )
)


@pytest.mark.skipif(
    not (RETAIL / "train.parquet").exists(),
    reason="no retail data: set ELASTICHOST_RETAIL_DIR to a folder with train.parquet and test.parquet",
)
def test_retail_data(tmp_path: Path) -> None:
    job = load(
        tmp_path,
        f'train = ["{RETAIL}/train.parquet"]\ntest = ["{RETAIL}/test.parquet"]\nlabel = "label"\n'
        'dense = ["log_price", "log_popularity", "log_history"]\n'
        'categorical = ["customer", "item", "country", "word", "hour", "weekday", "price_bucket", "recent_items"]',
    )
    check = check_data(job)
    assert check.test is not None
    assert check.warnings == ()
    assert check.train.multi_valued == ("recent_items",)
    assert check.train.key_kinds["item"] == check.train.key_kinds["recent_items"] == "string"
    reader = open_reader(job, "test")
    description = reader.describe()
    unit = description.units[-1]
    batches = list(reader.batches(unit, 0, unit.samples, 512))
    assert sum(batch.size for batch in batches) == unit.samples
    assert np.isfinite(np.concatenate([batch.dense for batch in batches])).all()
    assert all(batch.lengths[: 7 * batch.size].all() for batch in batches)


def test_a_custom_reader_is_found_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by the program `elastichost`, on whose search path the working directory is not."""
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    source = "class Reader:\n    def __init__(self, job, split): ...\n"
    (tmp_path / "reader_in_working_directory.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    job = load(tmp_path, f'format = "reader_in_working_directory:Reader"\ntrain = ["a"]\n{COLUMNS}')
    assert type(open_reader(job, "train")).__name__ == "Reader"
    assert str(tmp_path) not in sys.path
