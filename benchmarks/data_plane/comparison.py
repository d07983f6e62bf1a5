"""Measures every arm in every setting: draws the samples once, then starts, measures and ends the arms."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.data_plane.figures import ArmFigures, MeasuredWindow, arm_figures, best_peer, judged, ratios_of
from benchmarks.data_plane.lineup import Case, Entry, Launcher, PeerHost, forked_arms
from benchmarks.data_plane.process_arm import ProcessArm
from benchmarks.data_plane.report import CaseResult
from benchmarks.data_plane.windows import WindowSettings, least_disturbed_window
from benchmarks.harness.benchmark import Benchmark, Figure
from benchmarks.harness.criteo26 import ModelName, Samples, draw_samples, write_batches, write_parquet
from benchmarks.harness.interleave import ArmFailedError, Measurement, Rounds
from benchmarks.harness.outcome import Outcome
from benchmarks.harness.runner import run
from benchmarks.harness.workshop import Workshop

__all__ = ["SEED", "Comparison", "Options", "tensorflow_version"]

SEED = 26
SPEED = Figure[MeasuredWindow]("samples/s", "", lambda one: one.window.samples_per_s, form=",.0f")
READY_BATCHES = 5  # the first batches are slow, because they touch pages and choose algorithms
START_TIMEOUT_S = 180.0
FIND_TENSORFLOW = """\
import importlib.metadata as m, importlib.util as u
names = [n for n in ("tensorflow", "tensorflow-cpu", "tensorflow-intel") for d in [u.find_spec("tensorflow")] if d]
for name in names:
    try:
        print(m.version(name)); break
    except m.PackageNotFoundError:
        pass
