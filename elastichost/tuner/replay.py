"""Feeds recorded samples to the decision functions again, and finds decisions that differ from the record. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import msgspec

from elastichost.history.features import Estimates
from elastichost.tuner.first_plan import first_plan
from elastichost.tuner.health import HealthSettings, HealthState, observe
from elastichost.tuner.health_record import unpacked
from elastichost.tuner.input.decide import InputState
from elastichost.tuner.input.decide import decide as decide_input
from elastichost.tuner.input.facts import InputTunerSettings
from elastichost.tuner.memory.forecast import begin
from elastichost.tuner.memory.forecast import decide as decide_memory
from elastichost.tuner.placement.heat import BucketKey, HeatState, fold
from elastichost.tuner.placement.rebalance import BalanceState, Rebalance, decide
from elastichost.tuner.policy.policy import Decision, TunerSettings, TunerState, advance
from elastichost.tuner.records import (
    BalanceLooked,
    BalanceOpened,
    FirstPlanMade,
    HealthLooked,
    HealthOpened,
    InputLooked,
    InputOpened,
    MemoryLooked,
    MemoryOpened,
    Record,
    SpeedsLooked,
    TunerLooked,
    TunerOpened,
    moves_of,
)

__all__ = ["Replayed", "replay"]

# the fields of a memory decision that determine an action; its figures and its text are not compared
DECIDED = ("kind", "host", "horizon", "shortens_own", "admit_after", "workers", "target", "share")
TOLERANCE = 1e-3  # relative, for predicted speeds: machines round differently. Decided actions must be equal.


class Replayed(msgspec.Struct, frozen=True):
    """One recorded sample for which there is a decision in the record or in the replay.

    recorded, again: the recorded and the replayed decision as text."""

    line: int
    part: str
    recorded: str
    again: str
    is_same: bool


class _Tuner:
    def __init__(self, settings: TunerSettings) -> None:
        self._settings, self._state = settings, TunerState()

    def feed(self, record: TunerLooked) -> tuple[str, str, bool]:
        try:
            self._state, decision = advance(self._state, record.look, record.samples_left, self._settings)
        except Exception as error:  # noqa: BLE001 - a live run also reports the error, and then makes no decisions
            return _words(record.decision), f"gives up: {type(error).__name__}: {error}", record.decision is None
        return _words(record.decision), _words(decision), _is_same(record.decision, decision)


def _words(decision: Decision | None) -> str:
    return "" if decision is None else f"{decision.kind} {decision.configuration}: {decision.reason}"


def _is_same(one: Decision | None, other: Decision | None) -> bool:
    if one is None or other is None:
        return one is other
    if (one.kind, one.configuration) != (other.kind, other.configuration):
        return False
    if one.expected is None or other.expected is None:
        return one.expected is other.expected
    return math.isclose(one.expected.samples_per_s, other.expected.samples_per_s, rel_tol=TOLERANCE)


class _Input:
    def __init__(self, settings: InputTunerSettings) -> None:
        self._settings, self._state = settings, InputState()

    def feed(self, record: InputLooked) -> tuple[str, str, bool]:
        self._state, decision = decide_input(self._state, record.look, self._settings)
        words = ["" if one is None else f"{one.kind}: {one.knobs}" for one in (record.decision, decision)]
        return words[0], words[1], words[0] == words[1]


class _Health:
    def __init__(self, settings: HealthSettings) -> None:
        self._settings, self._state = settings, HealthState()
        self._workers: tuple[tuple[int, int], ...] = ()

    def feed(self, record: HealthLooked | SpeedsLooked) -> tuple[str, str, bool]:
        if isinstance(record, SpeedsLooked):
            speeds = unpacked(record.speeds, self._workers)
            self._workers = tuple((speed.process.index, speed.process.incarnation) for speed in speeds)
        else:
            speeds = record.speeds
        self._state, remarks = observe(self._state, speeds, self._settings, record.now_s)
        words = [
            "; ".join(f"{r.process} {'replaced' if r.replace else 'slow'}: {r.reason}" for r in each)
            for each in (record.remarks, remarks)
        ]
        return words[0], words[1], record.remarks == remarks


class _Balance:
    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._heat, self._state = HeatState(), BalanceState()
        self._owners: dict[BucketKey, int] = {}

    def feed(self, record: BalanceLooked) -> tuple[str, str, bool]:
        if record.owners is not None:
            self._owners = {(table, bucket): owner for table, bucket, owner in record.owners}
        asked = dict.fromkeys(self._owners, 0.0) | {(t, b): count for t, b, count in record.asked}
        self._heat = fold(self._heat, asked, record.now_s, self._half_life_s)
        args = (self._heat.heat, self._owners, record.speeds, record.busiest, record.now_s)
        state, decision = decide(self._state, *args)
        moves: tuple[tuple[int, int, int], ...] = ()
        kind = "moved"
        if isinstance(decision, Rebalance):
            moves = moves_of(decision, self._owners)
        else:
            kind = decision.kind
        if record.was_begun:
            self._state = state
        recorded, again = (f"{k}, {len(m)} moves" for k, m in ((record.kind, record.moves), (kind, moves)))
        return recorded, again, (record.kind, record.moves) == (kind, moves)


class _Memory:
    def __init__(self, memory: Estimates) -> None:
        self._state = begin(memory)

    def feed(self, record: MemoryLooked) -> tuple[str, str, bool]:
        self._state, decision = decide_memory(self._state, record.look, record.now_s)
        is_same = all(getattr(record.decision, name) == getattr(decision, name) for name in DECIDED)
        words = ["" if one.kind == "stay" else f"{one.kind}: {one.reason}" for one in (record.decision, decision)]
        return words[0], words[1], is_same


def _first_plan(record: FirstPlanMade) -> tuple[str, str, bool]:
    plan, before = first_plan(record.request).plan, record.plan
    return before.reason, plan.reason, (plan.processes, plan.access) == (before.processes, before.access)


def replay(records: Iterable[Record]) -> Iterator[Replayed]:
    """Yields the recorded decision and the decision that this version makes from the same sample. Samples without a
    decision in both are left out. Raises ValueError for a sample of a part that was not opened before, and for a sample
    that does not fit the one before it."""
    tuner: _Tuner | None = None
    of_input: _Input | None = None
    health: _Health | None = None
    balance: _Balance | None = None
    memory: _Memory | None = None
    for line, record in enumerate(records, start=1):
        match record:
            case TunerOpened(settings=settings):
                tuner = _Tuner(settings)
                continue
            case InputOpened(settings=known_input):
                of_input = _Input(known_input)
                continue
            case HealthOpened(settings=settings):
                health = _Health(settings)
                continue
            case BalanceOpened(half_life_s=half_life_s):
                balance = _Balance(half_life_s)
                continue
            case MemoryOpened(memory=known):
                memory = _Memory(known)
                continue
            case FirstPlanMade():
                part, (recorded, again, is_same) = "first plan", _first_plan(record)
            case TunerLooked() if tuner is not None:
                part, (recorded, again, is_same) = "tuner", tuner.feed(record)
            case InputLooked() if of_input is not None:
                part, (recorded, again, is_same) = "input", of_input.feed(record)
            case HealthLooked() | SpeedsLooked() if health is not None:
                part, (recorded, again, is_same) = "health", health.feed(record)
            case BalanceLooked() if balance is not None:
                part, (recorded, again, is_same) = "balance", balance.feed(record)
            case MemoryLooked() if memory is not None:
                part, (recorded, again, is_same) = "memory", memory.feed(record)
            case _:
                raise ValueError(f"line {line}: {type(record).__name__} comes before the record that opens its part")
        if recorded or again or not is_same:
            yield Replayed(line, part, recorded, again, is_same)
