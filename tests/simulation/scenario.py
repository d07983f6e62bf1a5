"""The scenario of one history: a function of its seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from elastichost.config.job import JobSpec
from tests.simulation.network import MessageFaults

__all__ = ["Fault", "FaultKind", "Scenario", "scenario"]

Mode = Literal["async", "bounded", "sync", "direct"]
FaultKind = Literal[
    *("kill worker", "kill server", "kill dense owner"),
    *("pause worker", "pause server", "pause supervisor"),
    *("scale", "stop"),
]

# Crash points at which a process may be killed; "" is any point.
WORKER_POINTS = (
    "",
    "worker.batch.begin",
    "worker.batch.before_push",
    "worker.batch.midway",
    "worker.batch.before_commit",
    "worker.batch.posted",
    "worker.batch.after_commit",
)
SERVER_POINTS = (
    "",
    "ps.data.before_apply",
    "ps.data.before_reply",
    "ps.push.staged",
    "ps.commit.before_apply",
    "ps.step.before_commit",
    "ps.apply.before_undo",
    "ps.apply.midway",
    "ps.apply.before_finish",
    "ps.apply.after_finish",
    "ps.snapshot.after_copy",
    "ps.handover.before_release",
    "ps.handover.after_release",
    "ps.handover.after_adopt",
)

SCHEDULES = ("constant", "linear", "cosine", "warmup_stable_decay")


@dataclass(frozen=True)
class Fault:
    """A kill or a pause. point: it happens at this crash point after `passes` passages; None: at once. seconds: length
    of a pause."""

    at_s: float
    kind: FaultKind
    point: str | None = None
    passes: int = 1
    seconds: float = 0.0
    workers: int = 0
    servers: int = 0


@dataclass(frozen=True)
class Scenario:
    """Job, sizes, data, delays and faults of one history. compute_s: usual time to compute a batch. stall_share: share
    of crash points at which a process pauses. poison, poison_point: see `computing.Samples`."""

    seed: int
    mode: Mode
    workers: int
    servers: int
    units: tuple[int, ...]
    epochs: int
    batch_size: int
    micro_batches: int
    order: str
    checkpoint_every_s: float
    warmup_samples: int
    bad_percent: int
    poison: frozenset[tuple[int, int]]
    poison_point: str
    compute_s: float
    stall_share: float
    messages: MessageFaults
    faults: tuple[Fault, ...]

    def job(self) -> JobSpec:
        mode = "async" if self.mode == "direct" else self.mode
        train: dict[str, Any] = {
            "epochs": self.epochs,
            "batch_size": self.batch_size,
            "mode": mode,
            "staleness": 1,
            "micro_batches": self.micro_batches,
            "access": "direct" if self.mode == "direct" else "served",
            "schedule": {"name": SCHEDULES[self.seed % len(SCHEDULES)], "warmup_samples": self.warmup_samples},
        }
        return JobSpec.model_validate(
            {
                "job": {"name": "simulated", "seed": self.seed},
                "model": {"build": "simulated:build"},
                "data": {"format": "synthetic", "order": self.order},
                "tables": {"default": {"dim": 4}},
                "train": train,
                "resources": {"workers": self.workers, "servers": self.servers, "restarts": 1_000_000},
                "tuner": {"mode": "off"},  # sizes change by commands only
                "checkpoint": {"every_s": self.checkpoint_every_s},
            }
        )


def scenario(seed: int, mode: Mode | None = None) -> Scenario:
    """Draws the scenario of this seed."""
    draw = Random(seed ^ 0x5EED)
    chosen: Mode = mode or draw.choice(("async", "sync", "async", "sync", "bounded", "direct"))
    workers, servers = draw.randint(1, 3), draw.choice((1, 2, 2, 3))
    batch_size = draw.choice((2, 4, 6))
    units = tuple(draw.randint(1, 5 * batch_size) for _ in range(draw.randint(1, 4)))
    epochs, compute_s = draw.choice((1, 1, 2)), draw.choice((0.002, 0.01, 0.03))
    batches = epochs * sum(-(-unit // batch_size) for unit in units)
    length_s = 0.15 + batches * compute_s / (1 if chosen == "sync" else workers)
    is_rough = draw.random() < 0.5
    poison = frozenset[tuple[int, int]]()
    if draw.random() < 0.08:
        unit = draw.randrange(len(units))
        poison = frozenset({(unit, draw.randrange(units[unit]))})
    places = ("", "worker.batch.before_commit")
    return Scenario(
        seed=seed,
        mode=chosen,
        workers=workers,
        servers=servers,
        units=units,
        epochs=epochs,
        batch_size=batch_size,
        micro_batches=min(draw.choice((1, 2, 3, 4)), batch_size),
        order=draw.choice(("file", "shuffle_groups")),
        checkpoint_every_s=draw.choice((0.0, 0.05, 0.2)),
        warmup_samples=draw.choice((0, 0, 20)),
        bad_percent=draw.choice((0, 0, 0, 20, 60)),
        poison=poison,
        poison_point=draw.choice(places) if chosen == "sync" else "",
        compute_s=compute_s,
        stall_share=draw.choice((0.0, 0.02, 0.1, 0.25)),
        messages=MessageFaults(
            drop=draw.choice((0.0, 0.01, 0.1)) if is_rough else 0.0,
            double=draw.choice((0.0, 0.05, 0.3)) if is_rough else 0.0,
            late=draw.choice((0.0, 0.05, 0.3)) if is_rough else 0.0,
            are_ordered=chosen == "direct",
        ),
        faults=tuple(sorted((_fault(draw, length_s) for _ in range(draw.choice((0, 1, 2, 3, 5, 8)))), key=_when)),
    )


def _when(fault: Fault) -> float:
    return fault.at_s


def _fault(draw: Random, length_s: float) -> Fault:
    """Draws a fault of a run that takes about length_s seconds."""
    kinds: tuple[FaultKind, ...] = (
        *("kill worker", "kill server", "kill dense owner") * 2,
        *("pause worker", "pause server", "pause supervisor"),
        *("scale", "scale", "scale"),
        "stop",
    )
    kind = draw.choice(kinds)
    if kind == "stop" and draw.random() < 0.7:
        kind = "scale"
    at_s = 0.02 + draw.random() * length_s * 1.3
    points = WORKER_POINTS if "worker" in kind else SERVER_POINTS
    point = draw.choice(points) if "kill" in kind and draw.random() < 0.75 else None
    return Fault(
        at_s,
        kind,
        point,
        draw.choice((1, 1, 2, 5)) if point else draw.randint(1, 30),
        draw.choice((0.02, 0.1, 0.5, 2.5, 8.0)),
        draw.randint(1, 4),
        draw.randint(1, 3),
    )
