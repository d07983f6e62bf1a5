"""Which source files of the model are sent to other hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

import elastichost
from elastichost.config.job import load_job
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
