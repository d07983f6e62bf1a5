"""Every way from a trained run to scores gives the same scores: predict, the torchrec export, the program, and a server
that gets JSON or Arrow. The runs are real ones, on integer, text and list ids, from Parquet and from CSV."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch

import elastichost as eh
from elastichost.errors import DataError
from elastichost.results.preprocess import ColumnError, Preprocessor
from elastichost.results.reader import Scorer, load_model, model_inputs
from tests.serving.server_process import ServerProcess, served
from tests.serving.test_predict import post_arrow, stream_of

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(300)]

TYPES = {"user": "int", "item": "string", "recent": "list[int]", "words": "list[string]"}
KINDS = {
    "user": pa.int64(),
    "item": pa.string(),
    "recent": pa.list_(pa.int64()),
    "words": pa.list_(pa.string()),
    "price": pa.float64(),
}
ROWS, TESTED = 4000, 300


def samples(rows: int, seed: int) -> pa.Table:
    """Clicks that depend on item and user; some values are null, some ids are in the test rows only."""
    generator = np.random.default_rng(seed)
    users, items = generator.integers(0, 40 + seed, rows), generator.integers(0, 30 + seed, rows)
    chance = 1 / (1 + np.exp(-((users % 7) - 3.0) - (items % 5 - 2.0)))

    def lists(count: int) -> list[list[int]]:
        return [generator.integers(0, 50, generator.integers(1, count)).tolist() for _ in range(rows)]

    price: list[float | None] = [None if one < 0.05 else float(one) for one in generator.random(rows)]
    return pa.table(
        {
            "click": pa.array((generator.random(rows) < chance).astype(np.int64)),
            "user": pa.array(users - 10, KINDS["user"]),
            "item": pa.array([f"it€m-{one}" for one in items], KINDS["item"]),
            "recent": pa.array(lists(5), KINDS["recent"]),
            "words": pa.array([[f"w{one}" for one in words] for words in lists(4)], KINDS["words"]),
            "price": pa.array(price, KINDS["price"]),
        }
    )


def as_csv(table: pa.Table, file: Path) -> None:
    columns = {name: table.column(name) for name in table.column_names}
    for name in ("recent", "words"):
        columns[name] = pa.array(["|".join(map(str, one)) for one in columns[name].to_pylist()])
    pa.csv.write_csv(pa.table(columns), file)


@dataclass
class Trained:
    """rows: the test samples. predicted: what `predict` says of them."""

    run: eh.Run
    file: Path
    rows: pa.Table
    predicted: npt.NDArray[np.float32]
    exports: dict[str, Path]


@pytest.fixture(scope="module", params=["parquet", "csv"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    folder = tmp_path_factory.mktemp(request.param)
    train, test = samples(ROWS, 3), samples(TESTED, 9)
    files = [folder / f"{name}.{request.param}" for name in ("train", "test")]
    for table, file in zip((train, test), files, strict=True):
        if request.param == "parquet":
            pq.write_table(table, file)
        else:
            as_csv(table, file)
    more: dict[str, Any] = {"format": "csv", "csv": {"types": TYPES}} if request.param == "csv" else {}
    run = eh.train(
        model="elastichost.models:dlrm",
        data=eh.Data(train=files[0], label="click", dense=["price"], categorical=[*TYPES], null_fill=0.5, **more),
        tables={"default": eh.Table(dim=8), "words": eh.Table(rows=97, pooling="mean")},
        workers=1,
        servers=1,
        train={"batch_size": 128},
        tuner={"mode": "off"},
        progress=False,
        dir=folder / "run",
    )
    predicted = run.predict(files[1]).column("probability").to_numpy()
    assert len(set(np.round(predicted, 4).tolist())) > TESTED // 3
    exports = {form: run.export(folder / form, format=form).directory for form in ("torchrec", "pt2")}
    yield Trained(run, files[1], test.drop_columns(["click"]), predicted, exports)
    shutil.rmtree(folder / "run")


@pytest.fixture(scope="module", params=["torchrec", "pt2"])
def server(
    request: pytest.FixtureRequest, trained: Trained, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    with served(trained.exports[request.param], tmp_path_factory.mktemp("server")) as process:
        yield process


def agree(scores: Any, trained: Trained) -> None:
    np.testing.assert_allclose(scores, trained.predicted, rtol=0, atol=1e-6)


def test_the_model_and_the_program_agree_with_predict(trained: Trained) -> None:
    directory = trained.exports["torchrec"]
    with torch.no_grad():
        logits = load_model(directory)(*model_inputs(Preprocessor(directory), trained.rows))
    agree(torch.sigmoid(logits).numpy(), trained)
    for form in ("torchrec", "pt2"):
        scorer = Scorer(trained.exports[form])
        agree(scorer.scores(scorer.preprocessor.prepare(trained.rows)), trained)


def test_the_server_agrees_with_predict(trained: Trained, server: ServerProcess) -> None:
    answer = server.predict(trained.rows.to_pylist())
    assert answer.status_code == 200, answer.text
    agree(answer.json()["scores"], trained)
    parts = [server.predict(trained.rows.slice(start, 100).to_pylist()).json()["scores"] for start in (0, 100, 200)]
    agree(np.concatenate(parts), trained)
    answer = post_arrow(server, stream_of(trained.rows))
    assert answer.status_code == 200, answer.text
    agree(pa.ipc.open_stream(answer.content).read_all().column("score").to_numpy(), trained)


def test_columns_without_any_value_have_the_scores_of_nulls_in_every_way(
    trained: Trained, server: ServerProcess, tmp_path: Path
) -> None:
    rows = trained.rows.slice(0, 4)
    for name, values in (("user", pa.nulls(4)), ("item", pa.nulls(4)), ("price", pa.nulls(4))):
        rows = rows.set_column(rows.column_names.index(name), name, values)
    for name in ("recent", "words"):
        rows = rows.set_column(rows.column_names.index(name), name, pa.array([[None], [], None, []]))
    assert rows.schema.types == [pa.null(), pa.null(), *[pa.list_(pa.null())] * 2, pa.null()]
    typed = rows.cast(trained.rows.schema)
    pq.write_table(rows, tmp_path / "nulls.parquet")
    pq.write_table(typed, tmp_path / "typed.parquet")
    wanted = trained.run.predict(tmp_path / "typed.parquet").column("probability").to_numpy()
    for given in (tmp_path / "nulls.parquet", rows):
        found = trained.run.predict(given).column("probability").to_numpy()
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
    for directory in trained.exports.values():
        scorer = Scorer(directory)
        np.testing.assert_allclose(scorer.scores(scorer.preprocessor.prepare(rows)), wanted, rtol=0, atol=1e-6)
    np.testing.assert_allclose(server.predict(rows.to_pylist()).json()["scores"], wanted, rtol=0, atol=1e-6)
    answer = post_arrow(server, stream_of(rows))
    scores = pa.ipc.open_stream(answer.content).read_all().column("score").to_numpy()
    np.testing.assert_allclose(scores, wanted, rtol=0, atol=1e-6)


OTHER_KINDS = [
    ("item", pa.array(range(TESTED)), "a text id"),
    ("item", pa.array([["a"]] * TESTED), "a text id"),
    ("user", pa.array([str(one) for one in range(TESTED)]), "an integer id"),
    ("user", pa.array([1.0] * TESTED), "an integer id"),
    ("recent", pa.array(range(TESTED)), "a list of integer ids"),
    ("recent", pa.array([["1"]] * TESTED), "a list of integer ids"),
    ("words", pa.array(["a"] * TESTED), "a list of text ids"),
    ("words", pa.array([[1]] * TESTED), "a list of text ids"),
    ("price", pa.array(["1.5"] * TESTED), "a number"),
]


@pytest.mark.parametrize(("column", "values", "expected"), OTHER_KINDS)
def test_another_kind_is_refused_in_every_way(
    trained: Trained, server: ServerProcess, tmp_path: Path, column: str, values: pa.Array, expected: str
) -> None:
    table = trained.rows.set_column(trained.rows.column_names.index(column), column, values)
    pq.write_table(table, tmp_path / "other.parquet")
    with pytest.raises(DataError, match=column):
        trained.run.predict(tmp_path / "other.parquet")
    for directory in trained.exports.values():
        with pytest.raises(ColumnError, match=f"column {column}, row 0: .* is not {expected}"):
            Preprocessor(directory).prepare(table)
    for answer in (server.predict(table.to_pylist()), post_arrow(server, stream_of(table))):
        error = answer.json()["error"]
        assert (answer.status_code, error["row"], error["column"], error["expected"]) == (422, 0, column, expected)


def test_vectors_of_text_ids_are_named_by_their_texts(trained: Trained, tmp_path: Path) -> None:
    report = trained.run.export(tmp_path / "model", embeddings=["item", "words", "user"])
    ids = {file.stem: set(pq.read_table(file).column("id").to_pylist()) for file in report.embeddings}
    assert report.warnings == ()
    assert ids["item"] == {f"it€m-{one}" for one in range(33)}
    assert ids["words"] == {f"w{one}" for one in range(50)}
    assert ids["user"] == set(range(-10, 33))
