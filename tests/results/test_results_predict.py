"""The scores of a file are those of the trained model, and metrics are reported when there are labels."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch

from elastichost.api.run import Run
from elastichost.config.job import JobSpec, load_job, to_toml
from elastichost.errors import ConfigError, DataError, ElastichostError, ModelError
from elastichost.quality.binary import evaluate, probabilities
from elastichost.results import preprocess, reader
from elastichost.results.export import export
from elastichost.results.predict import predict
from elastichost.worker.steps.model_runner import ModelRunner
from tests.datasets.sources.s3_server import S3Server, s3_environment, store
from tests.results.conftest import make_run
from tests.results.test_results_export import OWN_LAYERS, OWN_MODEL

__all__ = ["s3_environment", "store"]


def test_scores_rows_and_quality(run: Any, tmp_path: Path) -> None:
    report = predict(run.directory, run.directory / "samples.parquet", tmp_path / "scores.parquet")
    table = pq.read_table(report.output)
    assert table.column_names == ["row", "probability", "label"]
    assert table.column("row").to_pylist() == list(range(6))
    labels = run.table.column("label").to_numpy().astype(np.float32)
    np.testing.assert_array_equal(table.column("label").to_numpy(), labels)
    logits = run.dlrm_logits()
    np.testing.assert_allclose(table.column("probability").to_numpy(), probabilities(logits), rtol=1e-4)
    expected = evaluate(logits, labels)
    assert (report.samples, report.labels, report.checkpoint) == (6, ("label",), run.checkpoint)
    assert report.quality[0].auc == expected.auc
    assert report.quality[0].logloss == pytest.approx(expected.logloss, rel=1e-4)
    assert os.listdir(tmp_path) == ["scores.parquet"]


def test_scores_do_not_replace_the_rows_that_they_are_of(run: Any, tmp_path: Path) -> None:
    samples, link = run.directory / "samples.parquet", tmp_path / "link.parquet"
    link.symlink_to(samples)
    before = samples.read_bytes()
    for output in (samples, link):
        with pytest.raises(ConfigError, match="the scores would replace the rows"):
            predict(run.directory, samples, output)
    assert samples.read_bytes() == before


def test_a_file_without_labels(run: Any, tmp_path: Path) -> None:
    data = tmp_path / "new [1].parquet"  # as a glob, this name would not match the file
    pq.write_table(run.table.drop_columns(["label"]), data)
    report = predict(run.directory, data, tmp_path / "scores.parquet")
    table = pq.read_table(report.output)
    assert table.column_names == ["row", "probability"]
    np.testing.assert_allclose(table.column("probability").to_numpy(), probabilities(run.dlrm_logits()), rtol=1e-4)
    assert (report.labels, report.quality) == ((), ())


def test_a_file_in_a_store_has_the_scores_of_the_file_here(run: Any, tmp_path: Path, store: S3Server) -> None:
    store.put_file(run.directory / "samples.parquet", "new/samples.parquet")
    here = predict(run.directory, run.directory / "samples.parquet", tmp_path / "here.parquet")
    there = predict(run.directory, store.url("new/samples.parquet"), tmp_path / "there.parquet")
    assert pq.read_table(there.output).equals(pq.read_table(here.output))
    assert there.quality == here.quality
    store.put_file(run.directory / "samples.parquet", "new/part[1].parquet")
    odd = predict(run.directory, store.url("new/part[1].parquet"), tmp_path / "odd.parquet")
    assert pq.read_table(odd.output).equals(pq.read_table(here.output)), "the name is no glob"
    with pytest.raises(DataError, match=r"absent\.parquet.*no such file in the store"):
        predict(run.directory, store.url("new/absent.parquet"), tmp_path / "absent.parquet")


def test_a_row_without_a_label_among_others_is_an_error_with_advice_that_helps(run: Any, tmp_path: Path) -> None:
    labels = pa.array([1, 0, None, 0, 1, 0])
    pq.write_table(run.table.set_column(0, "label", labels), tmp_path / "some.parquet")
    with pytest.raises(DataError) as caught:
        predict(run.directory, tmp_path / "some.parquet", tmp_path / "scores.parquet")
    assert "leave the row out" in caught.value.hint and "bad_rows" not in caught.value.hint


def test_a_model_that_fails_at_a_later_batch_is_a_model_error(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    real = ModelRunner.scores

    def fails(self: ModelRunner, batch: Any) -> Any:
        calls.append(batch.samples.size)
        if len(calls) > 2:
            raise RuntimeError("shape mismatch")
        return real(self, batch)

    monkeypatch.setattr(ModelRunner, "scores", fails)
    monkeypatch.setattr("elastichost.results.predict.BATCH_SIZE", 3)
    with pytest.raises(ModelError, match="shape mismatch") as failed:
        predict(run.directory, run.directory / "samples.parquet", tmp_path / "scores.parquet")
    assert "2 samples from row 4 on" in failed.value.message, "of the file, not of its second row group"


def test_the_suffix_chooses_the_format(run: Any, tmp_path: Path) -> None:
    report = predict(run.directory, run.directory / "samples.parquet", tmp_path / "scores.csv")
    predict(run.directory, run.directory / "samples.parquet", tmp_path / "scores.parquet")
    table = pa.csv.read_csv(report.output)
    scores = pq.read_table(tmp_path / "scores.parquet").column("probability").to_numpy()
    assert table.column_names == ["row", "probability", "label"]
    np.testing.assert_allclose(table.column("probability").to_numpy(), scores, rtol=1e-6)
    with pytest.raises(ConfigError, match=r"scores cannot be written to .*out\.txt"):
        predict(run.directory, run.directory / "samples.parquet", tmp_path / "out.txt")
    assert sorted(os.listdir(tmp_path)) == ["scores.csv", "scores.parquet"]


def test_a_table_is_scored_by_a_run_whose_csv_files_have_decimal_commas(make: Any) -> None:
    """The table is written as such a file and read again, as a file that a person names is."""
    run = make()
    csv = ["delimiter=;", "decimal=,", "types={user='int', item='int', recent='list[int]'}"]
    file = run.directory / "job.resolved.toml"
    file.write_text(to_toml(load_job(file, ["data.format=csv", *(f"data.csv.{one}" for one in csv)], {})))
    scores = Run(run.directory).predict(run.table).column("probability").to_numpy()
    np.testing.assert_allclose(scores, probabilities(run.dlrm_logits()), rtol=1e-4)


@pytest.mark.parametrize("data_format", ["csv", "parquet"])
def test_a_table_may_have_columns_that_the_job_does_not_read_and_string_views(make: Any, data_format: str) -> None:
    run = make()
    types = "data.csv.types={user='int', item='int', recent='list[int]'}"
    file = run.directory / "job.resolved.toml"
    file.write_text(to_toml(load_job(file, [f"data.format={data_format}", types], {})))
    code = run.table.column("code").cast(pa.string_view())
    table = run.table.set_column(run.table.column_names.index("code"), "code", code)
    table = table.append_column("origin", pa.array([{"page": "a"}] * 6)).append_column("seen", pa.array([True] * 6))
    (batch,) = table.combine_chunks().to_batches()
    for given in (table, batch):
        scores = Run(run.directory).predict(given).column("probability").to_numpy()
        np.testing.assert_allclose(scores, probabilities(run.dlrm_logits()), rtol=1e-4)


def test_columns_without_any_value_are_scored_as_nulls(make: Any, tmp_path: Path) -> None:
    """As one row with what is known of a new user gives them: data frames and Arrow have a type of its own for them."""
    run = make()
    row = run.table.slice(0, 1)
    for name, values in (("price", [None]), ("user", [None]), ("code", [None]), ("recent", [[]])):
        row = row.set_column(row.column_names.index(name), name, pa.array(values))
    assert row.schema.field("recent").type == pa.list_(pa.null())
    typed = row.cast(pa.schema([(one.name, run.table.schema.field(one.name).type) for one in row.schema]))
    found, expected = (Run(run.directory).predict(one).column("probability").to_pylist() for one in (row, typed))
    assert found == expected
    model = export(run.directory, tmp_path / "model").directory
    scorer = reader.Scorer(model)
    np.testing.assert_allclose(found, scorer.scores(scorer.preprocessor.prepare(row)), atol=1e-6)


def test_two_runs_in_one_process_have_models_with_modules_of_one_name(tmp_path: Path) -> None:
    """`layers_of_runs` of the first one has the same names and shapes as that of the second one, and other results."""
    runs = []
    for name, scale in (("first", "1.5"), ("second", "-1.5")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "layers_of_runs.py").write_text(OWN_LAYERS.replace("self.weight *", f"{scale} * self.weight *"))
        (folder / "own.py").write_text(OWN_MODEL.replace("own_layers", "layers_of_runs"))
        runs.append(make_run(folder / "run", build=f"{folder}/own.py:build", args="{}"))
    for number, run in enumerate((*runs, runs[0])):
        found = Run(run.directory).predict(run.table).column("probability").to_numpy()
        exported = export(run.directory, tmp_path / f"model_{number}")
        scorer = reader.Scorer(exported.directory)
        np.testing.assert_allclose(found, scorer.scores(scorer.preprocessor.prepare(run.table)), atol=1e-6)
    sys.modules.pop("layers_of_runs", None)


def test_the_signed_transform_is_the_same_in_predictions_and_exports(make: Any, tmp_path: Path) -> None:
    run = make()
    file = run.directory / "job.resolved.toml"
    before = Run(run.directory).predict(run.table).column("probability").to_numpy()
    file.write_text(to_toml(load_job(file, ["data.dense_transform=signed_log1p"], {})))
    found = Run(run.directory).predict(run.table).column("probability").to_numpy()
    scorer = reader.Scorer(export(run.directory, tmp_path / "model").directory)
    np.testing.assert_allclose(found, scorer.scores(scorer.preprocessor.prepare(run.table)), atol=1e-6)
    assert (found != before).tolist() == [False, False, True, False, False, False], "the third row has a negative price"


def weighted(run: Any) -> None:
    file = run.directory / "job.resolved.toml"
    file.write_text(to_toml(load_job(file, ["data.weight=weight"], {})))


def test_metrics_are_weighted_where_the_file_has_the_weights_of_the_job(make: Any, tmp_path: Path) -> None:
    run = make()
    weighted(run)
    weights = np.array([1, 0, 3, 2, 0.5, 4], dtype=np.float32)
    labels = run.table.column("label").to_numpy().astype(np.float32)
    pq.write_table(run.table.append_column("weight", pa.array(weights)), tmp_path / "weighted.parquet")
    with_weights = predict(run.directory, tmp_path / "weighted.parquet", tmp_path / "scores.parquet").quality[0]
    without = predict(run.directory, run.directory / "samples.parquet", tmp_path / "scores.parquet").quality[0]
    assert with_weights.logloss == pytest.approx(evaluate(run.dlrm_logits(), labels, weights).logloss, rel=1e-4)
    assert without.logloss == pytest.approx(evaluate(run.dlrm_logits(), labels).logloss, rel=1e-4)
    assert with_weights.logloss != pytest.approx(without.logloss, rel=1e-3)


def test_a_bad_weight_stops_scores_only_where_there_are_labels(make: Any, tmp_path: Path) -> None:
    run = make()
    weighted(run)
    bad = run.table.append_column("weight", pa.array([1, 1, None, -1, 1, 1], pa.float32()))
    pq.write_table(bad.drop_columns(["label"]), tmp_path / "new.parquet")
    assert predict(run.directory, tmp_path / "new.parquet", tmp_path / "scores.parquet").samples == 6
    pq.write_table(bad, tmp_path / "bad.parquet")
    with pytest.raises(DataError, match="column 'weight': weight is None, not a number"):
        predict(run.directory, tmp_path / "bad.parquet", tmp_path / "scores.parquet")


def test_a_model_that_was_trained_on_csv_scores_parquet(make: Any, tmp_path: Path) -> None:
    run = make()
    file = run.directory / "job.resolved.toml"
    file.write_text(file.read_text().replace('format = "parquet"', 'format = "csv"'))
    assert 'format = "csv"' in file.read_text()
    report = predict(run.directory, run.directory / "samples.parquet", tmp_path / "scores.parquet")
    assert (report.samples, report.labels) == (6, ("label",))


@pytest.mark.parametrize("data_format", ["criteo_tsv", "synthetic"])
def test_parquet_is_scored_by_a_run_on_data_with_fixed_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data_format: str
) -> None:
    """Its columns have types of their own, whatever the training data were. A table is written as Parquet."""
    data = f'[data]\nformat = "{data_format}"\n' + ('train = ["day_0"]\n' if data_format == "criteo_tsv" else "")
    (tmp_path / "job.resolved.toml").write_text(f'[model]\nbuild = "a:b"\n{data}')
    asked: list[str] = []

    def stops(job: JobSpec, split: str, *, files: list[str], **_: object) -> None:
        asked.extend([job.data.format, Path(files[0]).suffix])
        raise DataError("far enough")

    found = SimpleNamespace(manifest=SimpleNamespace(model=SimpleNamespace(tables=(), list_features=())))
    monkeypatch.setattr("elastichost.results.predict.find_checkpoint", lambda *_, **__: found)
    monkeypatch.setattr("elastichost.results.predict.open_reader", stops)
    with pytest.raises(DataError, match="far enough"):
        Run(tmp_path).predict(pa.table({"label": [1]}))
    assert asked == ["parquet", ".parquet"]


def test_several_labels_have_a_column_each(make: Any, tmp_path: Path) -> None:
    run = make(label='["label", "other"]', build="elastichost.models:dcn", args="{ hidden = [4] }")
    report = predict(run.directory, run.directory / "samples.parquet", tmp_path / "scores.parquet")
    assert pq.read_table(report.output).column_names == [
        "row",
        "probability_label",
        "probability_other",
        "label_label",
        "label_other",
    ]
    assert len(report.quality) == 2


@pytest.mark.parametrize("name", ["deepfm", "wide_deep", "xdeepfm"])
def test_prediction_and_export_agree(make: Any, tmp_path: Path, name: str) -> None:
    """First-order weights have dim 1, padded to 4 in the checkpoint. The padding holds noise that must not be used."""
    run = make(build=f"elastichost.models:{name}", args="{ hidden = [4] }")
    report = predict(run.directory, run.directory / "samples.parquet", tmp_path / "scores.parquet")
    directory = export(run.directory, tmp_path / "model").directory
    with torch.no_grad():
        logits = reader.load_model(directory)(*reader.model_inputs(preprocess.Preprocessor(directory), run.table))
    scores = pq.read_table(report.output).column("probability").to_numpy()
    np.testing.assert_allclose(scores, torch.sigmoid(logits).numpy(), rtol=1e-5)
    assert len(set(scores.tolist())) == 6


def test_a_bad_row_is_an_error_and_leaves_no_file(run: Any, tmp_path: Path) -> None:
    labels = pa.array([1, 0, 3, 0, 1, 0])
    pq.write_table(run.table.set_column(0, "label", labels), tmp_path / "bad.parquet")
    with pytest.raises(DataError, match=r"bad\.parquet.*label"):
        predict(run.directory, tmp_path / "bad.parquet", tmp_path / "scores.parquet")
    assert os.listdir(tmp_path) == ["bad.parquet"]


def test_ids_of_another_type_are_refused(run: Any, tmp_path: Path) -> None:
    users = pa.array([str(i) for i in range(6)])
    pq.write_table(
        run.table.set_column(run.table.column_names.index("user"), "user", users), tmp_path / "other.parquet"
    )
    with pytest.raises(DataError, match="column 'user' holds a text id; the run was trained on an integer id"):
        predict(run.directory, tmp_path / "other.parquet", tmp_path / "scores.parquet")


def test_lists_where_the_run_was_trained_on_single_ids_are_refused(run: Any, tmp_path: Path) -> None:
    users = pa.array([[1]] * 6)
    pq.write_table(
        run.table.set_column(run.table.column_names.index("user"), "user", users), tmp_path / "other.parquet"
    )
    with pytest.raises(DataError, match="column 'user' holds a list of integer ids; the run was trained on an integer"):
        predict(run.directory, tmp_path / "other.parquet", tmp_path / "scores.parquet")


def test_a_missing_file_and_an_output_that_cannot_be_written(run: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.parquet: no such file"):
        predict(run.directory, tmp_path / "nothing.parquet", tmp_path / "scores.parquet")
    with pytest.raises(ElastichostError, match="cannot write"):
        predict(run.directory, run.directory / "samples.parquet", tmp_path / "absent" / "scores.parquet")


def test_a_directory_that_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a run directory"):
        predict(tmp_path, tmp_path / "data.parquet", tmp_path / "scores.parquet")


def test_a_model_whose_code_changed_since_the_run(make: Any, tmp_path: Path) -> None:
    run = make()
    file = run.directory / "job.resolved.toml"
    file.write_text(file.read_text().replace("8,", "16,", 1))
    assert "16" in file.read_text()
    with pytest.raises(
        ElastichostError, match=r"builds another model than that of the checkpoint: network\.dense_arch"
    ):
        predict(run.directory, run.directory / "samples.parquet", tmp_path / "scores.parquet")


def test_a_parameter_and_a_buffer_without_a_dimension(make: Any, tmp_path: Path) -> None:
    # a module of another name than in other tests: Python imports each name once
    (tmp_path / "own.py").write_text(OWN_MODEL.replace("own_layers", "scalar_layers"), encoding="utf-8")
    layers = OWN_LAYERS.replace("torch.tensor([0.25])", "torch.tensor(0.25)")
    (tmp_path / "scalar_layers.py").write_text(layers, encoding="utf-8")
    run = make(build=f"{tmp_path}/own.py:build", args="{}")
    assert [run.dense[name].shape for name in ("scale.weight", "scale.shift")] == [(), ()]
    report = predict(run.directory, run.directory / "samples.parquet", tmp_path / "scores.parquet")
    scorer = reader.Scorer(export(run.directory, tmp_path / "model").directory)
    scores = pq.read_table(report.output).column("probability").to_numpy()
    np.testing.assert_allclose(scores, scorer.scores(scorer.preprocessor.prepare(run.table)), rtol=0, atol=1e-6)
