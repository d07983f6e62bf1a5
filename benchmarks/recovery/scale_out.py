"""Scale-out: from the request of a worker to the first batch it has committed, while another worker trains; and how
long buckets take to change hands when PS come and go.

The requests are commands to the run, as `elastichost scale` sends them. Where the time goes is told by the run's
journal and by the arena, where this process sees the commit itself:

    decide     the command is sent -> the supervisor's decision to start the worker
    fork       -> the fork server has forked the process and told its pid
    hello      -> its first message: arguments, job file, sockets
    build      -> Ready: the user's model, the arena, the readers, the shard map, the dense vector
    lease      -> its first lease is granted
    batch      -> its first batch is committed: reading, rows, forward, backward, commit
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks.harness.measuring import percentile, print_table, write_json
from benchmarks.harness.training_run import EXAMPLES
from benchmarks.harness.workshop import ROOT, Workshop
from elastichost.arena.arena import Arena
from elastichost.arena.dense.store import DenseStore
from elastichost.chaos.tails import JournalTail
from elastichost.metrics import RunStatus
from elastichost.runs.events import JournalLine
from elastichost.wire.commands import AcceptedMsg, CommandClient, ReachedMsg, ScaleMsg

__all__ = ["main"]

Found = TypeVar("Found")

WORKER = 1  # the one that comes and goes; worker 0 trains all the time
BATCHES_BETWEEN = 20  # committed by an incarnation before it is sent away
HAND_OVERS = 10  # PS come and go so often
POLL_S = 0.0005
LIMIT_S = 180.0
AIM_S = 0.3
STEPS = ("decide", "fork", "hello", "build", "lease", "batch")
SETTINGS = {
    "resources.workers": 1,
    "resources.servers": 1,
    "checkpoint.every_s": 1e6,
    "evaluate.every_samples": 0,
    "train.epochs": 1_000_000,
    "tuner.mode": "off",
}


class ScaleOut(msgspec.Struct, frozen=True):
    """One worker that came, in seconds: the steps, one after another, and `left_s`: how long it took to leave."""

    steps_s: dict[str, float]
    left_s: float

    @property
    def total_s(self) -> float:
        return sum(self.steps_s.values())


class HandOver(msgspec.Struct, frozen=True):
    """One PS that came or went: buckets moved, seconds from freeze to publish, lowest throughput over that before."""

    moved: int
    took_s: float
    dip: float


class Percentiles(msgspec.Struct, frozen=True):
    p50: float
    p99: float
    worst: float


class Figures(msgspec.Struct, frozen=True):
    """In seconds. `steps`: of each step by itself; `left`: a worker's way out; `hand_over`: freeze to publish, of
    `buckets` at a time; `dip`: the lowest rate in 200 ms of a hand-over, as a share of the rate before."""

    times: int
    total: Percentiles
    steps: dict[str, Percentiles]
    left: Percentiles
    hand_overs: int
    hand_over: Percentiles
    buckets: int
    dip_p50: float
    dip_worst: float
    aim_s: float = AIM_S


class RunUnderWay:
    """A job of one worker and one PS, seen from outside."""

    def __init__(self, job: Path, settings: Sequence[str], workshop: Workshop) -> None:
        own = [f"{key}={value}" for key, value in SETTINGS.items()]
        run_dir = workshop.disk / "run"
        self._memory = workshop.memory
        self._log = (workshop.disk / "log").open("w+")
        command = [sys.executable, "-m", "elastichost", "run", str(job), "--dashboard", "no", "--run-dir", str(run_dir)]
        for setting in (*own, *settings):
            command += ["--set", setting]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**workshop.environment(), "ELASTICHOST_ARENA_DIR": str(workshop.memory)},
        )
        self._tail = JournalTail(run_dir / "journal.jsonl")
        self._status = run_dir / "status.json"
        self.lines: list[JournalLine] = []
        self.dense = DenseStore(Arena.attach(self.wait(self._arena)))
        self._commands = self.wait(self._address)

    def _address(self) -> str | None:
        """Where the run takes commands."""
        status = msgspec.json.decode(self._status.read_bytes(), type=RunStatus) if self._status.exists() else None
        return status.commands if status is not None else None

    def ask(self, command: ScaleMsg, *, until_reached: bool = False) -> ReachedMsg | None:
        """Returns when it is accepted, or so. Raises RuntimeError when it is refused."""
        client = CommandClient(self._commands)
        try:
            client.send(command)
            while True:
                reply = client.receive(LIMIT_S)
                if isinstance(reply, ReachedMsg):
                    return reply
                if not isinstance(reply, AcceptedMsg):
                    raise RuntimeError(f"{command}: {reply}")
                if not until_reached:
                    return None
        finally:
            client.close()

    def _arena(self) -> Path | None:
        found = list(self._memory.glob("*/LAYOUT.json"))
        return found[0].parent if found else None

    def wait(self, look: Callable[[], Found | None]) -> Found:
        """What `look` finds; raises RuntimeError when the run ends before, or after too long."""
        deadline_s = time.monotonic() + LIMIT_S
        while (found := look()) is None:
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                self._log.seek(0)
                raise RuntimeError(f"the run ended, or did nothing for {LIMIT_S:g} s:\n{self._log.read()[-4000:]}")
            time.sleep(POLL_S)
        return found

    def line(self, kind: str, process: str, after_s: float) -> JournalLine | None:
        """The first of its kind after a moment of the monotonic clock."""
        self.lines += self._tail.poll()
        for line in self.lines:
            if line.kind == kind and line.event.subject == process and line.monotonic_s >= after_s:
                return line
        return None

    def committed_s(self, incarnation: int, batches: int) -> float | None:
        """Now, once an incarnation of the worker has committed so many batches."""
        return time.monotonic() if self.dense.applied(WORKER, incarnation).sequence >= batches else None

    def close(self) -> None:
        """Ends the run with everything it started."""
        for _ in range(2):
            self.process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        self.process.wait(30)
        self._log.close()


# --- measuring ----------------------------------------------------------------------------------------------------


def scale_out(run: RunUnderWay, incarnation: int) -> ScaleOut:
    """Asks for the worker, watches this incarnation of it come and train a little, and sends it away again."""
    name = f"worker-{WORKER}"
    asked_s = time.monotonic()
    run.ask(ScaleMsg(workers=2))
    trained_s = run.wait(lambda: run.committed_s(incarnation, 1))
    moments = [asked_s, run.wait(lambda: run.line("process_starting", name, asked_s)).monotonic_s]
    for kind in ("process_started", "process_connected", "process_ready", "lease_granted"):
        moments.append(run.wait(lambda kind=kind: run.line(kind, name, asked_s)).monotonic_s)  # type: ignore[misc]
    moments.append(trained_s)
    steps_s = {step: after - before for step, (before, after) in zip(STEPS, pairwise(moments), strict=True)}
    run.wait(lambda: run.committed_s(incarnation, BATCHES_BETWEEN))
    left_s = time.monotonic()
    run.ask(ScaleMsg(workers=1))
    gone_s = run.wait(lambda: run.line("process_ended", name, left_s)).monotonic_s
    run.lines.clear()
    return ScaleOut(steps_s, gone_s - left_s)


def hand_over(run: RunUnderWay, servers: int) -> HandOver:
    """Another number of PS, watched until all is calm again."""
    reached = run.ask(ScaleMsg(servers=servers), until_reached=True)
    assert reached is not None
    run.lines.clear()
    figures = msgspec.convert(reached.data, type=_HandOverFigures)
    return HandOver(figures.buckets_moved, figures.handover_s, figures.dip)


class _HandOverFigures(msgspec.Struct, frozen=True):
    """What the run says of it."""

    buckets_moved: int
    handover_s: float
    dip: float


def percentiles(values: Sequence[float]) -> Percentiles:
    return Percentiles(percentile(values, 50), percentile(values, 99), max(values))


def figures_of(found: Sequence[ScaleOut], moves: Sequence[HandOver]) -> Figures:
    """Raises ValueError when there are none."""
    return Figures(
        times=len(found),
        total=percentiles([one.total_s for one in found]),
        steps={step: percentiles([one.steps_s[step] for one in found]) for step in STEPS},
        left=percentiles([one.left_s for one in found]),
        hand_overs=len(moves),
        hand_over=percentiles([move.took_s for move in moves]),
        buckets=max(move.moved for move in moves),
        dip_p50=percentile([move.dip for move in moves], 50),
        dip_worst=min(move.dip for move in moves),
    )


def measure(job: Path, times: int, settings: Sequence[str], hand_overs: int = HAND_OVERS) -> Figures:
    """Raises RuntimeError when the run ends meanwhile."""
    with Workshop() as workshop:
        run = RunUnderWay(job, settings, workshop)
        run.wait(lambda: run.line("lease_granted", "worker-0", 0.0))
        found = [scale_out(run, incarnation) for incarnation in range(1, times + 1)]
        moves = [hand_over(run, 2 - number % 2) for number in range(hand_overs)]
        run.close()
    return figures_of(found, moves)


def show(figures: Figures) -> None:
    """On stdout."""

    def row(name: str, found: Percentiles, aim: str = "") -> tuple[str, ...]:
        return (name, *(f"{1e3 * value:.0f}" for value in (found.p50, found.p99, found.worst)), aim)

    print(f"ms from the request of a worker to its first committed batch, {figures.times} times")
    steps = [row(f"  {step}", found) for step, found in figures.steps.items()]
    more = [row("worker leaves", figures.left), row(f"{figures.buckets} buckets change hands", figures.hand_over)]
    aim = f"<= {1e3 * figures.aim_s:.0f}"
    print_table(("", "p50", "p99", "worst", "aim"), [row("total", figures.total, aim), *steps, *more])
    print(
        f"throughput in the worst 200 ms of a hand-over: {100 * figures.dip_p50:.0f} % of before (median of "
        f"{figures.hand_overs}), {100 * figures.dip_worst:.0f} % at the worst"
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="scale-out", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=50, help="workers that come and go (50)")
    parser.add_argument(
        "--hand-overs", type=int, default=HAND_OVERS, help=f"how often a PS comes or goes ({HAND_OVERS})"
    )
    parser.add_argument(
        "--job", type=Path, default=EXAMPLES / "synthetic.toml", help="job file (the synthetic example)"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="more settings of the job")
    parser.add_argument("--json", action="store_true", help="the last line is one JSON object")
    chosen = parser.parse_args(argv)
    figures = measure(chosen.job, chosen.times, chosen.set, chosen.hand_overs)
    show(figures)
    if chosen.json:
        write_json("scale-out", figures)


if __name__ == "__main__":
    main()
