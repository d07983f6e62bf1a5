"""The application within this process: settings that the command line does not offer, and several labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from elastichost.results.export import export
from elastichost.results.reader import Scorer
from elastichost.serving.app import make_app
from elastichost.serving.arrow_rows import CONTENT_TYPE
from elastichost.serving.loaded_export import load_export
from elastichost.serving.settings import ServeSettings
from tests.results.conftest import HandMadeRun, make_run
from tests.serving.test_predict import stream_of

Rows = list[dict[str, Any]]


def test_bodies_that_need_more_memory_than_all_may_are_refused(program: Path, rows: Rows) -> None:
    with TestClient(make_app(ServeSettings(directory=str(program), buffered_bytes=100))) as client:
        answer = client.post("/predict", json={"rows": rows})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "busy")
        assert (answer.headers["retry-after"], answer.headers["connection"]) == ("1", "close")
        assert "elastichost_serve_buffered_bytes 0\n" in client.get("/metrics").text


@pytest.mark.parametrize("max_batch_rows", [1, 7])
def test_batches_of_few_rows_have_the_same_scores(
    program: Path, rows: Rows, trained: HandMadeRun, max_batch_rows: int
) -> None:
    scorer = Scorer(program)
    wanted = scorer.scores(scorer.preprocessor.prepare(trained.table))
    with TestClient(make_app(ServeSettings(directory=str(program), max_batch_rows=max_batch_rows))) as client:
        np.testing.assert_allclose(client.post("/predict", json={"rows": rows}).json()["scores"], wanted, atol=1e-6)


def test_several_labels_have_a_score_each(tmp_path: Path, rows: Rows) -> None:
    run = make_run(
        tmp_path / "run", label='["label", "other"]', build="elastichost.models:wide_deep", args="{ hidden = [4] }"
    )
    directory = export(run.directory, tmp_path / "model").directory
    with TestClient(make_app(ServeSettings(directory=str(directory)))) as client:
        scores = client.post("/predict", json={"rows": rows}).json()["scores"]
        assert np.array(scores).shape == (6, 2)
        answer = client.post("/predict", content=stream_of(run.table), headers={"content-type": CONTENT_TYPE})
        table = pa.ipc.open_stream(answer.content).read_all()
        assert table.column_names == ["score_label", "score_other"]
        found = np.array([table.column(name).to_numpy() for name in table.column_names]).T
        np.testing.assert_allclose(found, scores, rtol=0, atol=1e-6)
        empty = client.post(
            "/predict", content=stream_of(run.table.slice(0, 0)), headers={"content-type": CONTENT_TYPE}
        )
        assert pa.ipc.open_stream(empty.content).read_all().column_names == table.column_names


def test_an_export_with_scores_that_are_not_finite_is_refused(trained: HandMadeRun, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    from elastichost.errors import ModelError

    directory = export(trained.directory, tmp_path / "model").directory
    weights = load_file(directory / "model.safetensors")
    name = next(name for name in weights if name.endswith("bias"))
    weights[name][:] = np.nan
    save_file(weights, directory / "model.safetensors")
    with pytest.raises(ModelError, match="not .* finite numbers"):
        load_export(directory, refuse_nulls=False)
