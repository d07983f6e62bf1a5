"""The loop of a chaos run: starts the job, follows the plan of faults, measures recoveries, stops it, checks all."""

from __future__ import annotations

import contextlib
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from elastichost.arena.host import socket_directory
from elastichost.chaos.facts import RunFacts, read_facts
from elastichost.chaos.faults.bad_input import check_refusals, feed_bad_input, send_garbage
from elastichost.chaos.faults.message_faults import MessageRates
from elastichost.chaos.faults.process_faults import (
    FAULTS,
    Fault,
    KillForkServer,
    OpenFault,
    Recovered,
    ReplaceSupervisor,
)
from elastichost.chaos.faults.processes import MARK, marked_processes
from elastichost.chaos.faults.proxy import FaultProxy
from elastichost.chaos.goodput import Goodput
from elastichost.chaos.hand_overs import check_hand_overs, read_audit
from elastichost.chaos.invariants import (
    Leftovers,
    check_applied,
    check_leftovers,
    check_recovery,
    check_samples,
)
from elastichost.chaos.schedule import Planned, plan_faults, plan_stretches
from elastichost.chaos.target import RunUnderChaos
from elastichost.chaos.twin import run_twins
from elastichost.chaos.verdicts import Verdict
from elastichost.config.job import JobSpec
from elastichost.errors import ConfigError, ElastichostError, JobFailedError
from elastichost.ps.audit import AUDIT_VARIABLE
from elastichost.wire.sockets import VIA_VARIABLE

__all__ = ["ChaosOrder", "ChaosReport", "run_chaos"]

START_LIMIT_S = 180.0
RECOVERY_LIMIT_S = 60.0  # what is open for longer has not recovered
WARM_S = 2.0  # training has begun: readers, allocators and caches come to their speed
GONE_LIMIT_S = 5.0
GARBAGE_WATCH_S = 2.0
WITHOUT_START = {fault.name for fault in FAULTS if isinstance(fault, KillForkServer | ReplaceSupervisor)}
# Of the median recovery; the aim is 1 s on a machine that does nothing else. Importing torch has no bound.
BOUNDS_S = dict.fromkeys(("worker", "server", "pair"), 3.0)

Say = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class ChaosOrder:
    """What is to be done. settings: `--set` of the run; kinds: names of faults, () for all; machines: a file of other
    machines, which are this one."""

    job: Path
    spec: JobSpec
    settings: tuple[str, ...]
    run_dir: Path
    seed: int
    duration_s: float
    every_s: float
    kinds: tuple[str, ...] = ()
    messages: MessageRates | None = None
    has_twins: bool = True
    machines: Path | None = None


@dataclass(slots=True)
class ChaosReport:
    """What came of it. `recovered`: every fault that was recovered from; `struck`: how often each."""

    verdicts: tuple[Verdict, ...] = ()
    struck: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    recovered: list[tuple[OpenFault, Recovered]] = field(default_factory=list)
    goodput: Goodput = field(default_factory=Goodput)
    trained: int = 0
    messages: Mapping[tuple[str, str], int] = field(default_factory=dict)
    failure: str = ""

    @property
    def violations(self) -> tuple[str, ...]:
        found = [f"{v.promise}: {line}" for v in self.verdicts for line in v.violations]
        return (*([f"the run: {self.failure}"] if self.failure else []), *found)

    def times_s(self, kind: str) -> list[float]:
        """Recoveries of one kind, where the fork server and the supervisor were there meanwhile: without them nobody
        can be started."""
        return [
            one.seconds
            for struck, one in self.recovered
            if one.kind == kind and not one.is_superseded and not WITHOUT_START & (set(struck.met) - {struck.fault})
        ]


def run_chaos(order: ChaosOrder, say: Say) -> ChaosReport:
    """Runs the job under faults. `say` is told (seconds since training began, what happened) for each fault.

    Raises JobFailedError when the run never began to train."""
    report = ChaosReport()
    environment = {AUDIT_VARIABLE: "1", **({VIA_VARIABLE: "1"} if order.messages is not None else {})}
    hang_timeout_s = order.spec.supervision.hang_timeout_s
    is_sync = order.spec.train.mode == "sync"
    hosts = order.spec.resources.hosts
    target = RunUnderChaos(
        order.job, order.settings, order.run_dir, hang_timeout_s, environment, is_sync, hosts, order.machines
    )
    with target as run:
        soak = _Soak(order, run, report, say)
        garbage: list[str] = []
        sent = 0
        try:
            soak.begin()
            soak.run_plan()
            sent, garbage = soak.garbage()
            run.end(signal.SIGINT)
            if run.exit_code != 75:
                raise JobFailedError(f"SIGINT ended the run with {run.exit_code}:\n{run.log}")
        except ElastichostError as error:
            if not run.applied.first_s and not report.struck:
                raise
            report.failure = error.message
        finally:
            soak.close()
        leftovers = _wait_gone(run) if run.exit_code is not None else None
        report.verdicts = _judge(order, run, report, soak, leftovers, sent, garbage, say)
    return report


