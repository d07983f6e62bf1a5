"""Faults of messages between processes: drop, duplicate, reorder, delay, truncate, corrupt, partition. Pure.

A decision is a function of the seed, the link, and the number of the message on its link. So a failure can be repeated
as far as the processes send the same messages again.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Literal, NamedTuple

from elastichost.chaos.schedule import unit_draw
from elastichost.errors import ConfigError
from elastichost.human_readable import did_you_mean

__all__ = ["Action", "Link", "MessageRates", "Partition", "decide", "is_cut", "parse_rates", "spoil"]

Action = Literal["pass", "drop", "duplicate", "reorder", "delay", "truncate", "corrupt"]
_ACTIONS: tuple[Action, ...] = ("drop", "duplicate", "reorder", "delay", "truncate", "corrupt")
MOST_DELAY_S = 0.05


class Link(NamedTuple):
    """The sender and the receiver of messages, by name: "worker-0.1", "server-0.2", "supervisor"."""

    sender: str
    receiver: str

    @property
    def roles(self) -> tuple[str, str]:
        """The roles of sender and receiver: "worker", "server" or "supervisor"."""
        return self.sender.partition("-")[0], self.receiver.partition("-")[0]


@dataclass(frozen=True, slots=True)
class MessageRates:
    """The share of messages that each fault hits; their sum is at most 1. only: names of message types, () for all."""

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay: float = 0.0
    truncate: float = 0.0
    corrupt: float = 0.0
    only: tuple[str, ...] = field(default=())


class Partition(NamedTuple):
    """Between two moments (seconds of any clock) no message from the one role reaches the other. It has one direction;
    two of them cut both directions."""

    sender_role: str
    receiver_role: str
    start_s: float
    stop_s: float


def parse_rates(setting: str) -> MessageRates:
    """Parses a setting such as `drop=0.01,delay=0.05,only=PullMsg+PulledMsg`. Raises ConfigError."""
    names = [one.name for one in fields(MessageRates)]
    values: dict[str, float] = {}
    only: tuple[str, ...] = ()
    for item in filter(None, setting.split(",")):
        name, _, value = item.partition("=")
        if name not in names:
            raise ConfigError(
                f"unknown message fault {name!r}{did_you_mean(name, names)}",
                hint=f"allowed: {', '.join(names)}",
            )
        if name == "only":
            only = tuple(value.split("+"))
            continue
        try:
            values[name] = float(value)
        except ValueError:
            values[name] = -1.0
        if not 0 <= values[name] <= 1:
            raise ConfigError(f"{item!r}: a share of messages is a number from 0 to 1", hint=f"write {name}=0.01")
    if sum(values.values()) > 1:
        raise ConfigError(
            f"the shares in {setting!r} add up to more than 1", hint="reduce them: their sum is at most 1"
        )
    return MessageRates(**values, only=only)


def _link_seed(seed: int, link: Link) -> int:
    return (seed << 32) ^ zlib.crc32(f"{link.sender}>{link.receiver}".encode())


def decide(seed: int, link: Link, number: int, kind: str, rates: MessageRates) -> Action:
    """The fault of message `number` of a link. kind: its type."""
    if rates.only and kind not in rates.only:
        return "pass"
    left = unit_draw(_link_seed(seed, link), number, 0)
    for action in _ACTIONS:
        left -= getattr(rates, action)
        if left < 0:
            return action
    return "pass"


def delay_s(seed: int, link: Link, number: int) -> float:
    """How long a message is delayed, in seconds."""
    return MOST_DELAY_S * unit_draw(_link_seed(seed, link), number, 1)


def spoil(seed: int, link: Link, number: int, action: Action, parts: list[bytes]) -> list[bytes]:
    """A copy of a message of which one part is truncated, or has one bit flipped. action: "truncate" or "corrupt"."""
    filled = [place for place, part in enumerate(parts) if part]
    if not filled:
        return parts
    draw = _link_seed(seed, link)
    place = filled[int(unit_draw(draw, number, 2) * len(filled))]
    part, at = parts[place], int(unit_draw(draw, number, 3) * len(parts[place]))
    if action == "truncate":
        spoilt = part[:at]
    else:
        spoilt = part[:at] + bytes([part[at] ^ (1 << int(unit_draw(draw, number, 4) * 8))]) + part[at + 1 :]
    return [*parts[:place], spoilt, *parts[place + 1 :]]


def is_cut(partitions: Iterable[Partition], link: Link, now_s: float) -> bool:
    """Whether a partition cuts this link now."""
    return any(
        (one.sender_role, one.receiver_role) == link.roles and one.start_s <= now_s < one.stop_s for one in partitions
    )
