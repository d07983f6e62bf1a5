"""Whole runs that are started from Python: results, callbacks, stops, errors, and what a Python process leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import elastichost as eh
from elastichost.arena.host import arena_root
from elastichost.errors import ConfigError, DataError, ModelError
from elastichost.metrics import RunStatus
from elastichost.runs.events import CheckpointWritten, EvaluationFinished, JournalLine, ProcessReady, RunEnded
from elastichost.runs.events.text import text_of
from elastichost.runs.learning_curve import CurvePoint, read_curve
from elastichost.wire.applied import read_applied
from tests.system.test_run import LIMIT_S, ROOT, folder

pytestmark = [pytest.mark.system, pytest.mark.timeout(200)]

__all__ = ["folder"]

SHAPE = {"test_rows": 3000, "tables": 4, "table_rows": 500, "dense": 3, "unit_rows": 8192}
TABLES = {"default": eh.Table(dim=8)}
ROWS = 100_000


def data(rows: int = ROWS) -> eh.Data:
    return eh.Data(format="synthetic", synthetic={"rows": rows, **SHAPE})  # type: ignore[arg-type]


def arguments(rows: int = ROWS, **more: Any) -> dict[str, Any]:
    small = {"model_args": {"bottom": [16, 8], "top": [16, 1]}, "tables": TABLES, "workers": 2, "servers": 1}
    sections = {"train": {"batch_size": 128}, "tuner": {"mode": "off"}, "seed": 7}
    return {"model": "elastichost.models:dlrm", "data": data(rows), "progress": False, **small, **sections, **more}


class Recorder(eh.Callback):
    """Keeps all that it is told, and takes its time for the first points."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.points: list[CurvePoint] = []
        self.evaluations: list[EvaluationFinished] = []
        self.lines: list[JournalLine] = []
        self.states: list[str] = []
        self.ended: list[str] = []
        self._pause_s = pause_s

    def on_loss(self, point: CurvePoint) -> None:
        time.sleep(self._pause_s if len(self.points) < 3 else 0)
        self.points.append(point)

    def on_evaluation(self, evaluation: EvaluationFinished) -> None:
        self.evaluations.append(evaluation)

    def on_event(self, line: JournalLine) -> None:
        self.lines.append(line)

    def on_status(self, status: RunStatus) -> None:
        self.states.append(status.state)

    def on_end(self, run: eh.Run) -> None:
        self.ended.append(run.status)


class Failing(eh.Callback):
    def on_loss(self, point: CurvePoint) -> None:
        raise ValueError(f"no luck at {point.samples}")


