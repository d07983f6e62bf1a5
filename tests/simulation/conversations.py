"""Conversations: the messages between supervisor, workers and PS after a fault or a command, and the run's events.

The loops are the real ones, in simulated time, without lost or late messages. Each conversation is a text file in
`tests/simulation/conversations/`, which shows the protocol; a test compares it word for word.

python -m tests.simulation.conversations          writes all texts again; read the difference before it is committed
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from elastichost.plan import ProcessId
from elastichost.runs.events import AnyEvent
from elastichost.runs.events.text import text_of
from elastichost.supervisor.elastic_hosts.join import HostObservation, JoinState, next_state
from tests.simulation.histories import Stage, live
from tests.simulation.network import MessageFaults
from tests.simulation.patches import simulated
from tests.simulation.scenario import Fault, Mode, Scenario

__all__ = ["CONVERSATIONS", "FOLDER", "text_of_conversation"]

FOLDER = Path(__file__).parent / "conversations"
SILENT = {"HeartbeatMsg", "LeaseProgressMsg", "LeaseRequestMsg", "LeaseGrantMsg"}  # frequent, and always the same
MOST_ITEMS = 4  # longer tuples in a message are not shown
LEASES = {"lease_granted"}


@dataclass
class Recorder:
    """Writes one line for each control message and each event."""

    now_s: Callable[[], float]
    lines: list[str] = field(default_factory=list)

    def message(self, sender: str, receiver: str, message: Any) -> None:
        if type(message).__name__ not in SILENT:
            self._line(f"{sender} -> {receiver}: {_shown(message)}")

    def event(self, event: AnyEvent) -> None:
        if event.kind not in LEASES:
            self._line(f"# {text_of(event)}")

    def _line(self, text: str) -> None:
        self.lines.append(f"{1000 * self.now_s():6.1f} ms  {text}")


def _shown(message: Any) -> str:
    """The name of a message, and its fields that differ from their defaults."""
    told = []
    for info in msgspec.structs.fields(type(message)):
        value = getattr(message, info.name)
        if info.default is not msgspec.NODEFAULT and value == info.default:
            continue
        if (text := _value(value)) is not None:
            told.append(f"{info.name} {text}")
    name = type(message).__name__.removesuffix("Msg")
    return f"{name} ({', '.join(told)})" if told else name


def _value(value: object) -> str | None:
    """A field as text; None: it is not shown, because it tells a reader nothing."""
    match value:
        case bool() | int() | float():
            return f"{value:g}" if isinstance(value, float) else str(value)
        case str():
            return value if value and len(value) < 60 and "/" not in value else None
        case ProcessId():
            return str(value)
        case tuple() if value and len(value) <= MOST_ITEMS:
            shown = [_value(item) for item in value]
            return f"[{', '.join(item for item in shown if item is not None)}]" if all(shown) else None
        case _:
            return None


def _scenario(mode: Mode, *faults: Fault, workers: int = 2, servers: int = 1) -> Scenario:
    """A small job with no other faults than these."""
    calm = MessageFaults(are_ordered=True)
    return Scenario(
        seed=1,
        mode=mode,
        workers=workers,
        servers=servers,
        units=(48, 48),
        epochs=1,
        batch_size=4,
        micro_batches=2,
        order="file",
        checkpoint_every_s=0.0,
        warmup_samples=0,
        bad_percent=0,
        poison=frozenset(),
        poison_point="",
        compute_s=0.02,
        stall_share=0.0,
        messages=calm,
        faults=faults,
    )


def _told(title: str, chosen: Scenario) -> str:
    """The conversation of a history, with its title."""
    recorders: list[Recorder] = []

    def watch(stage: Stage) -> None:
        recorder = Recorder(lambda: stage.world.now_s)
        stage.network.listeners.append(recorder.message)
        stage.journal.listeners.append(recorder.event)
        recorders.append(recorder)

    with simulated():
        history = live(chosen, watch)
    assert not history.violations, history.violations
    return "\n".join([title, "", *recorders[0].lines]) + "\n"


def _join(title: str) -> str:
    """The states of a machine that joins, one line for each look at it; then of one that does not answer, and of one
    whose clock is wrong."""
    lines = [title, ""]
    stories = (
        (HostObservation(), HostObservation(True), HostObservation(True, True), HostObservation(True, True, True)),
        (HostObservation(), HostObservation(waited_s=121.0)),
        (HostObservation(True), HostObservation(True, trouble="its clock is 3 h ahead")),
    )
    for story in stories:
        state = JoinState.CALLED
        lines.append(f"{state.value}")
        for seen in story:
            after, why = next_state(state, seen)
            seen_words = ", ".join(_observations(seen)) or "nothing yet"
            lines.append(f"    seen: {seen_words:<40} -> {after.value}{f': {why}' if why else ''}")
            state = after
        lines.append("")
    return "\n".join(lines)


def _observations(seen: HostObservation) -> Iterator[str]:
    if seen.has_answered:
        yield "answered"
    if seen.is_prepared:
        yield "prepared"
    if seen.has_arena:
        yield "has an arena"
    if seen.trouble:
        yield seen.trouble
    if seen.waited_s:
        yield f"{seen.waited_s:g} s have passed"


CONVERSATIONS: dict[str, Callable[[], str]] = {
    "kill_worker": lambda: _told(
        "A worker is killed. The dense owner fences it; its leases return, and a successor trains them.",
        _scenario("async", Fault(0.3, "kill worker")),
    ),
    "kill_server": lambda: _told(
        "The only parameter server is killed. Its successor takes over what is in the arena.",
        _scenario("async", Fault(0.3, "kill server")),
    ),
    "kill_worker_sync": lambda: _told(
        "Sync mode: a worker is killed. The crew gets new assignments, and the step is computed again.",
        _scenario("sync", Fault(0.3, "kill worker")),
    ),
    "scale": lambda: _told(
        "`scale workers=3`: one more worker.", _scenario("async", Fault(0.3, "scale", workers=3, servers=1))
    ),
    "hand_over": lambda: _told(
        "`scale servers=2`: half of the buckets get another owner.",
        _scenario("async", Fault(0.3, "scale", workers=2, servers=2)),
    ),
    "join": lambda: _join("Machines that are to join a run. Each line is one look at a machine."),
}


def text_of_conversation(name: str) -> str:
    """The conversation as the present code has it."""
    return CONVERSATIONS[name]()


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    for name in CONVERSATIONS:
        (FOLDER / f"{name}.txt").write_text(text_of_conversation(name), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
