"""Evaluations: every position is scored once, scores are checked, and early stopping follows the metric."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastichost.config.metric_names import ALWAYS
from elastichost.config.sections.schema import EvaluateSection
from elastichost.errors import ProtocolError
from elastichost.plan import ProcessId
from elastichost.quality.own_metrics import OwnFigure
from elastichost.runs.facts import EvaluationMemory
from elastichost.runs.result import TestFigures as Figures
from elastichost.supervisor.controllers.evaluations import figures, job_metrics
from elastichost.supervisor.ledger.checkpoint_record import RunRecord
from elastichost.supervisor.ledger.early_stopping import EarlyStop
from elastichost.supervisor.ledger.evaluation import MAX_OUTSTANDING, EvaluationRound
from elastichost.supervisor.ledger.ledger import Ledger, LedgerSettings
from elastichost.wire.control import EvaluationGrantMsg, EvaluationScoresMsg

METRICS = job_metrics(EvaluateSection())
LABELS = ("clicked", "bought")
WORKERS = [ProcessId("worker", index, 1) for index in range(3)]


def frames_of(unit: int, start: int, stop: int, labels: int = 1) -> list[memoryview]:
    """The frames of a worker's scores; the logit of a position is made from its number."""
    positions = np.arange(start, stop, dtype=np.float32)
    logits = np.repeat(positions + 1000 * unit, labels).astype(np.float32)
    arrays = (logits, logits % 2, np.empty(0, np.float32), positions / 1e4, np.empty(0, np.int64), np.empty(0, bool))
    return [memoryview(a.tobytes()) for a in arrays]


def answer(grant: EvaluationGrantMsg, skipped: int = 0) -> EvaluationScoresMsg:
    """The answer of a worker to a grant."""
    samples = grant.stop - grant.start - skipped
    return EvaluationScoresMsg(grant.round, grant.unit, grant.start, grant.stop, samples, skipped)


@given(
    units=st.lists(st.integers(0, 50), max_size=4),
    turns=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["ask", "score", "die", "again"])), max_size=60),
)
def test_every_position_is_scored_once_although_workers_die(units: list[int], turns: list[tuple[int, str]]) -> None:
    evaluation = EvaluationRound(3, units, 7, 1)
    held: dict[int, list[EvaluationGrantMsg]] = {0: [], 1: [], 2: []}
    sent: list[tuple[int, EvaluationGrantMsg]] = []
    everyone = [(0, "ask"), (0, "score")] * 60
    for index, turn in (*turns, (0, "die"), (1, "die"), (2, "die"), *everyone):
        worker = WORKERS[index]
        if turn == "ask":
            may_take = evaluation.may_take(worker)
            assert may_take == (evaluation.has_pending and len(held[index]) < MAX_OUTSTANDING)
            grant = evaluation.request(worker, 20.0)
            assert (grant is not None) == may_take
            held[index] += [grant] if grant is not None else []
        elif turn == "score" and held[index]:
            grant = held[index].pop(0)
            assert evaluation.scored(worker, answer(grant), frames_of(grant.unit, grant.start, grant.stop))
            sent.append((index, grant))
        elif turn == "die":
            evaluation.lost(worker)
            held[index].clear()
        elif turn == "again" and sent:
            late, grant = sent[-1]
            assert not evaluation.scored(WORKERS[late], answer(grant), frames_of(grant.unit, grant.start, grant.stop))
    assert evaluation.is_done
    expected = [1000 * unit + position for unit, samples in enumerate(units) for position in range(samples)]
    assert evaluation.result().logits[:, 0].tolist() == expected


def test_scores_with_wrong_frames_are_refused() -> None:
    evaluation = EvaluationRound(1, [10], 10, 2)
    grant = evaluation.request(WORKERS[0], 0.0)
    assert grant is not None
    with pytest.raises(ProtocolError, match="instead of 80"):
        evaluation.scored(WORKERS[0], answer(grant), frames_of(0, 0, 10, labels=1))
    with pytest.raises(ProtocolError, match="3 frames"):
        evaluation.scored(WORKERS[0], answer(grant), frames_of(0, 0, 10, labels=2)[:3])
    assert evaluation.scored(WORKERS[0], answer(grant), frames_of(0, 0, 10, labels=2))
    assert evaluation.result().logits.shape == (10, 2)


def test_skipped_rows_are_counted_and_not_scored() -> None:
    evaluation = EvaluationRound(1, [10], 10, 1)
    grant = evaluation.request(WORKERS[0], 0.0)
    assert grant is not None
    assert evaluation.scored(WORKERS[0], answer(grant, skipped=4), frames_of(0, 4, 10))
    result = evaluation.result()
    assert (result.samples, result.skipped) == (6, 4)
    assert result.weights is None
    assert result.truth is not None


