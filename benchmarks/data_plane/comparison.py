"""Measures every arm in every setting: draws the samples once, then starts, measures and ends the arms."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.data_plane.figures import ArmFigures, MeasuredWindow, arm_figures, best_peer, judged, ratios_of
from benchmarks.data_plane.lineup import Case, Entry, Launcher, PeerHost, forked_arms
from benchmarks.data_plane.report import CaseResult
from benchmarks.data_plane.rounds import Progress, measure_rounds
from benchmarks.data_plane.startup import Startup
from benchmarks.data_plane.windows import WindowSettings, window_of
from benchmarks.harness.interleave import Rounds
from benchmarks.harness.outcome import Outcome
from benchmarks.harness.workshop import Workshop
from benchmarks.workload.samples import Samples, draw_samples, write_batches, write_parquet
from benchmarks.workload.shape import SMALL, ModelName

__all__ = ["SEED", "Comparison", "Options", "tensorflow_version"]

SEED = 26
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
        options, progress = self._options, Progress(self._console, self._began_s)
        arms = dict(options.arms)
        version = tensorflow_version(options.tensorflow_python) if "tensorflow" in arms else None
        if "tensorflow" in arms and version is None:
            del arms["tensorflow"]
            python = options.tensorflow_python
            progress.say(
                f"without TensorFlow: {python} does not have it (--tensorflow-python PATH names another Python)"
            )
        bare = any(entry.module == "bare_loop" for entry in arms.values())
        host = PeerHost(self._workshop, with_bare_loop=bare) if forked_arms(arms) else None
        samples = draw_samples(SMALL, options.samples, SEED)
        parquet = self._workshop.disk / "train.parquet"
        write_parquet(samples, parquet)
        progress.say(f"{options.samples:,} samples drawn and written")
        results = []
        for model in options.models:
            for batch_size in options.batch_sizes:
                results.append(self._case(model, batch_size, arms, samples, parquet, host))
        return results, version

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
        options, case = self._options, Case(model, SMALL, batch_size, batches, parquet)
        launcher = Launcher(self._workshop, case, host, options.tensorflow_python)
        progress = Progress(self._console, self._began_s)
        progress.say(f"{model}, batch size {batch_size}: {len(arms)} arms start")
        startup = Startup(launcher, batch_size, progress)
        try:
            ready = startup.start(arms)
            windows = {arm.name: window_of(arm, options.windows) for arm in ready}
            outcome = measure_rounds(f"{model}, batch size {batch_size}", windows, options.rounds, progress)
            memory = {arm.name: arm.memory_bytes() for arm in ready if arm.name not in progress.failures}
        finally:
            startup.close()
            launcher.forget()
        return _result(case, arms, outcome, memory, progress.failures)


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
