"""What faults on a Ray cluster cost, from what was seen of each. Pure, and without Ray."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from benchmarks.harness.measuring import Spread, spread_of

__all__ = ["Figures", "GroupHurt", "NodeLost", "Own", "Peer", "WorkerKilled", "own_of", "peer_of", "rows_of"]


class WorkerKilled(msgspec.Struct, frozen=True):
    """Seconds from the signal. back: its successor has committed a batch; full: training is at 95 % of its rate before,
    None: not within the time it was watched. The others train meanwhile."""

    noticed_s: float
    back_s: float
    full_s: float | None


class NodeLost(msgspec.Struct, frozen=True):
    """Seconds from the signal. ended: the run has (None: it has not, and recovered by itself) and `resume` was called
    at once; back: batches are committed again."""

    noticed_s: float
    ended_s: float | None
    back_s: float


class GroupHurt(msgspec.Struct, frozen=True):
    """One kill: seconds until a group of workers trains again, how many it has, and steps that are done again."""

    back_s: float
    workers: int
    steps_lost: int


class Own(msgspec.Struct, frozen=True):
    """elastichost, in seconds. never_full: kills after which the full rate was not seen again in the time watched;
    in_run: lost nodes that the run survived by itself."""

    worker_noticed: Spread
    worker_back: Spread
    worker_full: Spread | None
    never_full: int
    node_noticed: Spread
    node_back: Spread
    in_run: int


class Peer(msgspec.Struct, frozen=True):
    """Ray Train, in seconds. is_elastic: its ScalingConfig takes a range of workers; workers_after: a lost node."""

    version: str
    is_elastic: bool
    worker_back: Spread
    node_back: Spread
    workers_after: tuple[int, ...]
    steps_again: Spread


class Figures(msgspec.Struct, frozen=True):
    """None: was left out."""

    elastichost: Own | None = None
    ray_train: Peer | None = None


def own_of(killed: Sequence[WorkerKilled], lost: Sequence[NodeLost]) -> Own:
    """Raises ValueError when there are none."""
    full = [one.full_s for one in killed if one.full_s is not None]
    return Own(
        worker_noticed=spread_of(one.noticed_s for one in killed),
        worker_back=spread_of(one.back_s for one in killed),
        worker_full=spread_of(full) if full else None,
        never_full=len(killed) - len(full),
        node_noticed=spread_of(one.noticed_s for one in lost),
        node_back=spread_of(one.back_s for one in lost),
        in_run=sum(one.ended_s is None for one in lost),
    )


def peer_of(version: str, killed: Sequence[GroupHurt], lost: Sequence[GroupHurt], *, is_elastic: bool) -> Peer:
    """Raises ValueError when there are none."""
    return Peer(
        version=version,
        is_elastic=is_elastic,
        worker_back=spread_of(one.back_s for one in killed),
        node_back=spread_of(one.back_s for one in lost),
        workers_after=tuple(one.workers for one in lost),
        steps_again=spread_of(float(one.steps_lost) for one in (*killed, *lost)),
    )


def rows_of(figures: Figures) -> list[tuple[str, str]]:
    """Lines of the table: what, median (least-most) in seconds."""
    rows: list[tuple[str, str]] = []
    if (own := figures.elastichost) is not None:
        rows.append(("elastichost, worker killed: noticed", str(own.worker_noticed)))
        rows.append(("  back", str(own.worker_back)))
        if own.worker_full is not None:
            rows.append(("  full rate", str(own.worker_full)))
        rows.append(("elastichost, node lost: noticed", str(own.node_noticed)))
        rows.append((f"  back ({own.in_run} times within the run, else by resume)", str(own.node_back)))
    if (peer := figures.ray_train) is not None:
        name = f"Ray Train {peer.version}{', elastic' if peer.is_elastic else ''}"
        rows.append((f"{name}, worker killed: back", str(peer.worker_back)))
        rows.append((f"{name}, node lost: back", str(peer.node_back)))
    return rows
