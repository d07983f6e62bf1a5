"""Simulated histories: the real loops of supervisor, PS and workers, on simulated sockets, memory and time.

python -m tests.simulation.histories --count 10000
python -m tests.simulation.histories --seed 1234 --log      one history, with every event
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, get_args

from elastichost.arena.dense.store import DenseStore
from elastichost.checkpoint.places import CheckpointSource, RunIdentity
from elastichost.config.job import JobSpec
from elastichost.history.features import JobFeatures
from elastichost.plan import Plan
from elastichost.ps.loop import ServerLoop
from elastichost.runs.observer import SilentObserver
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.core.core_assignment import pin
from elastichost.supervisor.core.reconciler import Limits
from elastichost.supervisor.launch.launcher import Entries
from elastichost.supervisor.startup.initial_plan import InitialPlan
from elastichost.supervisor.startup.preflight import Preparation
from elastichost.supervisor.startup.resume_source import ResumeSource
from elastichost.supervisor.supervisor import Supervisor
from elastichost.tuner.first_plan import FirstPlanRequest, first_plan
from elastichost.wire.commands import ScaleMsg
from elastichost.wire.entry import decode_arguments, failure_report
from elastichost.worker.main import worker_loop
from tests.simulation import invariants
from tests.simulation.computing import MODEL, Samples, description
from tests.simulation.memory import ARENA, Memory, SimArena
from tests.simulation.network import Network, SimControlServer
from tests.simulation.patches import simulated
from tests.simulation.rows import RowBook
from tests.simulation.scenario import Fault, Mode, Scenario, scenario
from tests.simulation.supervision import Checkpoints, SimCommands, SimJournal, SimLauncher, SimSupervisor, stop_signals
from tests.simulation.twin import Twin
from tests.simulation.world import Actor, World, activate

__all__ = ["History", "Stage", "histories", "live"]

LIMIT_S = 300.0
CORES = (0, 1, 2, 3)


@dataclass
class History:
    """The result of one scenario. counts: kind of event -> how often it happened."""

    scenario: Scenario
    violations: list[str]
    log: list[str]
    events: int
    seconds: float
    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return f"seed {self.scenario.seed} ({self.scenario.mode}): " + "\n".join(self.violations)


class Stage:
    """One scenario, ready to run."""

    def __init__(self, chosen: Scenario, run_dir: Path) -> None:
        self.chosen, self.run_dir = chosen, run_dir
        world = self.world = World(chosen.seed)
        activate(world)
        world.network = self.network = Network(world, chosen.messages)
        world.memory, world.book = Memory(), RowBook(MODEL)
        self.book: RowBook = world.book
        world.samples = self.samples = Samples(
            chosen.units, chosen.seed, chosen.bad_percent, chosen.poison, chosen.poison_point
        )
        world.compute_s, world.stall_share = chosen.compute_s, chosen.stall_share
        world.checkpoints = self.checkpoints = Checkpoints(
            lambda manifest, blocks: invariants.check_cut(self, manifest, blocks)
        )
        self.job: JobSpec = chosen.job()
        self.boss = Actor("supervisor", pid=1)
        self.launcher = SimLauncher(self.boss, {"worker": self._worker, "server": self._server})
        self.commands, self.journal = SimCommands(self.boss), SimJournal()
        self.signals = stop_signals(world, self.boss)
        self.supervisor: Supervisor | None = None
        self.run: RunContext | None = None
        self.early_scale = False  # a command may arrive before the first process is requested
        self.twins: dict[frozenset[tuple[int, int]], Twin] = {}
        self.result: tuple[str, Any] | None = None
        world.on_exit, world.on_killed = self._exited, self.network.killed
        for fault in chosen.faults:
            world.later(fault.at_s, lambda fault=fault: self._befall(fault))
        world.start(self.boss, self._supervise)

    # --- processes ------------------------------------------------------------------------------------------

    def _supervise(self) -> int:
        chosen = self.chosen
        run = self.run = self._run()
        access = "direct" if chosen.mode == "direct" else "served"
        request = FirstPlanRequest(cores=CORES, workers=chosen.workers, servers=chosen.servers, access=access)
        first = first_plan(request)
        initial_plan = InitialPlan(request, first, pin(first.plan, CORES).plan, JobFeatures("simulated"), ())
        prepared = Preparation(MODEL.tables, description(self.samples), None, CORES, 1 << 28, initial_plan, ())
        self.supervisor = SimSupervisor(run, prepared, ResumeSource(), self.signals)
        result: Any = self.supervisor.run()
        self.result = result
        self.world.note(f"ended: {result}")
        return 0

    def _run(self) -> RunContext:
        directory = SimpleNamespace(
            path=self.run_dir,
            checkpoints=PurePosixPath("/checkpoints"),
            identity=RunIdentity("r1", "simulated"),
            checkpoint_source=CheckpointSource((), "r1"),
            metrics=PurePosixPath("/metrics"),
            log_of=lambda process: PurePosixPath(f"/logs/{process}"),
            write_error=lambda process, report: None,
            last_log_lines=lambda process, count: "",
        )
        world = self.world
        control: Any = SimControlServer(self.boss)
        stand_ins: Any = SimpleNamespace(
            clock=SimpleNamespace(now_s=lambda: world.now_s),
            directory=directory,
            journal=self.journal,
            launcher=self.launcher,
            commands=self.commands,
            arena=ARENA,
        )
        return RunContext(
            job=self.job,
            run_id="0123456789abcdef",
            job_id=1,
            entries=Entries(),
            clock=stand_ins.clock,
            directory=stand_ins.directory,
            sockets=Path("/sockets"),
            arena=stand_ins.arena,
            journal=stand_ins.journal,
            observer=SilentObserver(),
            launcher=stand_ins.launcher,
            control=control,
            commands=stand_ins.commands,
            plan=Plan((), "served", "nothing yet"),
            limits=Limits(restarts=1_000_000, restart_window_s=60.0, hang_timeout_s=5.0, start_timeout_s=60.0),
            supervisor_pid=1,
        )

    def _worker(self, actor: Actor, arguments: bytes) -> int:
        return self._live(worker_loop, arguments)

    def _server(self, actor: Actor, arguments: bytes) -> int:
        return self._live(ServerLoop, arguments)

    def _live(self, kind: Any, arguments: bytes) -> int:
        """Does what `wire.entry.run_loop` does."""
        loop = kind(decode_arguments(arguments), self.job)
        try:
            loop.run()
        except Exception as error:  # noqa: BLE001 - as `run_loop` does
            self.world.violated(f"{self.world.running.name} failed: {failure_report(error).traceback_text}")
            loop.control.send(failure_report(error))
            return 1
        loop.close()
        return 0

    def _exited(self, actor: Actor, code: int) -> None:
        if actor is self.boss:
            self.world.finish()
        else:
            self.launcher.exited(actor, code)

    # --- faults ---------------------------------------------------------------------------------------------

    def _befall(self, fault: Fault) -> None:
        world = self.world
        world.note(f"fault: {fault}")
        match fault.kind:
            case "pause supervisor":
                self.boss.stands_still_until_s = world.now_s + fault.seconds
            case "scale" if not self.launcher.actors and not self.early_scale:
                world.later(0.01, lambda: self._befall(fault))
            case "scale":
                self.commands.put((b"test", ScaleMsg(workers=fault.workers, servers=fault.servers)))
            case "stop":
                self.signals.count = 1
                self.signals.descriptor.put(1)
            case _:
                self._befall_process(fault)

    def _befall_process(self, fault: Fault) -> None:
        world = self.world
        role = "worker" if "worker" in fault.kind else "server"
        living = self.launcher.live(role)
        if fault.kind == "kill dense owner" and self.supervisor is not None and self.supervisor.components is not None:
            owner = self.supervisor.components.sharding.shard_map.dense_owner
            living = [actor for actor in living if actor.process is not None and actor.process.index == owner] or living
        if not living:
            return
        actor = world.random.choice(living)
        if fault.kind.startswith("pause"):
            actor.stands_still_until_s = world.now_s + fault.seconds
        elif fault.point is None:
            world.kill(actor)
        else:
            actor.dies_at[fault.point] = fault.passes

    @property
    def may_quarantine(self) -> bool:
        """Whether several incarnations may die on the same samples."""
        kills = sum("kill" in fault.kind or "pause" in fault.kind for fault in self.chosen.faults)
        return bool(self.chosen.poison) or kills >= 3

    def dense(self) -> DenseStore:
        """The present dense vector."""
        arena: Any = SimArena.attach(ARENA)
        return DenseStore(arena)


def live(chosen: Scenario, watch: Callable[[Stage], None] = lambda stage: None) -> History:
    """Runs one history. Call it within `simulated()` only. watch: is called before the history begins."""
    began_s = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="history-") as folder:
        stage = Stage(chosen, Path(folder))
        watch(stage)
        world = stage.world
        try:
            world.run(LIMIT_S)
            if not world.violations:
                invariants.check_end(stage)
        finally:
            world.close()
        counts = Counter(event.kind for event in stage.journal.events)
        counts["checkpoint taken"] = stage.checkpoints.committed
        activate(None)
    return History(chosen, world.violations, world.log, world.events, time.perf_counter() - began_s, counts)


def histories(seeds: Iterable[int], mode: Mode | None = None) -> Iterator[History]:
    """The histories of these seeds."""
    with simulated():
        for seed in seeds:
            yield live(scenario(seed, mode))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="seed of the first history")
    parser.add_argument("--seed", type=int, default=None, help="run only the history of this seed")
    parser.add_argument("--mode", choices=get_args(Mode), default=None)
    parser.add_argument("--log", action="store_true", help="print every event of the histories that failed")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.count) if options.seed is None else [options.seed]
    began_s, failed, done, counts = time.perf_counter(), [], 0, Counter[str]()
    for history in histories(seeds, options.mode):
        done += 1
        counts.update(history.counts)
        if history.violations:
            failed.append(history.scenario.seed)
            print(history)
            print(f"    again: python -m tests.simulation.histories --seed {history.scenario.seed} --log")
        if options.log and (history.violations or options.seed is not None):
            print("\n".join([str(history.scenario), *history.log]))
    took_s = time.perf_counter() - began_s
    print(
        f"{done} histories in {took_s:.1f} s, {1000 * took_s / max(1, done):.0f} ms each; "
        f"{len(failed)} failed {failed[:20]}"
    )
    print(", ".join(f"{kind}: {number}" for kind, number in counts.most_common()))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