def test_a_run_in_a_thread_tells_callbacks_everything_and_gives_its_results(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick, slow, found = Recorder(), Recorder(pause_s=0.5), []
    callbacks = (quick, Failing(), slow)
    thread = threading.Thread(target=lambda: found.append(eh.train(**arguments(callbacks=callbacks, dir=folder / "a"))))
    thread.start()
    thread.join(LIMIT_S)
    (run,) = found
    assert (run.status, run.dir) == ("done", folder / "a")
    assert run.samples == {"planned": ROWS, "trained": ROWS, "skipped": 0, "quarantined": 0}
    assert run.metrics["auc"] > 0.6
    assert_curve_is_exact(run)
    for one in (quick, slow):
        assert one.points == read_curve(run.dir), "a slow callback misses no point"
        assert [evaluation.auc for evaluation in one.evaluations] == [run.metrics["auc"]]
        assert isinstance(one.lines[-1].event, RunEnded)
        assert one.ended == ["done"]
    life = {"starting", "training", "evaluating", "checkpointing", "stopping", "done"}
    assert life.issuperset(quick.states), "a status each second: a short run may train between two of them"
    assert (quick.states[0], quick.states[-1]) == ("starting", "done")
    said = capsys.readouterr().err
    assert "Failing.on_loss raised an error" in said and "ValueError: no luck at" in said
    assert said.count("ValueError: no luck") == 3, "the first three errors are shown"
    again = eh.train(**arguments(rows=50_000, dir=folder / "b"), start_from=run)
    assert again.samples["trained"] == 50_000, "a second run in the same process"
    assert_scores(run, folder)


def assert_curve_is_exact(run: eh.Run) -> None:
    """The history has the losses of all committed batches."""
    history = run.history.to_pydict()
    applied = read_applied(run.dir)
    points = read_curve(run.dir)
    loss_sum = sum(point.loss * point.of_samples for point in points)
    assert loss_sum == pytest.approx(float(applied["loss_sum"].sum()), rel=1e-6)
    assert all(0.1 < point.loss < 1.0 for point in points), "a mean of binary cross entropies of a model that learns"
    assert history["samples"][-1] == sum(point.of_samples for point in points) == ROWS
    assert [auc for auc in history["test_auc"] if auc is not None] == [run.metrics["auc"]]
    assert [loss for loss in history["loss"] if loss is not None] == [point.loss for point in points]


@pytest.mark.thorough
@pytest.mark.parametrize("settings", [{"access": "served"}, {"mode": "sync"}])
def test_every_way_to_commit_has_the_losses(folder: Path, settings: dict[str, str]) -> None:
    run = eh.train(**arguments(train={"batch_size": 128, **settings}, dir=folder / "run"))
    assert_curve_is_exact(run)


def assert_scores(run: eh.Run, folder: Path) -> None:
    assert run.report().read_text().startswith("<!doctype html>")
    assert (run.report(folder / "page.html"), run.report().name) == (folder / "page.html", "report.html")
    with pytest.raises(ConfigError, match="exists"):
        run.export(".")
    report = run.export(folder / "model")
    assert report.samples_trained == ROWS
    with pytest.raises(DataError, match="the table: no column 'd0'"):
        run.predict(pa.table({"c0": [1]}))


@pytest.mark.thorough
def test_a_run_can_be_scaled_stopped_and_resumed(folder: Path) -> None:
    (folder / "slow.py").write_text(SLOW)
    facts = arguments(rows=150_000, model=f"{folder}/slow.py:build", workers=(1, 3), dir=folder / "run")
    del facts["progress"]
    handle = eh.start(**facts)
    reached = handle.scale(workers=3)
    assert reached
    assert {event.process.index for event in ready(handle)} == {0, 1, 2}
    handle.stop()
    stopped = handle.wait(LIMIT_S)
    assert stopped.status == "stopped"
    trained = stopped.samples["trained"]
    assert 0 < trained < 150_000
    with pytest.raises(ConfigError, match=r"\[train\] is changed"):
        eh.resume(stopped, train={"batch_size": 64})
    seen = Recorder()
    done = eh.resume(folder / "run", progress=False, callbacks=(seen,), resources={"workers": 2})
    assert done.status == "done"
    assert done.samples["trained"] == 150_000
    assert seen.states[0] == "starting"
    assert min(point.samples for point in seen.points) > trained - 128
    assert sum(point.of_samples for point in read_curve(done.dir)) == 150_000


@pytest.mark.thorough
def test_a_kill_does_not_wait_for_a_run_to_save(folder: Path) -> None:
    (folder / "slow.py").write_text(SLOW)
    facts = arguments(rows=150_000, model=f"{folder}/slow.py:build", dir=folder / "run")
    del facts["progress"]
    handle = eh.start(**facts)
    next(event for event in handle.events() if isinstance(event.event, ProcessReady))
    handle.kill()
    killed = handle.wait(LIMIT_S)
    assert killed.status == "killed"
    assert not [line for line in killed.events() if isinstance(line.event, CheckpointWritten)]


SLOW = """
import time

from elastichost.models import dlrm


def build(tables, num_dense, **args):
    model = dlrm(tables, num_dense, **args)
    model.register_forward_pre_hook(lambda *_: time.sleep(0.01))
    return model
"""


def ready(handle: eh.RunHandle) -> list[ProcessReady]:
    events = (line.event for line in eh.Run(handle.dir).events())
    return [event for event in events if isinstance(event, ProcessReady) and event.process.role == "worker"]


@pytest.mark.thorough
def test_rows_of_a_function_are_trained_exactly_once_also_by_a_resumed_run(folder: Path) -> None:
    """The function is called once: the run, its processes and the resumed run read the spool. A start that fails keeps
    it, too."""
    (folder / "slow.py").write_text(SLOW)
    calls, count, labels = [], 60_000, {"label": "y", "dense": ["x"], "categorical": ["item", "user"]}

    def make_rows() -> Iterator[dict[str, object]]:
        calls.append(1)
        for number in range(count):
            yield {"y": number % 3 == 0, "x": 0.5, "item": f"item-{number % 40}", "user": number % 7}

    test = pa.table({"y": [0, 1] * 50, "x": [0.5] * 100, "item": ["item-1"] * 100, "user": [1] * 100})
    rows = eh.from_iterable(make_rows, unit_rows=8192)
    facts = arguments(
        model=f"{folder}/slow.py:build", dir=folder / "run", tables={"default": eh.Table(dim=8, rows="dynamic")}
    )
    facts["data"] = eh.Data(train=rows, test=test, **labels)  # type: ignore[arg-type]
    with pytest.raises(ModelError):
        eh.train(**{**facts, "model": f"{folder}/slow.py:absent"})
    assert sorted(path.name for path in (folder / "run").rglob("*")) == ["data", "test.parquet", "train.parquet"]
    del facts["progress"]
    trains = Trains()
    handle = eh.start(**facts, callbacks=[trains])
    assert trains.has_begun.wait(LIMIT_S)
    handle.stop()
    stopped = handle.wait(LIMIT_S)
    assert stopped.status == "stopped" and 0 < stopped.samples["trained"] < count
    done = eh.resume(folder / "run", progress=False)
    assert (done.status, done.samples["trained"], len(calls)) == ("done", count, 1)
    assert sum(point.of_samples for point in read_curve(done.dir)) == count


class Trains(eh.Callback):
    def __init__(self) -> None:
        self.has_begun = threading.Event()

    def on_loss(self, point: CurvePoint) -> None:
        self.has_begun.set()


def test_errors_are_those_of_the_command_line_and_leave_nothing(folder: Path) -> None:
    with pytest.raises(ModelError, match="there is no file"):
        eh.train(**arguments(model="nowhere.py:build", dir=folder / "a"))
    (folder / "broken.py").write_text("def build(tables, num_dense, **args):\n    return 1 / 0\n")
    with pytest.raises(ModelError, match="ZeroDivisionError") as caught:
        eh.train(**arguments(model=f"{folder}/broken.py:build", dir=folder / "b"))
    assert "return 1 / 0" in caught.value.traceback_text
    assert not (folder / "a").exists() and not (folder / "b").exists()


SCRIPT = """
import time

import elastichost as eh

PAUSE_S = 0.01


def build(tables, num_dense):
    from elastichost.models import dlrm

    model = dlrm(tables, num_dense, bottom=[16, 8], top=[16, 1])
    model.register_forward_pre_hook(pause)
    return model


def pause(*_):
    time.sleep(PAUSE_S)


data = eh.Data(format="synthetic", synthetic={synthetic})
eh.train(model=build, data=data, tables={{"default": eh.Table(dim=8)}}, workers=2, servers=1,
         tuner={{"mode": "off"}}, train={{"batch_size": 128}}, dir={folder!r}, progress=False)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_a_script_that_ends_leaves_a_run_that_can_be_resumed(folder: Path, number: signal.Signals) -> None:
    """The model is a function of the script itself. The script is no module that a worker could import: importing it
    would start the training again."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(SCRIPT).format(synthetic={"rows": ROWS, **SHAPE}, folder=str(folder / "run")))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, text=True, env=environment)
    wait_trained(folder / "run", process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=LIMIT_S)
    if number == signal.SIGINT:
        assert process.returncode != 0 and "KeyboardInterrupt" in errors
        assert f"eh.resume('{folder}/run')" in errors
    wait_ended(folder / "run")
    run = eh.Run(folder / "run")
    assert run.status == "stopped"
    done = eh.resume(run, progress=False)
    assert done.samples["trained"] == ROWS
    applied = read_applied(done.dir)
    assert int(applied["samples"].sum()) == ROWS
    assert np.unique(applied["worker"]).tolist() == [0, 1]


def wait_trained(run_dir: Path, process: subprocess.Popen[str]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not read_curve(run_dir):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def wait_ended(run_dir: Path) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not (run_dir / "result.json").exists() or list(arena_root().glob("*")):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_auc_is_undefined_for_test_data_of_one_class_and_the_run_is_done_all_the_same(folder: Path) -> None:
    columns = {"x": np.linspace(0, 1, 4000), "item": np.arange(4000) % 50}
    for name, labels in (("train", np.arange(4000) % 2), ("test", np.ones(4000, dtype=np.int64))):
        pa.parquet.write_table(pa.table({"y": labels, **columns}), folder / f"{name}.parquet", row_group_size=1000)
    clicks = eh.Data(
        train=str(folder / "train.parquet"),
        test=str(folder / "test.parquet"),
        label="y",
        dense=["x"],
        categorical=["item"],
    )
    early = {"every_samples": 1000, "early_stop": {"patience": 1}}
    run = eh.train(**arguments(data=clicks, workers=1, evaluate=early, dir=folder / "run"))
    assert (run.status, run.result.exit_code, run.samples["trained"]) == ("done", 0, 4000)
    assert "auc" not in run.metrics and run.metrics["logloss"] > 0
    told = [text_of(line.event) for line in run.events() if isinstance(line.event, EvaluationFinished)]
    assert len(told) > 1, "an evaluation without AUC does not end training early"
    assert all("AUC is not defined: the test set has labels of one class only; log loss 0." in one for one in told)
