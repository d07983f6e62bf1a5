"""The application within this process: settings that the command line does not offer, and several labels."""

from __future__ import annotations

import asyncio
import gc
import shutil
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from elastichost.errors import ElastichostError
from elastichost.results.export import export
from elastichost.results.reader import Scorer
from elastichost.serving import follower
from elastichost.serving.app import make_app
from elastichost.serving.arrow_rows import CONTENT_TYPE
from elastichost.serving.batcher import Batcher
from elastichost.serving.loaded_export import load_export
from elastichost.serving.settings import ServeSettings
from elastichost.serving.telemetry import Telemetry
from tests.results.conftest import HandMadeRun, make_run
from tests.serving.server_process import wait_for
from tests.serving.test_predict import stream_of
from tests.serving.test_server import switch

Rows = list[dict[str, Any]]


def test_bodies_that_need_more_memory_than_all_may_are_refused(program: Path, rows: Rows) -> None:
    with TestClient(make_app(ServeSettings(directory=str(program), buffered_bytes=100))) as client:
        answer = client.post("/predict", json={"rows": rows})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "busy")
        assert (answer.headers["retry-after"], answer.headers["connection"]) == ("1", "close")
        assert "elastichost_serve_buffered_bytes 0\n" in client.get("/metrics").text


def test_the_first_export_is_forgotten_when_another_one_answers(
    program: Path, other_program: Path, tmp_path: Path, rows: Rows
) -> None:
    link = tmp_path / "current"
    link.symlink_to(program)
    settings = ServeSettings(directory=str(link), follow_s=0.05)
    loaded = [load_export(link, refuse_nulls=False)]
    first = weakref.ref(loaded[0].scorer)
    with TestClient(make_app(settings, loaded)) as client:
        assert client.post("/predict", json={"rows": rows}).status_code == 200 and first() is not None
        switch(link, other_program)
        wait_for(lambda: client.get("/healthz").json()["reloads"] == 1, "the other export answers")
        wait_for(
            lambda: gc.collect() >= 0 and first() is None, "one model is in memory, also without a further request"
        )


def test_an_export_that_did_not_load_is_tried_again(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files may still be copied when its description is there."""
    monkeypatch.setattr(follower, "FIRST_PAUSE_S", 0.1)
    link, late = tmp_path / "current", tmp_path / "late"
    link.symlink_to(program)
    with TestClient(make_app(ServeSettings(directory=str(link), follow_s=0.05))) as client:
        shutil.copytree(program, late, ignore=shutil.ignore_patterns("model.pt2"))
        switch(link, late)
        wait_for(lambda: client.get("/healthz").json()["reload_problem"], "it does not load")
        shutil.copy(program / "model.pt2", late / "model.pt2")
        wait_for(lambda: client.get("/healthz").json()["reloads"] == 1, "it is whole now")
        metrics = client.get("/metrics").text
        assert "elastichost_serve_failed_reloads_total 1\n" in metrics, "the same problem is told once"


def test_a_worker_that_starts_while_the_export_is_broken_serves_what_the_others_serve(
    program: Path, tmp_path: Path
) -> None:
    broken, answers = tmp_path / "broken", tmp_path / "answers"
    shutil.copytree(program, broken, ignore=shutil.ignore_patterns("model.pt2"))
    with pytest.raises(ElastichostError):
        follower.first_export(ServeSettings(directory=str(broken)))
    answers.write_text(str(program))
    found = follower.first_export(ServeSettings(directory=str(broken), answers_file=str(answers)))
    assert found.directory == program.resolve()


def test_requests_of_two_exports_that_wait_together_are_both_answered(
    program: Path, other_program: Path, rows: Rows
) -> None:
    """The second one came while the first waited for others."""
    first, second = (load_export(one, refuse_nulls=False) for one in (program, other_program))
    (prepared, other) = (one.scorer.preprocessor.prepare(pa.Table.from_pylist(rows)) for one in (first, second))

    async def ask() -> list[Any]:
        batcher = Batcher(Telemetry(), max_rows=10_000, max_delay_s=0.2)
        running = asyncio.create_task(batcher.run())
        asked = [asyncio.create_task(batcher.score(first, prepared))]
        await asyncio.sleep(0.05)
        asked.append(asyncio.create_task(batcher.score(second, other)))
        found = await asyncio.wait_for(asyncio.gather(*asked), 30.0)
        running.cancel()
        batcher.close()
        return found

    assert [len(scores) for scores in asyncio.run(ask())] == [len(rows), len(rows)]


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
