"""A search with real trials that is killed, resumed, stopped and resumed: each trial is trained once and told once."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import optuna
import pytest
from sqlalchemy.pool import NullPool

from elastichost.cli import run_command_line
from elastichost.config.job import load_job
from elastichost.runs.events import JobDone, JobFailed, JobSubmitted
from elastichost.runs.result import read_result
from elastichost.search.study import STUDY_FILE
from tests.system.hosting import SLOW, TOGETHER, Host, below, hurry, wait_gone, write_job
from tests.system.test_run import folder

pytestmark = pytest.mark.system

__all__ = ["folder"]

TRIALS, ROWS = 3, 16_384
# Half a minute for each trial, until the test calls `hurry`: no trial ends before the search is killed and stopped.
SLOWER = SLOW.replace("0.02", "0.5")
PARAMETERS = ("--param", "train.optimizer_rows.lr=log(0.01, 1)", "--param", "train.batch_size=choice(128, 256)")


def studied(directory: Path) -> list[optuna.trial.FrozenTrial]:
    storage = optuna.storages.RDBStorage(f"sqlite:///{directory / STUDY_FILE}", {"poolclass": NullPool})
    return optuna.load_study(study_name="search", storage=storage).trials


def ends(host: Host) -> Counter[str]:
    """How often each job of the search has ended, under all its dispatchers."""
    return Counter(event.job for kind in (JobDone, JobFailed) for event in host.events(kind))


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_a_killed_and_a_stopped_search_continue(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = write_job(folder, "ads", SLOWER, rows=ROWS)
    begin = ("search", job, *PARAMETERS, "--trials", str(TRIALS), "--memory", "6GiB", "--run-dir", "host", "--plain")
    host = Host(folder, *begin, *TOGETHER)
    host.wait_trained("trial-001", 256)
    asked = [trial.params for trial in studied(host.directory)]
    assert len(asked) == TRIALS
    processes = below(host.process.pid)
    host.process.send_signal(signal.SIGKILL)
    host.finish()
    wait_gone(processes, 30.0)

    resume = ("search", "--resume", "host", "--plain")
    host = Host(folder, *resume)
    host.wait_trained("trial-001", 256)
    assert host.stop() == 75
    assert not any(trial.state.is_finished() for trial in studied(host.directory))

    hurry(folder, "ads")
    host = Host(folder, *resume)
    code, errors = host.finish()
    assert code == 0, errors
    told = studied(host.directory)
    assert [trial.params for trial in told] == asked, "no trial was lost, repeated or changed"
    assert {trial.state for trial in told} == {optuna.trial.TrialState.COMPLETE}
    assert ends(host) == {f"trial-{number:03d}": 1 for number in range(TRIALS)}
    assert {path.name for path in (host.directory / "jobs").iterdir()} == set(ends(host))
    first = host.lines(JobSubmitted)[:TRIALS]
    assert {line.event.subject for line in first} == set(ends(host))
    for trial in told:
        result = read_result(Path(trial.user_attrs["run_dir"]))
        assert result is not None
        assert result.test is not None
        assert result.samples.trained == ROWS
        assert result.test.auc == trial.value
    best = max(told, key=lambda trial: trial.value or 0.0)
    spec = load_job(host.directory / "best.toml", environ={})
    assert (spec.job.name, spec.train.optimizer_rows.lr) == ("ads", best.params["train.optimizer_rows.lr"])
    assert str(spec.train.batch_size) == best.params["train.batch_size"]

    capsys.readouterr()
    assert run_command_line(["search", "--resume", str(host.directory), "--json"]) == 0
    again = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (again["best"], len(again["trials"])) == (best.number, TRIALS), "a finished search trains nothing more"
