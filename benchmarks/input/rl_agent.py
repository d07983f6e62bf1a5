"""An agent that learns the knobs of an input pipeline by trial and reward, as InTune does for tf.data. Pure.

InTune (Nagrecha et al., RecSys 2023) trains a network whose actions raise, lower or keep the resources of each stage,
with the throughput as its reward, less where memory is used. This agent has the same actions and the same reward over
our knobs. It learns a table of values (Q-learning) instead of a network: with a few hundred states a network would only
learn more slowly. It does not know the pipeline before, as our tuner does not.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from elastichost.wire.facts import InputKnobs

__all__ = ["STEPS", "Agent"]

# values of each knob, in the order in which an action goes through them
STEPS: dict[str, tuple[int, ...]] = {
    "connections": (1, 2, 4, 8, 16, 32),
    "decode_threads": (1, 2, 4),
    "prefetch_batches": (0, 8, 32),
    "units_ahead": (0, 1, 2, 4),
}
ACTIONS: tuple[tuple[str, int], ...] = (("", 0), *((name, by) for name in STEPS for by in (1, -1)))
LEARNING, DISCOUNT, EXPLORING = 0.5, 0.6, 0.3
MEMORY_PRICE = 0.05  # of the reward, where the whole memory is used

State = tuple[int, ...]


@dataclass
class Agent:
    """One agent. memory_bytes: what the input may hold; unit_bytes: of one unit ahead."""

    memory_bytes: int
    unit_bytes: int
    seed: int = 0
    state: State = (0,) * len(STEPS)
    best: tuple[float, State] = (0.0, (0,) * len(STEPS))
    _values: dict[tuple[State, int], float] = field(default_factory=dict)
    _action: int = 0
    _scale: float = 0.0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def knobs(self, state: State | None = None) -> InputKnobs:
        """The knobs of a state, by default of the present one."""
        chosen = dict(zip(STEPS, self.state if state is None else state, strict=True))
        at = {name: STEPS[name][place] for name, place in chosen.items()}
        ahead = min(self.memory_bytes, at["units_ahead"] * self.unit_bytes)
        return InputKnobs(at["connections"], at["decode_threads"], at["prefetch_batches"], ahead)

    def act(self) -> InputKnobs:
        """Changes one knob by one step, or none, and returns the knobs to try."""
        possible = [number for number, action in enumerate(ACTIONS) if self._after(action) is not None]
        if self._random.random() < EXPLORING:
            self._action = self._random.choice(possible)
        else:
            self._action = max(possible, key=lambda number: self._values.get((self.state, number), 0.0))
        return self.knobs(self._after(ACTIONS[self._action]))

    def learn(self, samples_per_s: float) -> None:
        """Takes the speed with the knobs of the last `act`, and moves to their state."""
        after = self._after(ACTIONS[self._action])
        assert after is not None
        self._scale = max(self._scale, samples_per_s, 1e-9)
        held = self.knobs(after).prefetch_bytes / max(1, self.memory_bytes)
        reward = samples_per_s / self._scale - MEMORY_PRICE * held
        ahead = max(self._values.get((after, number), 0.0) for number in range(len(ACTIONS)))
        known = self._values.get((self.state, self._action), 0.0)
        self._values[self.state, self._action] = known + LEARNING * (reward + DISCOUNT * ahead - known)
        self.state = after
        self.best = max(self.best, (samples_per_s, after))

    def _after(self, action: tuple[str, int]) -> State | None:
        """The state after an action; None: there is no such step."""
        name, by = action
        found = list(self.state)
        if name:
            place = list(STEPS).index(name)
            found[place] += by
            if not 0 <= found[place] < len(STEPS[name]):
                return None
        return tuple(found)
