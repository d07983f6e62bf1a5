"""Recovery on Ray: what a killed worker and a lost node cost, and Ray Train's elastic trainer on the same cluster.

    python -m elastichost bench ray-recovery            about ten minutes
    python -m elastichost bench ray-recovery --quick    one of each

A Ray cluster of three nodes, all on this machine, is made for it. Both sides train a DLRM of the same sizes with one
worker a node; both are hurt in the same ways:

    worker    kill -9 of one worker
    node      all processes of Ray on one node are killed (not the first); the other two go on

Seconds are from the signal: `back` until the successor (Ray Train: the new group of workers) has trained a batch, after
a lost node until batches are trained again. elastichost: while a worker is replaced the others train, `full` is when
all are at 95 % of the rate before; a run that a lost node ends is resumed at once, one that recovers by itself is not.
Ray Train: `steps again` are those since its newest checkpoint, one every 50 steps; its settings are the defaults.
The machine of a killed node still answers that nobody listens, so elastichost knows at once; one without power is lost
after `timeout_s`, 10 s.

It needs Ray Train: pip install -r benchmarks/requirements-ray.txt
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.measuring import print_table, write_json
from benchmarks.harness.training_run import EXAMPLES
from benchmarks.harness.workshop import Workshop
from benchmarks.ray_recovery.figures import (
    Figures,
    GroupHurt,
    NodeLost,
    Own,
    Peer,
    WorkerKilled,
    own_of,
    peer_of,
    rows_of,
)

if TYPE_CHECKING:
    from benchmarks.ray_recovery.ray_bed import RayBed

__all__ = ["main"]

CPUS = (1, 1, 1)
BATCH_SIZE, ROWS = 512, 10_000
SIDES = ("elastichost", "ray-train")
NEEDED = ("ray", "pandas", "tensorboardX")


def measure(workers: int, nodes: int, sides: Sequence[str]) -> Figures:
    """workers, nodes: how many of each are killed. Raises RuntimeError when a side does not train."""
    own = _own(workers, nodes) if "elastichost" in sides else None
    return Figures(own, _peer(workers, nodes) if "ray-train" in sides else None)


def _own(workers: int, nodes: int) -> Own:
    from benchmarks.ray_recovery.elastichost_run import running
    from benchmarks.ray_recovery.ray_bed import RayBed

    settings = (
        f"data.synthetic.table_rows={ROWS}",
        f"tables.default.rows={ROWS}",
        f"train.batch_size={BATCH_SIZE}",
        f"resources.workers={len(CPUS)}",
    )
    job = EXAMPLES / "synthetic.toml"
    killed: list[WorkerKilled] = []
    lost: list[NodeLost] = []
    with Workshop() as workshop:
        with RayBed(CPUS, workshop.environment()) as bed, running(job, settings, bed, workshop, "kills") as run:
            for number in range(workers):
                _say(f"elastichost: worker {number + 1} of {workers}")
                killed.append(run.kill_a_worker(number))
        for number in range(nodes):
            _say(f"elastichost: node {number + 1} of {nodes}")
            with (
                RayBed(CPUS, workshop.environment()) as bed,
                running(job, settings, bed, workshop, f"node-{number}") as run,
            ):
                lost.append(run.lose_a_node(_end_of(bed)))
    return own_of(killed, lost)


def _peer(workers: int, nodes: int) -> Peer:
    import ray

    from benchmarks.ray_recovery.ray_bed import RayBed
    from benchmarks.ray_recovery.ray_train import kill_a_worker, training

    killed: list[GroupHurt] = []
    lost: list[GroupHurt] = []
    with Workshop() as workshop:
        with (
            RayBed(CPUS, workshop.environment()) as bed,
            training(bed, workshop, "kills", BATCH_SIZE, ROWS, len(CPUS)) as run,
        ):
            for number in range(workers):
                _say(f"Ray Train: worker {number + 1} of {workers}")
                killed.append(run.hurt(kill_a_worker(number)))
            is_elastic = run.is_elastic
        for number in range(nodes):
            _say(f"Ray Train: node {number + 1} of {nodes}")
            with (
                RayBed(CPUS, workshop.environment()) as bed,
                training(bed, workshop, f"node-{number}", BATCH_SIZE, ROWS, len(CPUS)) as run,
            ):
                strike = _end_of(bed)
                lost.append(run.hurt(lambda _, strike=strike: strike()))
    return peer_of(ray.__version__, killed, lost, is_elastic=is_elastic)


def _end_of(bed: RayBed) -> Callable[[], None]:
    """Of its last node."""
    return lambda: bed.kill(bed.nodes[-1])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- what is shown ----------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="elastichost bench ray-recovery", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one of each")
    parser.add_argument("--workers", type=int, default=10, help="so many kills of a worker, of each side")
    parser.add_argument("--nodes", type=int, default=5, help="so many lost nodes, of each side")
    parser.add_argument("--only", default=",".join(SIDES), metavar="SIDES", help=f"comma-separated: {', '.join(SIDES)}")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    chosen = parser.parse_args(argv)
    sides = chosen.only.split(",")
    if unknown := set(sides) - set(SIDES):
        parser.error(f"unknown sides: {', '.join(sorted(unknown))}; there are {', '.join(SIDES)}")
    needed = NEEDED if "ray-train" in sides else NEEDED[:1]
    if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
        parser.error(
            f"{', '.join(missing)} is not installed: pip install -r {Path(__file__).parents[1]}/requirements-ray.txt"
        )
    figures = measure(1 if chosen.quick else chosen.workers, 1 if chosen.quick else chosen.nodes, sides)
    show(figures)
    if chosen.json:
        write_json("ray-recovery", figures)


def show(figures: Figures) -> None:
    """On stdout."""
    print_table(("seconds", "median (least-most)"), rows_of(figures))
    if (own := figures.elastichost) is not None and own.never_full:
        print(f"elastichost: after {own.never_full} kills the full rate was not seen in the time watched")
    if (peer := figures.ray_train) is not None:
        print(f"Ray Train: {peer.steps_again} steps again after each; workers after a lost node: {peer.workers_after}")


if __name__ == "__main__":
    main()
