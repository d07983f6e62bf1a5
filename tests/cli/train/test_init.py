"""`init` as a user calls it: the job file it prints is valid and trains unedited, and says what it could not use."""

from __future__ import annotations

import gzip
import random
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastichost.config.job import load_job
from elastichost.datasets import open_reader
from tests.cli.conftest import Elastichost
from tests.datasets.conftest import all_batches
from tests.datasets.sources.s3_server import S3Server, s3_environment, store

__all__ = ["s3_environment", "store"]

ROWS = 1200


def columns() -> dict[str, list[object]]:
    draw = random.Random(5)
    items = [f"A{number:04}" for number in range(300)]
    return {
        "order": [f"O{number:07}" for number in range(ROWS)],
        "clicked": [draw.randrange(2) for _ in range(ROWS)],
        "user": [draw.randrange(10**4, 10**4 + 600) for _ in range(ROWS)],
        "item": [draw.choice(items) for _ in range(ROWS)],
        "zip": [f"{draw.randrange(3000):05}" for _ in range(ROWS)],
        "cents": [int(draw.paretovariate(0.8) * 100) for _ in range(ROWS)],
        "seen": [draw.sample(items, draw.randrange(4)) for _ in range(ROWS)],
    }


def write_csv(path: Path, delimiter: str = ",") -> None:
    made = columns()
    lines = [delimiter.join(made)]
    for row in zip(*made.values(), strict=True):
        lines.append(delimiter.join("|".join(one) if isinstance(one, list) else str(one) for one in row))
    path.write_text("\n".join(lines) + "\n")


def test_a_csv_file(elastichost: Elastichost, tmp_path: Path) -> None:
    write_csv(tmp_path / "clicks.csv", ";")
    outcome = elastichost("init", "clicks.csv", "--label", "clicked")
    assert outcome.code == 0, outcome.stderr
    (tmp_path / "job.toml").write_text(outcome.stdout)
    data = load_job(tmp_path / "job.toml").data
    assert data.train == (str(tmp_path / "clicks.csv"),)
    assert (data.format, data.label, data.csv.delimiter) == ("csv", "clicked", ";")
    assert data.test_fraction == 0.1
    assert (data.dense, data.dense_transform) == (("cents",), "log1p")
    assert data.categorical == ("user", "item", "zip", "seen")
    assert data.csv.types == {"user": "int", "seen": "list[string]"}
    assert tomllib.loads(outcome.stdout)["tables"]["item"]["features"] == ["item", "seen"]
    assert "#   order    left out: nearly every row has its own value" in outcome.stdout
    assert "1,080 samples, and 120 to test with" in outcome.stderr


def test_a_csv_file_with_decimal_commas(elastichost: Elastichost, tmp_path: Path) -> None:
    lines = ["clicked;user;amount"] + [f"{row % 2};{row % 90};{row * 7 % 500},{row % 100:02}" for row in range(ROWS)]
    (tmp_path / "claims.csv").write_text("\n".join(lines) + "\n")
    outcome = elastichost("init", "claims.csv", "--label", "clicked")
    assert outcome.code == 0, outcome.stderr
    (tmp_path / "job.toml").write_text(outcome.stdout)
    data = load_job(tmp_path / "job.toml").data
    assert (data.csv.delimiter, data.csv.decimal, data.dense) == (";", ",", ("amount",))


def test_rows_that_a_run_would_stop_at_are_said(elastichost: Elastichost, tmp_path: Path) -> None:
    write_csv(tmp_path / "clicks.csv")
    header, *rows = (tmp_path / "clicks.csv").read_text().splitlines()
    lines = [header, *rows * 20]
    lines[20_000:20_000] = ["1,2,3"]  # behind the rows that are checked before every start
    (tmp_path / "clicks.csv").write_text("\n".join(lines) + "\n")
    outcome = elastichost("init", "clicks.csv", "--label", "clicked")
    assert outcome.code == 0
    assert "warning: 1 row left out, and a run would stop there:" in outcome.stderr
    assert "line 20001" in outcome.stderr and 'data.bad_rows = "skip"' in outcome.stderr