"""


@dataclass(frozen=True, slots=True)
class Options:
    """The options, with the defaults of a quick or a full run filled in."""

    arms: Mapping[str, Entry]
    models: tuple[ModelName, ...]
    batch_sizes: tuple[int, ...]
    samples: int
    rounds: Rounds
    windows: WindowSettings
    tensorflow_python: str


class Comparison:
    """One run of the benchmark: writes the data once, then measures every case."""

    def __init__(self, workshop: Workshop, options: Options, console: Console, began_s: float) -> None:
        self._workshop, self._options, self._console, self._began_s = workshop, options, console, began_s

    def all_cases(self) -> tuple[list[CaseResult], str | None]:
        """The results of all cases, and the version of TensorFlow (None without it)."""
        options = self._options
        arms = dict(options.arms)
        version = tensorflow_version(options.tensorflow_python) if "tensorflow" in arms else None
        if "tensorflow" in arms and version is None:
            del arms["tensorflow"]
            python = options.tensorflow_python
            self._say(f"without TensorFlow: {python} does not have it (--tensorflow-python PATH names another Python)")
        bare = any(entry.module == "bare_loop" for entry in arms.values())
        host = PeerHost(self._workshop, with_bare_loop=bare) if forked_arms(arms) else None
        samples = draw_samples(options.samples, SEED)
        parquet = self._workshop.disk / "train.parquet"
        write_parquet(samples, parquet)
        self._say(f"{options.samples:,} samples drawn and written")
        results = []
        for model in options.models:
            for batch_size in options.batch_sizes:
                results.append(self._case(model, batch_size, arms, samples, parquet, host))
        return results, version

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._began_s:6.1f} s[/]  {text}", soft_wrap=True)

    def _case(
        self,
        model: ModelName,
        batch_size: int,
        arms: Mapping[str, Entry],
        samples: Samples,
        parquet: Path,
        host: PeerHost | None,
    ) -> CaseResult:
        batches = self._workshop.memory / f"batches-{batch_size}"
        if not batches.exists():
            write_batches(samples, batch_size, batches)
        case = Case(model, batch_size, batches, parquet)
        launcher = Launcher(self._workshop, case, host, self._options.tensorflow_python)
        self._say(f"{model}, batch size {batch_size}: {len(arms)} arms start")
        failures: dict[str, str] = {}
        started: list[ProcessArm] = []
        try:
            ready = self._start(launcher, arms, batch_size, started, failures)
            outcome = self._measure(case, ready, failures)
            memory = {arm.name: arm.memory_bytes() for arm in ready if arm.name not in failures}
        finally:
            for arm in started:
                arm.close()
            launcher.forget()
        return _result(case, arms, outcome, memory, failures)

    def _start(
        self,
        launcher: Launcher,
        arms: Mapping[str, Entry],
        batch_size: int,
        started: list[ProcessArm],
        failures: dict[str, str],
    ) -> list[ProcessArm]:
        """Starts the arms and stops each as soon as it trains; returns the arms that train, in order.

        All arms start together, except arms with threads that spin while they wait for one another: these start last,
        one after another.
        """
        # a fork waits for the imports of the peer host, so arms without it start first
        together = sorted((name for name in arms if not arms[name].spins), key=lambda name: arms[name].kind == "forked")
        ready: list[ProcessArm] = []
        for names in (together, *([name] for name in arms if arms[name].spins)):
            begun: list[ProcessArm] = []
            for name in names:
                try:
                    begun.append(launcher.start(name, arms[name]))
                except (ArmFailedError, OSError) as error:
                    self._failed(name, error, failures)
            started.extend(begun)
            ready.extend(self._wait_ready(begun, batch_size, failures))
        return [arm for name in arms for arm in ready if arm.name == name]

    def _wait_ready(
        self, arms: Sequence[ProcessArm], batch_size: int, failures: dict[str, str]
    ) -> Iterator[ProcessArm]:
        waiting = list(arms)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while waiting:
            for arm in list(waiting):
                try:
                    if not self._is_ready(arm, batch_size, deadline_s):
                        continue
                    yield arm
                except ArmFailedError as error:
                    arm.close()
                    self._failed(arm.name, error, failures)
                waiting.remove(arm)
            time.sleep(0.02)

    def _is_ready(self, arm: ProcessArm, batch_size: int, deadline_s: float) -> bool:
        """Whether the arm trains; if so, it is stopped. Raises ArmFailedError if the arm has failed or is too late."""
        arm.check()
        if arm.samples() < READY_BATCHES * batch_size:
            if time.monotonic() > deadline_s:
                raise ArmFailedError(f"the arm did not train within {START_TIMEOUT_S:.0f} s")
            return False
        arm.settle()
        arm.pause()
        self._say(f"{arm.name} trains, after {sum(arm.cpu_s().values()):.1f} s of CPU time")
        return True

    def _measure(self, case: Case, arms: Sequence[ProcessArm], failures: dict[str, str]) -> Outcome[MeasuredWindow]:
        options, names = self._options, {arm.name for arm in arms}
        line: list[str] = []

        def window_of(arm: ProcessArm) -> Callable[[int], MeasuredWindow]:
            return lambda number: least_disturbed_window(arm, number, options.windows)

        def told(one: Measurement[MeasuredWindow]) -> None:
            if one.found is None:
                self._failed(one.arm, ArmFailedError(one.failure), failures)
                return
            line.append(f"{one.arm} {one.found.window.samples_per_s / 1e3:.1f}k{'*' * one.found.rejected}")
            if len(line) == len(names - failures.keys()):
                self._say(f"round {one.round + 1}  " + "  ".join(line))
                line.clear()

        benchmark = Benchmark(
            title=f"{case.model}, batch size {case.batch_size}",
            arms={arm.name: window_of(arm) for arm in arms},
            rounds=options.rounds,
            figures=(SPEED,),
        )
        return run(benchmark, told)

    def _failed(self, name: str, error: Exception, failures: dict[str, str]) -> None:
        failures[name] = str(error)
        self._console.print(f"{name} failed: {error}", style="red", markup=False)


def _result(
    case: Case,
    arms: Mapping[str, Entry],
    outcome: Outcome[MeasuredWindow],
    memory: Mapping[str, Mapping[str, int]],
    failures: Mapping[str, str],
) -> CaseResult:
    measured = [one.found for one in outcome.measured if one.found is not None]
    windows = [one.window for one in measured]
    figures: dict[str, ArmFigures] = {}
    for name in arms:
        found = arm_figures(name, windows, memory.get(name, {}))
        if found is not None:
            figures[name] = found
    peer = best_peer(figures)
    outcome = judged(outcome, peer, case.batch_size)
    return CaseResult(
        model=case.model,
        batch_size=case.batch_size,
        words={name: entry.words for name, entry in arms.items()},
        figures=figures,
        ratios=ratios_of(outcome),
        best_peer=peer,
        rejected=sum(one.rejected for one in measured),
        kept_disturbed=sum(window.is_disturbed for window in windows),
        failures=failures,
        verdicts={verdict.aim.figure: verdict for verdict in outcome.verdicts()},
    )


def tensorflow_version(python: str) -> str | None:
    """The version of TensorFlow in that Python; None if it has none or cannot run. It is not imported, because the
    import takes seconds."""
    try:
        done = subprocess.run([python, "-c", FIND_TENSORFLOW], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
