"""The main loop of a chaos run: starts the job, injects the planned faults, measures the recoveries, stops the run and
checks the promises."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from elastichost.arena.host import socket_directory
from elastichost.chaos.facts import RunFacts, read_facts
from elastichost.chaos.faults.bad_input import check_refusals, feed_bad_input, send_garbage
from elastichost.chaos.faults.gpu_faults import GPU_FAULTS
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
from elastichost.chaos.faults.source_faults import SOURCE_FAULTS
from elastichost.chaos.faults.source_of_job import FaultySource
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

__all__ = ["ALL_FAULTS", "ChaosOrder", "ChaosReport", "run_chaos"]

START_LIMIT_S = 180.0
RECOVERY_LIMIT_S = 60.0  # a fault that is open for longer counts as not recovered
WARM_S = 2.0  # from the first sample to the first fault: readers, allocators and caches become fast
GONE_LIMIT_S = 5.0  # of promise O
GARBAGE_WATCH_S = 2.0
# While the fork server or the supervisor is replaced, no process can be started.
WITHOUT_START = {fault.name for fault in FAULTS if isinstance(fault, KillForkServer | ReplaceSupervisor)}
# While the source gives no bytes, a new worker has nothing to train.
WITHOUT_BYTES = {fault.name for fault in SOURCE_FAULTS if fault.fault in ("stall", "refuse", "gone")}
# Bounds of the median recovery. The aim is 1 s on a machine that does nothing else. The fork server and the supervisor
# have no bound, because their successors import torch.
BOUNDS_S = dict.fromkeys(("worker", "server", "reader", "pair"), 3.0)

ALL_FAULTS: tuple[Fault, ...] = (*FAULTS, *GPU_FAULTS, *SOURCE_FAULTS)

Say = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class ChaosOrder:
    """The settings of a chaos run. spec: the resolved job; settings: the `--set` options of the run; every_s: mean time
    between faults; kinds: names of the faults to inject, () for all; messages: rates of message faults; has_twins:
    check promise D; machines: a hosts file that names only hosts on this machine."""

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
    """The result of a chaos run. struck: name of a fault -> how often it was injected; kills: number of processes
    killed on purpose; recovered: the faults from which the run recovered; trained: samples in the ledger of the newest
    checkpoint; messages: (message type, action) -> count; failure: the error that ended the run, or ""."""

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
        return (*([f"the run failed: {self.failure}"] if self.failure else []), *found)

    def times_s(self, kind: str) -> list[float]:
        """The recovery times of one kind, in seconds. Superseded recoveries are left out, and those during which the
        fork server or the supervisor was replaced, or the source gave no bytes."""
        left_out = WITHOUT_START if kind == "source" else WITHOUT_START | WITHOUT_BYTES
        return [
            one.seconds
            for struck, one in self.recovered
            if one.kind == kind and not one.is_superseded and not left_out & (set(struck.met) - {struck.fault})
        ]


def run_chaos(order: ChaosOrder, say: Say) -> ChaosReport:
    """Runs the job under faults and checks the promises. say: called with (seconds since training began, text) for each
    fault and each recovery.

    Raises ElastichostError, usually a JobFailedError, when the run never began to train. A later error is in the
    report."""
    report = ChaosReport()
    environment = {AUDIT_VARIABLE: "1", **({VIA_VARIABLE: "1"} if order.messages is not None else {})}
    hang_timeout_s = order.spec.supervision.hang_timeout_s
    is_sync = order.spec.train.mode == "sync"
    hosts = order.spec.resources.hosts
    with contextlib.ExitStack() as stack:
        served = FaultySource(order.spec, os.environ) if _needs_source(order) else None
        source = stack.enter_context(served.process) if served is not None else None
        settings = order.settings if served is None else (*order.settings, *served.settings())
        run = stack.enter_context(
            RunUnderChaos(
                order.job, settings, order.run_dir, hang_timeout_s, environment, is_sync, hosts, order.machines, source
            )
        )
        soak = _Soak(order, run, report, say)
        garbage: list[str] = []
        sent = 0
        try:
            soak.begin()
            soak.run_plan()
            sent, garbage = soak.garbage()
            run.end(signal.SIGINT)
            if run.exit_code != 75:
                raise JobFailedError(
                    f"after SIGINT the run ended with exit code {run.exit_code} instead of 75:\n{run.log}"
                )
        except ElastichostError as error:
            if not run.applied.first_s and not report.struck:
                raise
            report.failure = error.message
        finally:
            soak.close()
        leftovers = _wait_gone(run) if run.exit_code is not None else None
        report.verdicts = _judge(order, run, report, soak, leftovers, sent, garbage, say)
    return report


def _needs_source(order: ChaosOrder) -> bool:
    return any(fault.name in order.kinds for fault in SOURCE_FAULTS)


class _Soak:
    """The part of a chaos run that injects faults. open: faults from which the run has not recovered yet; never:
    violations of promise T."""

    def __init__(self, order: ChaosOrder, run: RunUnderChaos, report: ChaosReport, say: Say) -> None:
        self._order, self._run, self._report, self._say = order, run, report, say
        self._faults: dict[str, Fault] = {f.name: f for f in ALL_FAULTS if not order.kinds or f.name in order.kinds}
        self._stretches = plan_stretches(order.duration_s)
        self._proxies = contextlib.ExitStack()
        self._proxy: FaultProxy | None = None
        self._proxied: set[str] = set()
        self._began_s = 0.0
        self.open: list[OpenFault] = []
        self.never: list[str] = []

    # --- the schedule ---------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Waits until the job trains with all processes of its plan. Raises JobFailedError when this takes longer than
        START_LIMIT_S, or when the run ends."""
        deadline_s = self._run.now_s() + START_LIMIT_S
        while not (self._run.applied.first_s and self._run.scene.is_whole):
            self._turn()
            if self._run.now_s() > deadline_s:
                raise JobFailedError(f"the run did not begin to train within {START_LIMIT_S:g} s:\n{self._run.log}")
        self._wait(WARM_S)
        self._began_s = self._run.now_s()

    def run_plan(self) -> None:
        """Injects every planned fault, and waits for the end of the last stretch and for the recovery from all faults.
        Raises JobFailedError when the run ends."""
        chosen = bool(self._order.kinds)  # faults that the user chose are drawn equally often
        weights = {name: 1.0 if chosen else fault.weight for name, fault in self._faults.items()}
        spec = self._order.spec
        if not (chosen or spec.data.input.reader_count(has_gpu=bool(spec.resources.gpus), spare_cores=0)):
            weights.pop("kill-reader")
        if not (chosen or spec.resources.model_memory == "gpu"):
            for fault in GPU_FAULTS:
                weights.pop(fault.name)
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
        """Sends garbage to the sockets of the run and checks that training goes on. Returns the number of pieces sent,
        and the violations."""
        run, scene = self._run, self._run.scene
        before, incarnations = run.applied.samples, _incarnations_of(run)
        sent = send_garbage(socket_directory(scene.run_ids[-1]), scene.run_ids[-1], self._order.seed)
        self._wait(GARBAGE_WATCH_S)
        problems = [
            f"{one} ended after garbage was sent to the sockets" for one in sorted(incarnations - _incarnations_of(run))
        ]
        if run.applied.samples <= before:
            problems.append(f"no sample was trained for {GARBAGE_WATCH_S:g} s after garbage was sent to the sockets")
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
            raise JobFailedError(f"the fault proxy between the processes failed: {self._proxy.failure}")
        self._look_at_open()
        if self._run.exit_code is not None:
            raise JobFailedError(f"the run ended by itself with exit code {self._run.exit_code}:\n{self._run.log}")
        self._run.wait_a_little()

    def _wait(self, seconds: float) -> None:
        until_s = self._run.now_s() + seconds
        while self._run.now_s() < until_s:
            self._turn()

    def _stand_between(self) -> None:
        """Starts a proxy for the newest supervisor if message faults are wanted and it has none yet. Each supervisor
        has its own socket directory."""
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
            self._say(at_s, f"{fault.name}: not injected, because it has no target now")
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
    roles = ("worker", "server", "reader")
    return {str(incarnation.process) for role in roles for incarnation in scene.working(role)}