class _Soak:
    """The time between the first sample and the last."""

    def __init__(self, order: ChaosOrder, run: RunUnderChaos, report: ChaosReport, say: Say) -> None:
        self._order, self._run, self._report, self._say = order, run, report, say
        self._faults: dict[str, Fault] = {f.name: f for f in FAULTS if not order.kinds or f.name in order.kinds}
        self._stretches = plan_stretches(order.duration_s)
        self._proxies = contextlib.ExitStack()
        self._proxy: FaultProxy | None = None
        self._proxied: set[str] = set()
        self._began_s = 0.0
        self.open: list[OpenFault] = []
        self.never: list[str] = []

    # --- the course -----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Waits until the job trains. Raises JobFailedError when it does not come to that."""
        deadline_s = self._run.now_s() + START_LIMIT_S
        while not (self._run.applied.first_s and self._run.scene.is_whole):
            self._turn()
            if self._run.now_s() > deadline_s:
                raise JobFailedError(f"the run does not train after {START_LIMIT_S:g} s:\n{self._run.log}")
        self._wait(WARM_S)
        self._began_s = self._run.now_s()

    def run_plan(self) -> None:
        """Every stretch and every fault of the plan, then the recovery from the last one."""
        chosen = bool(self._order.kinds)  # who names faults wants to see each of them
        weights = {name: 1.0 if chosen else fault.weight for name, fault in self._faults.items()}
        planned = plan_faults(self._order.seed, self._stretches, self._order.every_s, weights)
        for one in planned:
            while self._elapsed_s() < one.at_s:
                self._turn()
                self._measure()
            self._strike(one)
        while self._elapsed_s() < self._stretches[-1].stop_s or self.open or not self._run.is_settled:
            self._turn()
            self._measure()

    def garbage(self) -> tuple[int, list[str]]:
        """Sends garbage to the sockets of the run, which must go on training. Returns (pieces sent, violations)."""
        run, scene = self._run, self._run.scene
        before, incarnations = run.applied.samples, _incarnations_of(run)
        sent = send_garbage(socket_directory(scene.run_ids[-1]), scene.run_ids[-1], self._order.seed)
        self._wait(GARBAGE_WATCH_S)
        problems = [
            f"{one} ended after garbage was sent to the sockets" for one in sorted(incarnations - _incarnations_of(run))
        ]
        if run.applied.samples <= before:
            problems.append("nothing was trained any more after garbage was sent to the sockets")
        return sent, problems

    def close(self) -> None:
        if self._proxy is not None:
            self._report.messages = dict(self._proxy.counts)
        self._proxies.close()

    # --- one turn -------------------------------------------------------------------------------------------

    def _elapsed_s(self) -> float:
        return self._run.now_s() - self._began_s

    def _turn(self) -> None:
        self._run.look()
        self._stand_between()
        if self._proxy is not None and self._proxy.failure is not None:
            raise JobFailedError(f"the proxy between the processes has failed: {self._proxy.failure}")
        self._look_at_open()
        if self._run.exit_code is not None:
            raise JobFailedError(f"the run ended by itself with {self._run.exit_code}:\n{self._run.log}")
        self._run.wait_a_little()

    def _wait(self, seconds: float) -> None:
        until_s = self._run.now_s() + seconds
        while self._run.now_s() < until_s:
            self._turn()

    def _stand_between(self) -> None:
        """Each supervisor of the run has a socket directory of its own, and a proxy of its own between."""
        ids = self._run.scene.run_ids
        if self._order.messages is None or not ids or ids[-1] in self._proxied:
            return
        self._proxied.add(ids[-1])
        self._proxies.close()
        self._proxy = FaultProxy(socket_directory(ids[-1]), self._order.seed, self._order.messages)
        self._proxies.enter_context(self._proxy)

    def _measure(self) -> None:
        elapsed_s = self._elapsed_s()
        is_calm = any(one.is_calm and one.start_s <= elapsed_s < one.stop_s for one in self._stretches)
        is_quiet = is_calm and not self.open and self._run.is_settled
        self._report.goodput.take(self._run.now_s(), self._run.applied.samples, is_quiet=is_quiet)

    def _strike(self, planned: Planned) -> None:
        fault = self._faults[planned.kind]
        at_s = self._elapsed_s()
        struck = fault.strike(self._run, planned.draw)
        if struck is None:
            self._say(at_s, f"{fault.name}: nobody to hit now")
            return
        for other in self.open:
            other.met.append(fault.name)
            struck.met.append(other.fault)
        self.open.append(struck)
        self._report.struck[fault.name] += 1
        self._report.kills += struck.kills
        self._say(at_s, f"{fault.name}  {struck.hit}")

    def _look_at_open(self) -> None:
        for struck in list(self.open):
            recovered = struck.recovered(self._run)
            if recovered is not None:
                self.open.remove(struck)
                self._report.recovered.append((struck, recovered))
                words = f"{struck.fault}  {struck.hit}: {recovered.words} after {recovered.seconds:.2f} s"
                self._say(self._elapsed_s(), words)
            elif self._run.now_s() - max(struck.struck_s, struck.released_s) > RECOVERY_LIMIT_S:
                self.open.remove(struck)
                self.never.append(f"no recovery from {struck.fault} of {struck.hit} within {RECOVERY_LIMIT_S:g} s")


