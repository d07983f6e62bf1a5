"""The wheel as a user gets it: its metadata, its files, and a job trained from outside of the clone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
JOB = """
[model]
build = "elastichost.models:dlrm"
[data]
format = "synthetic"
[data.synthetic]
rows = 20_000
test_rows = 2_000
"""
TRAIN = """
import elastichost as eh
if __name__ == "__main__":
    run = eh.train("job.toml", dir="from-python", progress=False)
    print(eh.__file__, run.status, run.samples["trained"])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip(folder, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT))
    (made,) = folder.glob("*.whl")
    return made


def pip(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(opened.read(name).decode())


@pytest.mark.thorough
def test_an_index_would_accept_the_metadata(wheel: Path) -> None:
    metadata = metadata_of(wheel)
    required = metadata.get_all("Requires-Dist") or []
    assert not [one for one in required if "@ " in one], "an index takes no direct references"
    assert {"torch", "torchrec", "fbgemm-gpu"} <= {one.partition("=")[0] for one in required}
    extras = set(metadata.get_all("Provides-Extra") or [])
    assert extras == {"huggingface", "mlflow", "nsga2", "ray", "search", "serve", "tensorboard", "wandb"}
    assert len(metadata.get_all("Project-URL") or []) >= 4
    readme = metadata.get_payload()
    assert isinstance(readme, str)
    assert "](docs/" not in readme and "](ARCHITECTURE" not in readme, (
        "links of the README must work on an index's page"
    )


@pytest.mark.thorough
def test_a_job_trains_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    """Files that a clone has and the wheel lacks, such as templates, would be missed here."""
    pip(tmp_path, "install", "--no-deps", "--no-compile", "--target", str(tmp_path / "site"), str(wheel))
    (tmp_path / "job.toml").write_text(JOB)
    (tmp_path / "train.py").write_text(TRAIN)
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}

    def python(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    doctor = json.loads(python("-m", "elastichost", "doctor", "--json"))
    assert doctor["ok"]
    result = json.loads(python("-m", "elastichost", "run", "job.toml", "--json").splitlines()[-1])
    assert (result["status"], result["samples"]["trained"]) == ("done", 20_000)
    python("-m", "elastichost", "report", result["run_dir"], "--output", "report.html")
    assert (tmp_path / "report.html").stat().st_size > 10_000
    file, status, trained = python("train.py").split()
    assert (Path(file).is_relative_to(tmp_path / "site"), status, trained) == (True, "done", "20000")
