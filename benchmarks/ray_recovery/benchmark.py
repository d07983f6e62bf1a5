"""Recovery on Ray: the cost of a killed worker and of a lost node, compared with Ray Train's elastic trainer.

    python -m elastichost bench ray-recovery            about ten minutes
    python -m elastichost bench ray-recovery --quick    one of each

The benchmark starts a Ray cluster of three nodes on this machine. Both sides train a DLRM of the same sizes with one
worker for each node, and both get the same faults:

    worker    kill -9 of one worker
    node      all Ray processes of one node (not the first) are killed; the other two nodes continue

Times are seconds from the signal. `back`: a successor (Ray Train: the new group of workers) has trained a batch; after
a lost node: batches are trained again. elastichost: the other workers train while one is replaced, and `full` is the
time until the rate is 95 % of the rate before. If a lost node ends the run, it is resumed at once. Ray Train: `steps
again` are the steps since its newest checkpoint, which it writes every 50 steps; its settings are the defaults. The
machine of a killed node still refuses connections, so elastichost detects the loss at once. The loss of a machine
without power is detected after `timeout_s`, 10 s.

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
    """Measures elastichost. workers, nodes: the number of kills of each; every lost node gets a new cluster. Raises
    RuntimeError if the run does not train."""
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
    """Measures Ray Train as `measure_own` does; also returns whether Ray Train is elastic."""
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
    """A function that kills the last node of the cluster."""
    return lambda: bed.kill(bed.nodes[-1])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="elastichost bench ray-recovery", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one fault of each kind")
    parser.add_argument("--workers", type=int, default=10, help="number of killed workers on each side")
    parser.add_argument("--nodes", type=int, default=5, help="number of lost nodes on each side")
    parser.add_argument("--only", default=",".join(SIDES), metavar="SIDES", help=f"comma-separated: {', '.join(SIDES)}")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    chosen = parser.parse_args(argv)
    sides = chosen.only.split(",")
    if unknown := set(sides) - set(SIDES):
        parser.error(f"unknown sides: {', '.join(sorted(unknown))}; choose from {', '.join(SIDES)}")
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
