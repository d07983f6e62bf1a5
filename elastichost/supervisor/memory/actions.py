"""Performs the decisions of `tuner.memory`, and measures their effects."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from elastichost.arena.memory_board import MemoryBoard
from elastichost.runs.events import MemoryActed, MemoryActionMeasured, MemoryMoveRefused, Warned
from elastichost.sharding import MAX_SERVERS, ShardMap, moved_buckets
from elastichost.specs import TableSpec
from elastichost.supervisor.context import RunContext
from elastichost.supervisor.controllers.plan_change import PlanChangeController
from elastichost.supervisor.controllers.shard_map import ShardMapController
from elastichost.tuner.memory.facts import MemoryDecision, MemoryKind, MemorySample
from elastichost.tuner.memory.forecast import MemoryState, predict
from elastichost.wire.commands import ScaleMsg

__all__ = ["MemoryActor", "acted", "relocated", "total_of"]

LEAST_EFFECT_S = 5.0  # an effect is measured after three times the duration of its action, but not earlier


@dataclass(frozen=True, slots=True)
class _Effect:
    """An action whose effect is not measured yet. state, look, evicted, rounds: the forecast, the sample and the
    counters at the time of the action. due_s: when the effect is measured. cause: of the journal lines."""

    kind: MemoryKind
    due_s: float
    state: MemoryState
    look: MemorySample
    evicted: int
    rounds: int
    cause: str


class MemoryActor:
    """Performs decisions. boards: of the arenas of all hosts; the monitor adds and removes hosts in this list.

    horizon, shortens_own, admit_after: the values in force. A new supervisor that takes over an arena reads them from
    its board.
    """

    def __init__(
        self, run: RunContext, sharding: ShardMapController, boards: Sequence[MemoryBoard], tables: Sequence[TableSpec]
    ) -> None:
        self._run, self._sharding, self._boards = run, sharding, boards
        self._dynamic = [table for table in tables if table.is_dynamic]
        ages = [(table, boards[0].horizon(table.index)) for table in self._dynamic]
        self.horizon = max((age for _, age in ages), default=0)
        self.shortens_own = any(age > 0 and table.evict_after_samples > 0 for table, age in ages)
        self.admit_after = max((boards[0].admit_after(table.index) for table in self._dynamic), default=0) or 1
        self._effects: list[_Effect] = []

    @property
    def is_busy(self) -> bool:
        """Whether an action was taken whose effect is not measured yet."""
        return bool(self._effects)

    def perform(
        self,
        decision: MemoryDecision,
        look: MemorySample,
        state: MemoryState,
        changes: PlanChangeController,
        now_s: float,
    ) -> None:
        """Performs a decision of any kind but "stay" and "warn". look, state: those that it was made from."""
        match decision.kind:
            case "evict":
                self._keep_for(decision.horizon, shortens_own=decision.shortens_own)
            case "admit":
                self.admit_after = decision.admit_after
                for board, table in itertools.product(self._boards, self._dynamic):
                    board.set_admit_after(table.index, decision.admit_after)
            case "shrink":
                self._resize(ScaleMsg(workers=decision.workers), "one worker fewer, to save memory", changes, now_s)
            case "move":
                self._move(decision, changes, now_s)
        due_s = now_s + max(3 * look.action_s, LEAST_EFFECT_S)
        if not any(effect.kind == decision.kind for effect in self._effects):
            effect = _Effect(decision.kind, due_s, state, look, self._evicted(), self._rounds(), self._run.cause)
            self._effects.append(effect)

    def begin(self, board: MemoryBoard) -> None:
        """Writes the values in force to the board of a host that has joined."""
        for table in self._dynamic:
            board.set_horizon(
                table.index, 0 if table.evict_after_samples > 0 and not self.shortens_own else self.horizon
            )
            board.set_admit_after(table.index, self.admit_after)

    def _keep_for(self, horizon: int, *, shortens_own: bool) -> None:
        self.horizon, self.shortens_own = horizon, shortens_own
        for board, table in itertools.product(self._boards, self._dynamic):
            is_own = table.evict_after_samples > 0
            board.set_horizon(table.index, 0 if is_own and not shortens_own else horizon)

    def _resize(self, command: ScaleMsg, reason: str, changes: PlanChangeController, now_s: float) -> None:
        plan, warnings = changes.plans.resized(command, reason)
        for warning in warnings:
            self._run.note(Warned(warning))
        changes.apply(plan, now_s)

    def _move(self, decision: MemoryDecision, changes: PlanChangeController, now_s: float) -> None:
        """Moves buckets to the target host. If the host has no PS, a plan with one more PS is applied instead, and the
        plan change gives the new PS its share of the buckets."""
        hosts = self._sharding.hosts
        if decision.target not in hosts.values():
            servers = len(self._run.plan.servers) + 1
            self._resize(ScaleMsg(servers=servers), "one more PS, on a host that has memory left", changes, now_s)
            return
        target = relocated(self._sharding.shard_map, hosts, decision.host, decision.target, decision.share)
        if not moved_buckets(self._sharding.shard_map, target):
            if self._sharding.refuse(decision.target):
                self._run.note(MemoryMoveRefused(decision.host, too_few=True))
        elif not self._sharding.relocate(target, f"host {decision.target} has memory left"):
            self._run.note(MemoryMoveRefused(decision.host, too_few=False))

    # --- effects ----------------------------------------------------------------------------------------------

    def measure(self, state: MemoryState, look: MemorySample, now_s: float) -> None:
        """Journals the effects of all actions whose time of measurement has come."""
        due = [effect for effect in self._effects if now_s >= effect.due_s]
        self._effects = [effect for effect in self._effects if now_s < effect.due_s]
        for effect in due:
            before, used = effect.look, sum(host.used_bytes for host in look.hosts)
            expected, _ = predict(effect.state, before, look.samples)
            grown = used - sum(host.used_bytes for host in before.hosts)
            would = expected - sum(host.used_bytes for host in before.hosts)
            dropped, rounds = self._evicted() - effect.evicted, self._rounds() - effect.rounds
            self._run.note(
                MemoryActionMeasured(
                    action=effect.kind,
                    grown_bytes=grown,
                    expected_bytes=would,
                    samples=look.samples - before.samples,
                    dropped_rows=dropped,
                    rounds=rounds,
                    left_out=look.left_out - before.left_out,
                    horizon=self.horizon,
                ),
                effect.cause,
            )

    def _evicted(self) -> int:
        return total_of(self._boards, "evicted")

    def _rounds(self) -> int:
        return total_of(self._boards, "rounds")


def total_of(boards: Sequence[MemoryBoard], word: Literal["evicted", "rounds", "left_out"]) -> int:
    """The sum of a counter over all PS on all boards. It includes PS that have ended, so it does not fall."""
    return sum(getattr(board.server(index), word) for board in boards for index in range(MAX_SERVERS))


def relocated(present: ShardMap, hosts: dict[int, int], source: int, target: int, share: float) -> ShardMap:
    """Returns the shard map in which this share of the buckets of host `source` belongs to the PS of host `target`.

    hosts: PS -> host. The PS of the target get buckets in turn. Of every table the share moves, rounded to whole
    buckets; the rounding error of one table is carried over to the next.
    """
    takers = itertools.cycle(sorted(index for index, host in hosts.items() if host == target))
    owners = [list(row) for row in present.owners]
    due = 0.0
    for row in owners:
        held = [bucket for bucket, owner in enumerate(row) if hosts.get(owner) == source]
        due += share * len(held)
        count = min(round(due), len(held))
        due -= count
        for bucket in held[len(held) - count :]:
            row[bucket] = next(takers)
    return msgspec.structs.replace(present, owners=tuple(map(tuple, owners)))


def acted(decision: MemoryDecision) -> MemoryActed:
    """The event of a decision."""
    return MemoryActed(
        action=decision.kind,
        host=decision.host,
        reason=decision.reason,
        chance=decision.chance,
        window_s=decision.window_s,
        exceeds_in_s=decision.exceeds_in_s,
        horizon=decision.horizon,
        admit_after=decision.admit_after,
        workers=decision.workers,
        target=decision.target,
        share=decision.share,
    )
