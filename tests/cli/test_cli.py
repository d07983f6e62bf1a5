"""The whole program: help, exit codes, error messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elastichost import __version__
from elastichost.cli.failure import failure_text, report_failure
from elastichost.errors import ConfigError, DataError, ModelError, RestartBudgetError
from tests.cli.conftest import Elastichost

ROOT = Path(__file__).parent.parent.parent
VERBS = (
    "run",
    "resume",
    "status",
    "events",
    "logs",
    "export",
    "predict",
    "doctor",
    "config",
    "convert",
    "bench",
    "chaos",
    "clean",
)


def test_help_names_every_verb(elastichost: Elastichost) -> None:
    outcome = elastichost("--help")
    assert outcome.code == 0
    listed = {line.split()[0] for line in outcome.stdout.splitlines() if line.startswith("  ")}
    assert set(VERBS) <= listed


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(elastichost: Elastichost, verb: str) -> None:
    outcome = elastichost(verb, "--help")
    assert outcome.code == 0
    assert outcome.stdout.startswith(f"Usage: elastichost {verb}")


def test_version(elastichost: Elastichost) -> None:
    assert elastichost("--version").stdout.strip() == __version__


@pytest.mark.parametrize("arguments", [("frobnicate",), ("run",), ("run", "a", "--no-such"), ("status", "a", "b")])
def test_wrong_usage_ends_with_2(elastichost: Elastichost, arguments: tuple[str, ...]) -> None:
    outcome = elastichost(*arguments)
    assert outcome.code == 2
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("error  elastichost")
    assert "--help` lists all" in outcome.stderr


def test_config_errors_end_with_2_and_list_every_problem(elastichost: Elastichost, job_file: Path) -> None:
    wrong = ("run", str(job_file), "--set", "train.bacth=1", "--set", "train.epochs=0")
    shown = elastichost(*wrong)
    assert (shown.code, shown.stdout) == (2, "")
    assert shown.stderr.startswith("error  ")
    assert "Traceback" not in shown.stderr
    outcome = elastichost(*wrong, "--json")
    assert (outcome.code, outcome.stderr) == (2, ""), "with --json the error is in the JSON object alone"
    facts = json.loads(outcome.last_line)
    assert (facts["schema"], facts["status"], facts["exit_code"]) == ("elastichost/v1", "failed", 2)
    assert [problem.split(" ")[0] for problem in facts["error"]["problems"]] == ["train.epochs", "train.bacth"]


def test_the_program_itself_ends_with_the_code_of_the_error(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "elastichost", "run", str(tmp_path / "none.toml")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no such job file" in done.stderr


def test_a_closed_stdout_gives_no_traceback() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "elastichost", "config", "schema"]
    done = subprocess.run(command, cwd=ROOT, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (1, "")


def test_an_error_block_has_problem_place_and_hint() -> None:
    assert failure_text(DataError("a.parquet: row 7: label 2", hint="labels are 0 or 1")).plain == (
        "error  a.parquet: row 7: label 2\n    -> labels are 0 or 1"
    )
    problems = ConfigError("job.toml: 2 problems", problems=("one", "two"))
    assert failure_text(problems).plain == "error  job.toml: 2 problems\n     | - one\n     | - two"


def test_a_model_error_shows_the_users_own_traceback() -> None:
    error = ModelError("model.py cannot be imported", traceback_text='  File "model.py", line 3\nNameError: x [red]')
    assert failure_text(error).plain.splitlines()[1:] == [
        '     |   File "model.py", line 3',
        "     | NameError: x [red]",
    ]


def test_a_traceback_that_only_repeats_the_message_is_left_out() -> None:
    error = ModelError("build failed: TypeError: no x", traceback_text="TypeError: no x\n", hint="leave x out")
    assert failure_text(error).plain == "error  build failed: TypeError: no x\n    -> leave x out"


def test_internal_errors_are_shown_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    report_failure(KeyError("lost"), as_json=False)
    captured = capsys.readouterr()
    assert "KeyError: 'lost'" in captured.err
    assert "ELASTICHOST_DEBUG=1" in captured.err
    report_failure(KeyError("lost"), as_json=True)
    assert json.loads(capsys.readouterr().out)["exit_code"] == 1


def test_config_show_is_a_job_file(elastichost: Elastichost, job_file: Path, tmp_path: Path) -> None:
    shown = elastichost("config", "show", str(job_file), "--set", "train.epochs=3")
    assert "epochs = 3" in shown.stdout
    again = tmp_path / "again.toml"
    again.write_text(shown.stdout)
    assert elastichost("config", "show", str(again)).stdout == shown.stdout
    assert json.loads(elastichost("config", "show", str(again), "--json").last_line)["job"]["train"]["epochs"] == 3


def test_config_schema_is_the_committed_one(elastichost: Elastichost) -> None:
    assert elastichost("config", "schema").stdout == (ROOT / "elastichost" / "job.schema.json").read_text()


FORWARD_FAILED = f'''worker-0 ended 4 times in 60 s, and resources.restarts is 3 (exit code 1)
last lines of its log:
           ^^^^^^^^^^^^^^
  File "{ROOT}/elastichost/worker/steps/model_runner.py", line 97, in _forward
    output = self._model(dense, self._kjt(batch))
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/env/site-packages/torch/nn/modules/module.py", line 1789, in _call_impl
    return forward_call(*args, **kwargs)
  File "/home/user/model.py", line 9, in forward
    raise ValueError("no")
ValueError: no'''


def test_a_failure_of_the_users_forward_shows_the_users_frames_only() -> None:
    assert failure_text(RestartBudgetError(FORWARD_FAILED, hint="see the log")).plain.splitlines() == [
        "error  worker-0 ended 4 times in 60 s, and resources.restarts is 3 (exit code 1)",
        "     | last lines of its log:",
        '     |   File "/home/user/model.py", line 9, in forward',
        '     |     raise ValueError("no")',
        "     | ValueError: no",
        "    -> see the log",
    ]


def test_a_model_error_shows_no_frames_of_elastichost() -> None:
    ours = (
        "Traceback (most recent call last):\n"
        f'  File "{ROOT}/elastichost/user_model/build.py", line 129, in build_model\n    raise ModelError(\n'
        "elastichost.errors.ModelError: build returned a NoneType\n  -> return the model\n"
    )
    error = ModelError("build returned a NoneType", traceback_text=ours, hint="return the model")
    assert failure_text(error).plain == "error  build returned a NoneType\n    -> return the model"


def test_the_ready_models_are_shown_like_the_users() -> None:
    text = f'  File "{ROOT}/elastichost/models/networks/dlrm.py", line 3, in build\nValueError: x'
    assert "dlrm.py" in failure_text(ModelError("failed", traceback_text=text)).plain
