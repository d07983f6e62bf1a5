"""Every value of a run reaches its logger, in order, whatever fails on the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.loggers.delivery import Delivery, progress_of
from elastichost.loggers.logger import Logger, LoggerError, Value
from elastichost.ps.applied_log import AppliedLog
from elastichost.runs.events import EvaluationFinished
from elastichost.runs.facts import EvaluationMemory
from elastichost.runs.journal import Journal
from elastichost.runs.learning_curve import CurveWriter
from elastichost.runs.result import TestFigures as Figures
from elastichost.wire.applied import NONE_LEFT_OUT

BATCH = 10


class Memory:
    """A logger that keeps values, and fails when it is told to."""

    def __init__(self, fails: list[bool] | None = None) -> None:
        self.values: list[Value] = []
        self.closed: list[str] = []
        self.key = "record-1"
        self._fails = fails if fails is not None else []

    def log(self, values: list[Value]) -> None:
        if self._fails and self._fails.pop(0):
            raise ConnectionError("the server is away")
        self.values += values

    def close(self, status: str) -> None:
        self.closed.append(status)


class Bench:
    """The files of a run that goes on."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._log, self._number = AppliedLog(run_dir), 0
        self._curve = CurveWriter(run_dir, BATCH)
        self._journal = Journal(run_dir / "journal.jsonl")

    def train(self, batches: int) -> None:
        for _ in range(batches):
            self._number += 1
            start = self._number * BATCH
            fields = (0, 1, self._number, 1, 0, 0, start, start + BATCH, BATCH, 0, 5.0, NONE_LEFT_OUT)
            self._log.write(self._number, fields)
        self._curve.poll(100.0 + self._number)

    def evaluate(self, auc: float) -> None:
        memory = EvaluationMemory(figures=Figures(auc, None, None, None, 100, metrics={"gauc(u)": 0.6, "f": None}))
        self._journal.write(EvaluationFinished(self._number * BATCH, 100, 1.0, auc, None, None, memory, ""))

    def end(self) -> None:
        self._curve.close(200.0)
        self._journal.close()
        self._log.close()


def delivery(bench: Bench, logger: Logger) -> Delivery:
    return Delivery(bench.run_dir, "test", lambda _: logger)


def test_values_arrive_once_and_in_order(tmp_path: Path) -> None:
    bench, logger = Bench(tmp_path), Memory()
    sent = delivery(bench, logger)
    bench.train(3)
    sent.turn()
    bench.evaluate(0.75)
    bench.train(2)
    bench.end()
    sent.turn()
    sent.close("done")
    losses = [one for one in logger.values if one.name == "train/loss"]
    assert [(one.samples, one.value) for one in losses] == [(samples, 0.5) for samples in (10, 20, 30, 40, 50)]
    assert [one[:3] for one in logger.values if one.name == "test/auc"] == [("test/auc", 30, 0.75)]
    assert [one[:3] for one in logger.values if one.name.startswith("test/g")] == [("test/gauc(u)", 30, 0.6)]
    assert logger.closed == ["done"]
    assert progress_of(tmp_path / "loggers" / "test.json").key == "record-1"


@given(fails=st.lists(st.booleans(), max_size=12), kills=st.lists(st.booleans(), min_size=12, max_size=12))
def test_no_value_is_left_out_when_the_server_fails_and_the_logger_is_killed(
    tmp_path_factory: pytest.TempPathFactory, fails: list[bool], kills: list[bool]
) -> None:
    bench, logger = Bench(tmp_path_factory.mktemp("run")), Memory(fails)
    sent = delivery(bench, logger)
    for is_killed in kills:
        bench.train(1)
        sent.turn()
        if is_killed:
            sent = delivery(bench, logger)  # a new process continues from its file
    bench.end()
    while sent.turn() or not sent.is_complete:
        pass
    assert list(dict.fromkeys(one.samples for one in logger.values)) == [BATCH * (n + 1) for n in range(12)]


def test_a_logger_that_cannot_be_opened_is_tried_again_unless_its_package_is_missing(tmp_path: Path) -> None:
    bench, logger = Bench(tmp_path), Memory()
    bench.train(3)
    raised: list[Exception] = [ConnectionError("no route"), LoggerError("no package")]

    def opened(key: str) -> Logger:
        if raised:
            raise raised.pop(0)
        return logger

    sent = Delivery(tmp_path, "test", opened)
    sent.turn()
    assert (sent.problem, sent.failures, sent.is_complete) == ("ConnectionError: no route", 1, False)
    with pytest.raises(LoggerError, match="no package"):
        sent.turn()
    sent.turn()
    assert sent.is_complete and not sent.problem
    bench.end()


def test_the_next_process_goes_on_with_the_record_that_this_one_has_made(tmp_path: Path) -> None:
    """Regression: if the first values failed, the next process made a second record."""
    bench, keys = Bench(tmp_path), list[str]()

    def opened(key: str) -> Logger:
        keys.append(key)
        return Memory([True])

    for _ in range(2):
        bench.train(3)
        Delivery(tmp_path, "test", opened).turn()
    bench.end()
    assert keys == ["", "record-1"]
    assert progress_of(tmp_path / "loggers" / "test.json").position == progress_of(tmp_path / "none.json").position