def test_figures_of_perfect_and_of_undefined_scores() -> None:
    evaluation = EvaluationRound(1, [4], 4, 1)
    grant = evaluation.request(WORKERS[0], 0.0)
    assert grant is not None
    logits, labels = np.array([-3, 3, -2, 2], np.float32), np.array([0, 1, 0, 1], np.float32)
    empty = memoryview(b"")
    assert evaluation.scored(
        WORKERS[0], answer(grant), [memoryview(logits.tobytes()), memoryview(labels.tobytes()), *[empty] * 4]
    )
    report = figures(evaluation.result(), METRICS, ["clicked"])
    assert (report.auc, report.samples, report.truth_auc) == (1.0, 4, None)
    assert figures(EvaluationRound(1, [], 4, 1).result(), METRICS, ["clicked"]).auc is None


def test_groups_and_labels_have_figures_of_their_own() -> None:
    metrics = job_metrics(EvaluateSection(metrics=("gauc(user)", "recall@1(user)", "m.py:f")))
    evaluation = EvaluationRound(1, [3, 3], 3, 2, num_groups=1)
    while (grant := evaluation.request(WORKERS[0], 0.0)) is not None:
        logits, labels = np.array([[1, 1], [2, 2], [9, 9]], np.float32), np.array([[0, 1], [1, 0], [1, 0]], np.float32)
        groups, has_group = np.array([7, 7, 0]) + grant.unit, np.array([True, True, False])
        empty = np.empty(0, np.float32)
        arrays = (logits, labels, empty, empty, groups, has_group)
        assert evaluation.scored(WORKERS[0], answer(grant), [memoryview(a.tobytes()) for a in arrays])
    own = [OwnFigure("m.py:f", 0, 0.5), OwnFigure("m.py:f", 1, None, "ValueError")]
    found = figures(evaluation.result(), metrics, ["clicked", "bought"], own)
    assert found.metrics == {
        "auc[clicked]": found.auc_of_labels[0],
        "auc[bought]": found.auc_of_labels[1],
        **{f"{name}[{label}]": found.metrics[f"{name}[{label}]"] for name in ALWAYS[1:] for label in LABELS},
        "gauc(user)": 0.5,
        "gauc(user)[clicked]": 1.0,
        "gauc(user)[bought]": 0.0,
        "recall@1(user)": 0.5,
        "recall@1(user)[clicked]": 1.0,
        "recall@1(user)[bought]": 0.0,
        "m.py:f": None,
        "m.py:f[clicked]": 0.5,
        "m.py:f[bought]": None,
    }
    assert found.figure("auc") == found.auc and found.figure("gauc(user)[clicked]") == 1.0
    assert found.figure("ndcg@9(user)") is None


def test_early_stop_counts_evaluations_without_a_better_metric() -> None:
    stop = EarlyStop("auc", 2, is_higher_better=True)
    assert [stop.observe(value).stop for value in (0.7, 0.8, 0.79, 0.81, 0.81, 0.8)] == [False] * 5 + [True]
    down = EarlyStop("logloss", 1, is_higher_better=False)
    assert [down.observe(value).stop for value in (0.5, 0.4, 0.45)] == [False, False, True]
    never = EarlyStop("auc", 0, is_higher_better=True)
    assert not any(never.observe(value).stop for value in (0.9, 0.1, math.nan))


def test_an_undefined_metric_does_not_stop_training() -> None:
    stop = EarlyStop("auc", 1, is_higher_better=True)
    found = [stop.observe(value) for value in (None, math.nan, None)]
    assert not any(one.stop for one in found) and {one.best for one in found} == {None}
    assert found[0].reason == "AUC is not defined: the test set has labels of one class only"
    assert EarlyStop("logloss", 0, is_higher_better=False).observe(0.5).reason == "log loss 0.50000"
    assert [stop.observe(value).stop for value in (0.7, None, 0.6)] == [False, False, True]


def test_early_stopping_continues_from_a_saved_state() -> None:
    before = EarlyStop("auc", 2, is_higher_better=True)
    for value in (0.7, 0.8, 0.79):
        before.observe(value)
    after = EarlyStop("auc", 2, is_higher_better=True)
    after.recall(*before.memory)
    assert after.observe(0.79).stop


def test_a_checkpoint_keeps_the_evaluations_and_an_older_one_is_read() -> None:
    memory = EvaluationMemory(400, Figures(0.75, 0.5, None, 1.0, 90), 0.76, 1)
    record = RunRecord(Ledger(LedgerSettings((10,), 1, 4)).state(), 5, 6, 7, memory)
    text = msgspec.json.encode(record)
    assert msgspec.json.decode(text, type=RunRecord) == record
    older = msgspec.json.decode(text)
    del older["evaluations"]
    assert msgspec.convert(older, RunRecord).evaluations == EvaluationMemory()
