"""Positive quantities stored as logarithms, with exact derivatives: products, sums, smooth maxima. Pure.

A model of times consists of sums and products of positive parameters and columns of configurations. In log space a
product is a sum, and d log(sum) / d log(term) is the share of the term in the sum. So one backward pass over the tape
(reverse-mode differentiation) gives the derivatives of log(quantity) with respect to all leaves, for any number of
configurations at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["Quantity", "Tape", "largest"]

Floats = npt.NDArray[np.float64]
Source = tuple[int, Floats | float]  # index of a quantity, d log / d log of it
CONSTANT = -1
ONE = 1.0  # the weight of a factor: compared by identity, and not multiplied with
SMALLEST = 1e-300  # replaces zero, which has no logarithm


class Tape:
    """The computed quantities in order. For each it stores its sources, with d log(quantity) / d log(source)."""

    def __init__(self) -> None:
        self._sources: list[tuple[Source, ...]] = []

    def leaf(self, log: float) -> Quantity:
        """Adds a parameter by its logarithm (or logit). Leaves are numbered in the order of their creation, and must be
        created before all other quantities."""
        return self.node(np.float64(log), ())

    def constant(self, values: npt.ArrayLike) -> Quantity:
        """A constant from nonnegative values, float64 [n] or a number."""
        return Quantity(self, CONSTANT, np.log(np.maximum(values, SMALLEST)))

    def node(self, log: Floats | np.float64, sources: tuple[tuple[Quantity, Floats | float], ...]) -> Quantity:
        """Adds a quantity by its logarithm, with derivatives that the caller computed."""
        kept = tuple([(source.index, weight) for source, weight in sources if source.index != CONSTANT])
        if not kept and sources:
            return Quantity(self, CONSTANT, log)
        self._sources.append(kept)
        return Quantity(self, len(self._sources) - 1, log)

    def of_two(self, log: Floats | np.float64, some: Source, other: Source) -> Quantity:
        """As `node` for two sources, (index, weight); most quantities are made here."""
        if some[0] == CONSTANT:
            if other[0] == CONSTANT:
                return Quantity(self, CONSTANT, log)
            self._sources.append((other,))
        else:
            self._sources.append((some,) if other[0] == CONSTANT else (some, other))
        return Quantity(self, len(self._sources) - 1, log)

    def share(self, logit: Quantity) -> tuple[Quantity, Quantity]:
        """q and 1 - q, where `logit.log` is log(q / (1 - q)) (the leaf holds the logit itself)."""
        log_q, log_rest = -np.logaddexp(0.0, -logit.log), -np.logaddexp(0.0, logit.log)
        q, rest = float(np.exp(log_q)), float(np.exp(log_rest))
        return self.node(log_q, ((logit, rest),)), self.node(log_rest, ((logit, -q),))

    def between(self, logit: Quantity, low: float, high: float) -> Quantity:
        """A number in [low, high]: low + (high - low) * q."""
        q = 1.0 / (1.0 + np.exp(-float(logit.log)))
        value = low + (high - low) * q
        return self.node(np.log(value), ((logit, (high - low) * q * (1.0 - q) / value),))

    def gradients(self, of: Quantity, leaves: int, rows: int) -> Floats:
        """Returns d log(of) / d leaf for each configuration, float64 [leaves, rows]. A leaf is the logarithm or the
        logit of a parameter."""
        return self._backwards({of.index: 1.0}, leaves, (rows,))

    def gradients_of_all(self, of: Sequence[Quantity], leaves: int, rows: int) -> Floats:
        """Returns the gradients of k quantities, float64 [leaves, k, rows], in one pass over the tape."""
        seeds: dict[int, Floats | float] = {}
        for place, quantity in enumerate(of):
            seed = np.zeros((len(of), 1))
            seed[place] = 1.0
            known = seeds.get(quantity.index)
            seeds[quantity.index] = seed if known is None else known + seed
        return self._backwards(seeds, leaves, (len(of), rows))

    def _backwards(self, seeds: dict[int, Floats | float], leaves: int, shape: tuple[int, ...]) -> Floats:
        found, sources = np.zeros((leaves, *shape)), self._sources
        adjoints: list[Floats | float | None] = [None] * len(sources)
        for index, seed in seeds.items():
            if index != CONSTANT:
                adjoints[index] = seed
        for index in range(max(seeds, default=CONSTANT), CONSTANT, -1):
            adjoint = adjoints[index]
            if adjoint is None:
                continue
            if index < leaves:
                found[index] = adjoint
                continue
            for source, weight in sources[index]:
                # products have weights of exactly 1; skipping this multiplication saves a pass over the rows
                part = adjoint if weight is ONE else adjoint * weight
                known = adjoints[source]
                adjoints[source] = part if known is None else known + part
        return found


class Quantity:
    """A positive quantity on a tape. log: float64 [n] or a number. Operations on quantities of one tape give quantities
    of the same tape."""

    __slots__ = ("index", "log", "tape")

    def __init__(self, tape: Tape, index: int, log: Floats | np.float64) -> None:
        self.tape, self.index, self.log = tape, index, log

    @classmethod
    def known(cls, tape: Tape, log: Floats) -> Quantity:
        """A constant from its logarithm."""
        return cls(tape, CONSTANT, log)

    def __mul__(self, other: Quantity) -> Quantity:
        return self.tape.of_two(self.log + other.log, (self.index, ONE), (other.index, ONE))

    def __truediv__(self, other: Quantity) -> Quantity:
        return self.tape.of_two(self.log - other.log, (self.index, ONE), (other.index, -1.0))

    def __add__(self, other: Quantity) -> Quantity:
        log = np.logaddexp(self.log, other.log)
        shares = np.exp(self.log - log), np.exp(other.log - log)
        return self.tape.of_two(log, (self.index, shares[0]), (other.index, shares[1]))


def largest(terms: Sequence[Quantity], sharpness: Quantity) -> Quantity:
    """The smooth maximum f = (sum of terms^g)^(1/g): the sum for g = 1, the maximum for large g. sharpness: g.

    With x the logs of the terms, log f = log(sum exp(g x)) / g, and w the shares exp(g x) / sum exp(g x) of the terms:
    d log f / d x = w, and d log f / d log g = sum(w x) - log f.
    """
    g = np.exp(sharpness.log)
    top = terms[0].log
    for term in terms[1:]:
        top = np.maximum(top, term.log)
    powers = [np.exp(g * (term.log - top)) for term in terms]
    total = sum(powers[1:], powers[0])
    log = top + np.log(total) / g
    shares = [power / total for power in powers]
    sources: list[tuple[Quantity, Floats | float]] = list(zip(terms, shares, strict=True))
    if sharpness.index != CONSTANT:
        # relative to the maximum, because a term that is almost zero has a share of 0 and a very large negative log
        spread = sum((share * (term.log - top) for share, term in zip(shares, terms, strict=True)), np.float64(0.0))
        sources.append((sharpness, spread - (log - top)))
    return terms[0].tape.node(log, tuple(sources))
