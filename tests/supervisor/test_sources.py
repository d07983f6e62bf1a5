"""What other machines are sent of a job: the user's own source, and none of this package's."""

from __future__ import annotations

from pathlib import Path

import elastichost
from elastichost.config import load_job
from elastichost.supervisor.sources import files_for_others

JOB = """
[job]
name = "sources"
[model]
build = "{build}"
[data]
format = "synthetic"
synthetic = {{ rows = 1000, test_rows = 100 }}
"""


def sent(folder: Path, build: str, base_dir: Path) -> list[str]:
    (folder / "job.toml").write_text(JOB.format(build=build))
    return [file.name for file in files_for_others(load_job(folder / "job.toml", environ={}), base_dir)]


def test_a_model_of_ours_is_there_already_also_where_we_are_run_from_a_clone(tmp_path: Path) -> None:
    clone = Path(elastichost.__file__).parents[1]
    assert sent(tmp_path, "elastichost.models:dlrm", clone) == ["job.resolved.toml"]


def test_a_module_of_the_users_goes_with_the_job(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("def build(tables, num_dense):\n    raise NotImplementedError\n")
    assert sent(tmp_path, f"{tmp_path}/net.py:build", tmp_path) == ["job.resolved.toml", "source/net.py"]