def test_a_parquet_file_with_test_data(elastichost: Elastichost, tmp_path: Path) -> None:
    for name in ("clicks.parquet", "later.parquet"):
        pq.write_table(pa.table(columns()), tmp_path / name)
    outcome = elastichost("init", "clicks.parquet", "--label", "clicked", "--test", "later.parquet")
    assert outcome.code == 0, outcome.stderr
    (tmp_path / "job.toml").write_text(outcome.stdout)
    data = load_job(tmp_path / "job.toml").data
    assert (data.format, data.test) == ("parquet", (str(tmp_path / "later.parquet"),))
    assert data.csv.types == {}


@pytest.mark.parametrize("kind", ["csv", "csv.gz"])
def test_a_file_in_a_store(
    elastichost: Elastichost, tmp_path: Path, store: S3Server, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("ELASTICHOST_CACHE", str(tmp_path / "cache"))
    write_csv(tmp_path / "clicks.csv")
    text = (tmp_path / "clicks.csv").read_bytes()
    store.put(f"day/train.{kind}", gzip.compress(text) if kind == "csv.gz" else text)
    url = store.url(f"day/train.{kind}")
    outcome = elastichost("init", url, "--label", "clicked")
    assert outcome.code == 0, outcome.stderr
    (tmp_path / "job.toml").write_text(outcome.stdout)
    job = load_job(tmp_path / "job.toml")
    assert (job.data.train, job.job.name) == ((url,), "day")
    assert job.data.categorical == ("user", "item", "zip", "seen")
    assert "1,080 samples, and 120 to test with" in outcome.stderr


def test_words_for_true_and_false_are_a_label_and_ids(elastichost: Elastichost, tmp_path: Path) -> None:
    rows = [(bool(number % 2), number, number % 3 == 0, 0.5 * number) for number in range(40)]
    (tmp_path / "clicks.csv").write_text(
        "clicked,user_id,is_new,x\n" + "".join(f"{a},{b},{c},{d}\n" for a, b, c, d in rows)
    )
    outcome = elastichost("init", "clicks.csv", "--label", "clicked")
    assert outcome.code == 0, outcome.stderr
    (tmp_path / "job.toml").write_text(outcome.stdout)
    data = load_job(tmp_path / "job.toml").data
    assert (data.label, data.categorical, data.csv.types) == ("clicked", ("user_id", "is_new"), {"user_id": "int"})


def test_the_numbers_of_rows_that_pandas_writes_are_left_out(elastichost: Elastichost, tmp_path: Path) -> None:
    """Their column has no name, and a job file names columns."""
    rows = "".join(f"{number},{number % 2},{number % 7},{0.5 * number}\n" for number in range(40))
    (tmp_path / "clicks.csv").write_text(f",clicked,user,x\n{rows}")
    outcome = elastichost("init", "clicks.csv", "--label", "clicked")
    assert outcome.code == 0, outcome.stderr
    assert '#   ""       left out: has no name' in outcome.stdout
    assert "36 samples, and 4 to test with" in outcome.stderr
    (tmp_path / "job.toml").write_text(outcome.stdout)
    data = load_job(tmp_path / "job.toml").data
    assert (data.categorical, data.dense) == (("user",), ("x",))
    assert "its columns: clicked, user, x" in elastichost("init", "clicks.csv").stderr


def test_a_criteo_file_needs_no_label(elastichost: Elastichost, tmp_path: Path) -> None:
    line = "\t".join(["1"] + ["2"] * 13 + ["68fd1e64"] * 26)
    (tmp_path / "day_0").write_text(f"{line}\n" * 50)
    outcome = elastichost("init", "day_0")
    assert outcome.code == 0, outcome.stderr
    assert 'format = "criteo_tsv"' in outcome.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("clicks.csv",), "add --label COLUMN; its columns: order, clicked, user"),
        (("clicks.csv", "--label", "click"), 'did you mean "clicked"'),
        (("clicks.csv", "--label", "user"), "columns with 0 and 1: clicked"),
        (("click.csv", "--label", "clicked"), 'did you mean "clicks.csv"'),
        (("clicks.csv", "--label", "clicked", "--test", "none.csv"), "none.csv: no such file"),
        (("dense.csv", "--label", "y"), "no column holds ids"),
    ],
)
def test_what_cannot_be_used_is_said(
    elastichost: Elastichost, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    write_csv(tmp_path / "clicks.csv")
    (tmp_path / "dense.csv").write_text("y,x\n1,0.5\n0,1.5\n")
    outcome = elastichost("init", *arguments)
    assert outcome.code != 0
    assert said in outcome.stderr
    assert outcome.stdout == ""


@pytest.mark.parametrize(
    ("file", "name"), [("Klicks März.csv", "klicks-m-rz"), ("ü.csv", "job"), ("a" * 70 + ".csv", "a" * 64)]
)
def test_the_name_of_a_job_is_one_that_a_job_file_may_have(
    elastichost: Elastichost, tmp_path: Path, file: str, name: str
) -> None:
    write_csv(tmp_path / file)
    outcome = elastichost("init", file, "--label", "clicked")
    assert outcome.code == 0, outcome.stderr
    (tmp_path / "job.toml").write_text(outcome.stdout)
    assert load_job(tmp_path / "job.toml").job.name == name


def test_columns_as_databases_and_programs_write_them(elastichost: Elastichost, tmp_path: Path) -> None:
    """Missing numbers as words, ids with a fraction, times as numbers, a row's own number, a column named default."""
    draw = random.Random(6)
    lines = ["row,user_id,default,age,timestamp,clicked,item,seen"]
    for row in range(ROWS):
        user = f"{draw.randrange(500)}.0" if draw.random() < 0.9 else ""
        age = draw.choice(["NA", "31.5", "40"])
        items = [str(draw.randrange(10**6, 10**6 + 300)) for _ in range(3)]
        second = 1_700_000_000 + 61 * row
        lines.append(
            f"{row},{user},{draw.choice('yn')},{age},{second},{draw.randrange(2)},{items[0]},{'|'.join(items)}"
        )
    (tmp_path / "clicks.csv").write_text("\n".join(lines) + "\n")
    outcome = elastichost("init", "clicks.csv", "--label", "clicked")
    assert outcome.code == 0, outcome.stderr
    (tmp_path / "job.toml").write_text(outcome.stdout)
    job = load_job(tmp_path / "job.toml")
    assert (job.data.dense, job.data.categorical) == (("age",), ("user_id", "default", "item", "seen"))
    assert job.data.csv.types == {"user_id": "int", "item": "int", "seen": "list[int]"}
    assert job.tables["item"].features == ("item", "seen")
    assert "#   row        left out: nearly every row has its own value" in outcome.stdout
    assert "#   timestamp  left out: is a time" in outcome.stdout
    batch = next(iter(all_batches(open_reader(job, "train"))))
    assert batch.dense.shape[1] == 1 and set(np.unique(batch.dense)) <= {np.float32(one) for one in (0, 31.5, 40)}


def test_large_numbers_of_either_sign_are_transformed(elastichost: Elastichost, tmp_path: Path) -> None:
    balances = [-8000.5, 12.25, 90_000.0, 3.5] * 20
    columns_of = {"y": [0, 1] * 40, "balance": balances, "job": ["a", "b", "c", "d"] * 20}
    pq.write_table(pa.table(columns_of), tmp_path / "bank.parquet")
    outcome = elastichost("init", "bank.parquet", "--label", "y")
    assert outcome.code == 0, outcome.stderr
    assert tomllib.loads(outcome.stdout)["data"]["dense_transform"] == "signed_log1p"


def test_names_and_values_do_not_break_the_comments(elastichost: Elastichost, tmp_path: Path) -> None:
    """A line break in a comment would make a setting of what follows."""
    made = columns()
    del made["seen"]
    columns_of = {**made, "no\nte\x7f": ["a\n[train]\nepochs = 9" + "x" * 500] * ROWS}
    pq.write_table(pa.table(columns_of), tmp_path / "clicks.parquet")
    outcome = elastichost("init", "clicks.parquet", "--label", "clicked")
    assert outcome.code == 0, outcome.stderr
    assert "train" in tomllib.loads(outcome.stdout) and "epochs" not in tomllib.loads(outcome.stdout)["train"]
    assert max(map(len, outcome.stdout.splitlines())) < 200
    pq.write_table(pa.table([[1, 0], [7, 8], [9, 9]], names=["clicked", "item", "item"]), tmp_path / "twice.parquet")
    refused = elastichost("init", "twice.parquet", "--label", "clicked")
    assert refused.code == 3 and "two columns have the name 'item'" in refused.stderr
