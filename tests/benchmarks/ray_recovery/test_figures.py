"""The figures of the recovery benchmark on Ray are what they say."""

from __future__ import annotations

from benchmarks.ray_recovery.figures import Figures, GroupHurt, NodeLost, WorkerKilled, own_of, peer_of, rows_of

KILLED = [WorkerKilled(0.1, 0.3, 0.5), WorkerKilled(0.2, 0.4, None), WorkerKilled(0.1, 0.9, 0.7)]
LOST = [NodeLost(2.0, None, 3.0), NodeLost(2.5, 5.0, 15.0)]


def test_medians_of_what_was_seen() -> None:
    own = own_of(KILLED, LOST)
    assert (own.worker_noticed.median, own.worker_back.median, own.worker_back.most) == (0.1, 0.4, 0.9)
    assert own.worker_full is not None and own.worker_full.median == 0.6
    assert (own.never_full, own.in_run) == (1, 1)
    assert (own.node_noticed.median, own.node_back.median) == (2.25, 9.0)


def test_a_side_that_was_left_out_has_no_lines() -> None:
    peer = peer_of("2.60", [GroupHurt(9.0, 3, 10)], [GroupHurt(40.0, 2, 30)], is_elastic=True)
    assert (peer.steps_again.median, peer.workers_after) == (20.0, (2,))
    lines = dict(rows_of(Figures(ray_train=peer)))
    assert lines == {
        "Ray Train 2.60, elastic, worker killed: back": "9 (9-9)",
        "Ray Train 2.60, elastic, node lost: back": "40 (40-40)",
    }
    assert len(rows_of(Figures(own_of(KILLED[1:2], LOST), peer))) == len(lines) + 4
