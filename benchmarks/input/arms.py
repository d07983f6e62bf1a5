"""The arms that set knobs of our own pipeline: the tuner, an RL agent, the best of a grid, everything at maximum,
none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import msgspec

from benchmarks.input.pipeline_run import Consumed, PipelineRun
from benchmarks.input.rl_agent import Agent
from elastichost.datasets.settings import DataSettings
from elastichost.tuner.input.decide import InputState, decide
from elastichost.tuner.input.facts import InputLook, InputTunerSettings
from elastichost.wire.facts import Cache, InputKnobs

__all__ = [
    "ArmSettings",
    "GridFound",
    "Measured",
    "best_of_grid",
    "measure_auto",
    "measure_auto_after_change",
    "measure_fixed",
    "measure_rl",
]

LOOK_S = 0.5
SETTLE_S = 0.6  # what was read with the knobs before is still in queues
FIRST_PART, BEHIND = 1 / 3, 0.6  # of a measurement, and of the best: then it is ended


@dataclass(frozen=True, slots=True)
class ArmSettings:
    """What all arms of a case share. samples_per_s: of the consumer. memory_bytes: that the input may hold ahead.
    tune_s: time for finding the knobs; window_s: in which the speed is then measured. is_cold: local files are read
    from the disk. cache: what our pipeline may keep; with one, fixed knobs are measured after tune_s."""

    settings: DataSettings
    is_remote: bool
    samples_per_s: float
    memory_bytes: int
    tune_s: float
    window_s: float
    cores: int
    is_cold: bool = False
    cache: Cache = "none"

    def opened(self, knobs: InputKnobs) -> PipelineRun:
        """A pipeline that begins with these knobs."""
        return PipelineRun(self.settings, knobs, self.samples_per_s, is_cold=self.is_cold)

    def tuner_settings(self, run: PipelineRun) -> InputTunerSettings:
        caches = (self.cache,) if self.cache != "none" else ()
        return run.tuner_settings(self.cores, is_fetched=self.is_remote, caches=caches)


@dataclass(frozen=True, slots=True)
class Measured:
    """The speed after tuning. held_bytes: most bytes that were held ahead at one time; over: by how many the bound was
    exceeded."""

    samples_per_s: float
    knobs: InputKnobs
    held_bytes: int = 0
    over_bytes: int = 0


@dataclass(frozen=True, slots=True)
class GridFound:
    """The best knobs of a grid; the number of its sets of knobs, and of those that were not measured to the end."""

    best: InputKnobs
    sets: int
    cut: int


def _final(run: PipelineRun, arm: ArmSettings) -> Measured:
    found = run.consume(arm.window_s)
    held = run.control.budget.most_bytes
    return Measured(found.samples_per_s, run.control.knobs, held, max(0, held - arm.memory_bytes))


def _with_run(arm: ArmSettings, knobs: InputKnobs, work: Callable[[PipelineRun], None]) -> Measured:
    run = arm.opened(knobs)
    try:
        work(run)
        return _final(run, arm)
    finally:
        run.close()


def measure_fixed(arm: ArmSettings, knobs: InputKnobs) -> Measured:
    """The speed with these knobs."""

    def warm_up(run: PipelineRun) -> None:
        run.consume(2 * SETTLE_S if arm.cache == "none" else arm.tune_s)

    return _with_run(arm, knobs, warm_up)


def measure_auto(arm: ArmSettings) -> Measured:
    """The speed after the tuner has had `tune_s`: the same decisions as in a live run."""

    def work(run: PipelineRun) -> None:
        tune(run, arm, arm.tune_s, InputState())

    return _with_run(arm, InputKnobs(), work)


def measure_auto_after_change(arm: ArmSettings, change: Callable[[], None], after_s: float) -> Measured:
    """The speed `after_s` after a change of the source, which comes when the tuner has had `tune_s`."""

    def work(run: PipelineRun) -> None:
        state = tune(run, arm, arm.tune_s, InputState())
        change()
        tune(run, arm, after_s, state)

    return _with_run(arm, InputKnobs(), work)


def tune(run: PipelineRun, arm: ArmSettings, seconds: float, state: InputState) -> InputState:
    """Has the tuner set the knobs for this time. Returns what it knows then."""
    run.consume(LOOK_S)
    settings = arm.tuner_settings(run)
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        totals = run.consume(LOOK_S).totals
        look = InputLook(time.monotonic(), run.control.knobs, True, 1, totals, arm.memory_bytes)
        state, decision = decide(state, look, settings)
        if decision is not None:
            run.control.tune(decision.knobs)
    return state


def measure_rl(arm: ArmSettings, seed: int) -> Measured:
    """The speed with the best knobs that the agent has met in `tune_s`."""

    def learn(run: PipelineRun) -> None:
        run.consume(LOOK_S)
        agent = Agent(arm.memory_bytes, unit_bytes(run, arm), seed)
        until_s = time.monotonic() + arm.tune_s
        while time.monotonic() < until_s:
            run.control.tune(kept(agent.act(), arm))
            agent.learn(run.consume(LOOK_S).samples_per_s)
        run.control.tune(kept(agent.knobs(agent.best[1]), arm))
        run.consume(SETTLE_S)

    return _with_run(arm, kept(InputKnobs(), arm), learn)


def kept(knobs: InputKnobs, arm: ArmSettings) -> InputKnobs:
    """The knobs with the cache of the case."""
    return msgspec.structs.replace(knobs, cache=arm.cache)


def unit_bytes(run: PipelineRun, arm: ArmSettings) -> int:
    """Bytes that one unit ahead is charged with, roughly."""
    settings = arm.tuner_settings(run)
    return int(1.5 * settings.unit_samples * settings.sample_bytes)


def grid(arm: ArmSettings, unit: int, *, is_coarse: bool) -> Iterator[InputKnobs]:
    """The knobs of an exhaustive search."""
    connections = ((4, 8, 16, 32) if is_coarse else (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)) if arm.is_remote else (1,)
    threads = (1, 2) if is_coarse else (1, 2, 4, 8)
    batches = (0,) if is_coarse and arm.is_remote else (0, 16)
    sizes = (1 << 20,) if not arm.is_remote else (1 << 18,) if is_coarse else (1 << 18, 1 << 20)
    for c, d, waiting, size in product(connections, threads, batches, sizes):
        for ahead in dict.fromkeys((0, min(arm.memory_bytes, (d + 1) * unit))):
            if ahead or d == 1:
                yield kept(InputKnobs(c, d, waiting, ahead, size), arm)


def best_of_grid(arm: ArmSettings, each_s: float, *, is_coarse: bool) -> GridFound:
    """The fastest knobs of the grid, each measured for `each_s` in the same run. Those that are clearly behind in the
    first part of that time are not measured to its end."""
    run = arm.opened(kept(InputKnobs(), arm))
    try:
        run.consume(2 * SETTLE_S if arm.cache == "none" else arm.tune_s)  # with a cache, its first pass
        speeds: dict[InputKnobs, float] = {}
        cut = 0
        for knobs in reversed(list(grid(arm, unit_bytes(run, arm), is_coarse=is_coarse))):
            run.control.tune(knobs)
            run.consume(SETTLE_S)
            speeds[knobs], is_cut = speed_or_behind(run.consume, each_s, max(speeds.values(), default=0.0))
            cut += is_cut
        return GridFound(max(speeds, key=lambda knobs: speeds[knobs]), len(speeds), cut)
    finally:
        run.close()


def speed_or_behind(consume: Callable[[float], Consumed], each_s: float, best: float) -> tuple[float, bool]:
    """(samples/s, whether the measurement ended after FIRST_PART because the speed was below BEHIND of the best)."""
    first = consume(FIRST_PART * each_s)
    if first.samples_per_s < BEHIND * best:
        return first.samples_per_s, True
    rest = consume((1.0 - FIRST_PART) * each_s)
    return (first.samples + rest.samples) / (first.seconds + rest.seconds), False
