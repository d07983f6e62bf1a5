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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.output import write_json
from benchmarks.harness.runner import exit_code, print_outcomes, run
from benchmarks.harness.training_run import EXAMPLES
from benchmarks.harness.workshop import Workshop
from benchmarks.ray_recovery.figures import (
    GroupHurt,
    NodeLost,
    Outcomes,
    figures_of,
    nodes_lost_of,
    peer_nodes_lost_of,
    peer_workers_killed_of,
    workers_killed_of,
)

if TYPE_CHECKING:
    from benchmarks.ray_recovery.ray_bed import RayBed

__all__ = ["main"]

CPUS = (1, 1, 1)
BATCH_SIZE, ROWS = 512, 10_000
SIDES = ("elastichost", "ray-train")
NEEDED = ("ray", "pandas", "tensorboardX")


def measure_own(workers: int, nodes: int) -> Outcomes:
    """workers, nodes: how many of each are killed; a cluster of its own for each node. Raises RuntimeError when it does
    not train."""
    from benchmarks.ray_recovery.elastichost_run import running
    from benchmarks.ray_recovery.ray_bed import RayBed

    settings = (
        f"data.synthetic.table_rows={ROWS}",
        f"tables.default.rows={ROWS}",
        f"train.batch_size={BATCH_SIZE}",
        f"resources.workers={len(CPUS)}",
    )
    job = EXAMPLES / "synthetic.toml"
    with Workshop() as workshop:

        def lose(number: int) -> NodeLost:
            with (
                RayBed(CPUS, workshop.environment()) as bed,
                running(job, settings, bed, workshop, f"node-{number}") as hurt,
            ):
                return hurt.lose_a_node(_end_of(bed))

        with RayBed(CPUS, workshop.environment()) as bed, running(job, settings, bed, workshop, "kills") as hurt:
            killed = run(workers_killed_of(hurt.kill_a_worker, workers))
        lost = run(nodes_lost_of(lose, nodes))
    return {killed.benchmark.title: killed, lost.benchmark.title: lost}


def measure_peer(workers: int, nodes: int) -> tuple[Outcomes, bool]:
    """As `measure_own`; and whether it is elastic."""
    from benchmarks.ray_recovery.ray_bed import RayBed
    from benchmarks.ray_recovery.ray_train import kill_a_worker, training

    with Workshop() as workshop:

        def lose(number: int) -> GroupHurt:
            with (
                RayBed(CPUS, workshop.environment()) as bed,
                training(bed, workshop, f"node-{number}", BATCH_SIZE, ROWS, len(CPUS)) as hurt,
            ):
                strike = _end_of(bed)
                return hurt.hurt(lambda _: strike())

        with (
            RayBed(CPUS, workshop.environment()) as bed,
            training(bed, workshop, "kills", BATCH_SIZE, ROWS, len(CPUS)) as trained,
        ):
            killed = run(peer_workers_killed_of(lambda number: trained.hurt(kill_a_worker(number)), workers))
            is_elastic = trained.is_elastic
        lost = run(peer_nodes_lost_of(lose, nodes))
    return {killed.benchmark.title: killed, lost.benchmark.title: lost}, is_elastic


def _end_of(bed: RayBed) -> Callable[[], None]:
    """Of its last node."""
    return lambda: bed.kill(bed.nodes[-1])


def main(argv: Sequence[str] | None = None) -> int:
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
    times = (1, 1) if chosen.quick else (chosen.workers, chosen.nodes)
    outcomes, version, is_elastic = Outcomes(), "", False
    if "elastichost" in sides:
        outcomes |= measure_own(*times)
    if "ray-train" in sides:
        import ray

        version = ray.__version__
        found, is_elastic = measure_peer(*times)
        outcomes |= found
    print_outcomes(list(outcomes.values()))
    if "ray-train" in sides:
        print(f"\nRay {version}: Ray Train is {'' if is_elastic else 'not '}elastic")
    if chosen.json:
        write_json("ray-recovery", figures_of(outcomes, version, is_elastic=is_elastic))
    return exit_code(outcomes.values())
