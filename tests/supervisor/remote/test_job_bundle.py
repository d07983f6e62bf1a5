"""Which source files of the user are sent to other hosts."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import elastichost
from elastichost.config.job import JobSpec, load_job
from elastichost.errors import ModelError
from elastichost.supervisor.remote.job_bundle import files_for_others
from tests.system.test_run import JOB


def names(folder: Path, build: str, base: Path) -> list[str]:
    """Names of the files that are sent for a job with this model."""
    facts = {"build": build, "rows": 1000, "epochs": 1, "restarts": 3, "every_s": 60}
    (folder / "job.toml").write_text(JOB.format(**facts))
    return [file.name for file in files_for_others(load_job(folder / "job.toml", environ={}), base)]


def test_a_model_file_is_sent_with_the_modules_beside_it(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("import layers\n\ndef build(tables, num_dense):\n    return layers.made()\n")
    (tmp_path / "layers.py").write_text("def made(): ...\n")
    build = f"{tmp_path}/net.py:build"
    assert names(tmp_path, build, Path("/")) == ["job.resolved.toml", "source/net.py", "source/layers.py"]


def test_a_model_module_is_sent_with_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "nets_of_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text("def build(tables, num_dense): ...\n")
    sent = names(tmp_path, "nets_of_a_test.net:build", tmp_path)
    assert sent == ["job.resolved.toml", "source/nets_of_a_test/net.py", "source/nets_of_a_test/__init__.py"]


def test_a_model_of_elastichost_is_not_sent_even_from_a_checkout(tmp_path: Path) -> None:
    """A copy of a part of the package would hide the rest of the installed package."""
    checkout = Path(elastichost.__file__).parents[1]
    assert names(tmp_path, "elastichost.models:dlrm", checkout) == ["job.resolved.toml"]


METRIC = "import helpers\n\n\ndef figure(scores, labels, weights):\n    return 1.0\n"


def job_of(folder: Path, **data: str) -> JobSpec:
    """A job with a model file in `folder`, and two metric functions of files with the same name."""
    (folder / "net.py").write_text("import helpers\n\n\ndef build(tables, num_dense): ...\n")
    (folder / "helpers.py").write_text("of = 'the model'\n")
    for name in ("one", "other"):
        (folder / name).mkdir()
        (folder / name / "own.py").write_text(METRIC.replace("figure", name))
        (folder / name / "helpers.py").write_text(f"of = {name!r}\n")
    raw: dict[str, Any] = {
        "model": {"build": "net.py:build"},
        "data": {"train": ["a.parquet"], "test": ["b.parquet"], "label": "y", "categorical": ["c"], **data},
        "tables": {"default": {"dim": 4}},
        "evaluate": {
            "metrics": ["auc", "one/own.py:one", "other/own.py:other", "net.py:build", "metrics_of_a_test:f"],
            "better": {"other/own.py:other": "lower"},
            "early_stop": {"patience": 1, "metric": "own.py:other"},
        },
    }
    (folder / "job.toml").write_text(_toml(raw))
    return load_job(folder / "job.toml", environ={})


def _toml(raw: dict[str, Any]) -> str:
    """The text of a job file."""
    lines = []
    for section, values in raw.items():
        lines.append(f"[{section}]")
        for key, value in values.items():
            pairs = value.items() if isinstance(value, dict) else ()
            inner = ", ".join(f'"{k}" = {v!r}' for k, v in pairs)
            lines.append(f"{key} = {{ {inner} }}" if pairs else f"{key} = {value!r}")
    return "\n".join(lines) + "\n"


def test_own_metrics_are_sent_and_the_job_names_them_there(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "metrics_of_a_test.py").write_text("def f(scores, labels, weights): ...\n")
    sent = {one.name: one.data for one in files_for_others(job_of(tmp_path), tmp_path / "here")}
    assert set(sent) == {
        "job.resolved.toml", "source/net.py", "source/helpers.py", "source/metrics_of_a_test.py",
        "source/metrics-1/own.py", "source/metrics-1/helpers.py",
        "source/metrics-2/own.py", "source/metrics-2/helpers.py",
    }  # fmt: skip
    assert sent["source/metrics-2/helpers.py"] == b"of = 'other'\n" and b"the model" in sent["source/helpers.py"]
    there = tomllib.loads(sent["job.resolved.toml"].decode())
    one, other = "source/metrics-1/own.py:one", "source/metrics-2/own.py:other"
    assert there["evaluate"]["metrics"] == ["auc", one, other, "source/net.py:build", "metrics_of_a_test:f"]
    assert there["evaluate"]["better"] == {other: "lower"}
    (tmp_path / "job.resolved.toml").write_bytes(sent["job.resolved.toml"])
    load_job(tmp_path / "job.resolved.toml", environ={})  # its early stop names the figure of a function


def test_a_metric_file_that_is_missing_is_named_as_before(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    (tmp_path / "one" / "own.py").unlink()
    there = tomllib.loads(files_for_others(job, tmp_path)[0].data.decode())
    assert there["evaluate"]["metrics"][1] == f"{tmp_path}/one/own.py:one"


def test_an_own_reader_in_the_working_directory_is_sent(tmp_path: Path) -> None:
    here = tmp_path / "here"
    (here / "readers_of_a_test").mkdir(parents=True)
    for name in ("__init__", "stream"):
        (here / "readers_of_a_test" / f"{name}.py").write_text("class Reader: ...\n")
    job = job_of(tmp_path, format="readers_of_a_test.stream:Reader")
    sent = {one.name for one in files_for_others(job, here)}
    assert {"source/readers_of_a_test/__init__.py", "source/readers_of_a_test/stream.py"} <= sent
    installed = job.data.model_copy(update={"format": "json.decoder:JSONDecoder"})
    sent = {one.name for one in files_for_others(job.model_copy(update={"data": installed}), here)}
    assert not any("json" in name for name in sent)


def test_two_different_modules_with_one_path_there_are_refused(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "reader_of_a_test.py").write_text("import helpers\n\n\nclass Reader: ...\n")
    (here / "helpers.py").write_text("of = 'the model'\n")
    job = job_of(tmp_path, format="reader_of_a_test:Reader")
    files_for_others(job, here)  # two equal files are one
    (here / "helpers.py").write_text("of = 'the reader'\n")
    with pytest.raises(ModelError, match=f"{here}/helpers.py, and both would be source/helpers.py"):
        files_for_others(job, here)