def _incarnations_of(run: RunUnderChaos) -> set[str]:
    scene = run.scene
    return {str(incarnation.process) for role in ("worker", "server") for incarnation in scene.working(role)}


# --- after the end ----------------------------------------------------------------------------------------------------


def _wait_gone(run: RunUnderChaos) -> Leftovers:
    """Looks for what is left until there is nothing, or the time is over."""
    began_s = time.monotonic()
    while True:
        after_s = time.monotonic() - began_s
        processes = tuple(str(pid) for pid in marked_processes(run.mark))
        left = tuple(str(path) for path in run.directories() if path.exists())
        sockets = _listening([str(socket_directory(run_id)) for run_id in run.scene.run_ids])
        if not (processes or left or sockets) or after_s >= GONE_LIMIT_S:
            return Leftovers(processes, left, sockets, after_s)
        time.sleep(0.05)


def _listening(directories: Sequence[str]) -> tuple[str, ...]:
    """Unix sockets bound below these directories."""
    lines = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()
    return tuple(line.split()[-1] for line in lines[1:] if any(one in line for one in directories))


def _judge(
    order: ChaosOrder,
    run: RunUnderChaos,
    report: ChaosReport,
    soak: _Soak,
    leftovers: Leftovers | None,
    sent: int,
    garbage: Sequence[str],
    say: Say,
) -> tuple[Verdict, ...]:
    never = [f"no recovery from {one.fault} of {one.hit}" for one in soak.open]
    missed = [f"{one.fault} of {one.hit}: it {how.words}" for one, how in report.recovered if how.is_missed]
    times_s = {kind: report.times_s(kind) for kind in ("worker", "server", "pair", "fork server", "supervisor")}
    try:
        facts: RunFacts | None = read_facts(order.run_dir, order.spec)
    except ElastichostError as error:
        report.failure = report.failure or error.message
        facts = None
    why = "the run's files cannot be read"
    bits, twin_hand_overs = _judge_twins(order, say)
    hand_overs = None
    if facts is not None and order.machines is None:  # what PS of other machines wrote is not kept whole
        hand_overs = check_hand_overs(read_audit(order.run_dir), facts.access)
    if hand_overs is None or hand_overs.holds is None:
        hand_overs = twin_hand_overs
    report.trained = facts.record.ledger.trained if facts is not None and facts.record is not None else 0
    refusals = feed_bad_input(order.job, order.run_dir, {MARK: run.mark})
    return (
        check_samples(facts) if facts is not None else Verdict.none("L", why),
        hand_overs,
        bits,
        check_applied(facts) if facts is not None else Verdict.none("A", why),
        check_leftovers(leftovers) if leftovers is not None else Verdict.none("O", "the run had to be ended by force"),
        check_recovery(times_s, BOUNDS_S, [*soak.never, *never, *missed]),
        check_refusals(refusals, garbage, sent),
    )


def _judge_twins(order: ChaosOrder, say: Say) -> tuple[Verdict, Verdict]:
    """D and B of a small run of the job in sync mode."""
    if not order.has_twins:
        why = "no twins were wanted"
        return Verdict.none("D", why), Verdict.none("B", f"workers change rows in place; {why}")
    try:
        bits, hand_overs = run_twins(order.job, order.settings, order.seed, lambda text: say(order.duration_s, text))
    except ConfigError as error:
        why = f"the job cannot be in sync mode: {'; '.join(error.problems) or error.message}"
        return Verdict.none("D", why), Verdict.none("B", why)
    except ElastichostError as error:
        return Verdict.of("D", "the twins could not be compared", [error.message]), Verdict.none("B", "see D")
    if order.spec.train.mode != "sync":
        bits, hand_overs = (replace(one, figures=f"sync twin: {one.figures}") for one in (bits, hand_overs))
    return bits, hand_overs