# --- after the end ----------------------------------------------------------------------------------------------------


def _wait_gone(run: RunUnderChaos) -> Leftovers:
    """Waits until nothing of the run is left, for at most GONE_LIMIT_S. Returns what is left then."""
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
    """Paths of the Unix sockets that are bound in these directories."""
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
    times_s = {
        kind: report.times_s(kind) for kind in ("worker", "server", "reader", "pair", "fork server", "supervisor")
    }
    try:
        facts: RunFacts | None = read_facts(order.run_dir, order.spec)
    except ElastichostError as error:
        report.failure = report.failure or error.message
        facts = None
    why = "the files of the run cannot be read"
    bits, twin_hand_overs = _judge_twins(order, say)
    hand_overs = None
    if facts is not None and order.machines is None:  # audit lines of PS on other hosts may be missing
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
        check_leftovers(leftovers)
        if leftovers is not None
        else Verdict.none("O", "the run did not end and was killed"),
        check_recovery(times_s, BOUNDS_S, [*soak.never, *never, *missed]),
        check_refusals(refusals, garbage, sent),
    )


def _judge_twins(order: ChaosOrder, say: Say) -> tuple[Verdict, Verdict]:
    """The verdicts on D and B from a small part of the job in sync mode."""
    if not order.has_twins:
        why = "twins are off (--no-twins)"
        return Verdict.none("D", why), Verdict.none("B", f"the run has no hand-over that can be compared; {why}")
    try:
        bits, hand_overs = run_twins(order.job, order.settings, order.seed, lambda text: say(order.duration_s, text))
    except ConfigError as error:
        why = f"the job cannot be trained in sync mode: {'; '.join(error.problems) or error.message}"
        return Verdict.none("D", why), Verdict.none("B", why)
    except ElastichostError as error:
        return Verdict.of("D", "the twins could not be compared", [error.message]), Verdict.none("B", "see D")
    if order.spec.train.mode != "sync":
        bits, hand_overs = (replace(one, figures=f"sync twin: {one.figures}") for one in (bits, hand_overs))
    return bits, hand_overs
