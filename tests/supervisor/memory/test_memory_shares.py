"""Open grants together are at most the memory that is left, and a request is granted if it fits."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from elastichost.supervisor.memory.memory_shares import MOST_OPEN_BYTES, ServerShare, share_out
from tests.effort import examples

SIZES = st.integers(0, 1 << 34)


@st.composite
def shares(draw: st.DrawFn) -> list[ServerShare]:
    """Shares of one to six PS."""
    count = draw(st.integers(1, 6))
    taken = [draw(SIZES) for _ in range(count)]
    return [
        ServerShare(index, taken[index] + draw(SIZES), taken[index], draw(st.one_of(st.just(0), SIZES)))
        for index in range(count)
    ]


@given(left=st.integers(-(1 << 34), 1 << 35), given_shares=shares())
def test_open_grants_together_are_at_most_what_is_left(left: int, given_shares: list[ServerShare]) -> None:
    found = share_out(left, given_shares)
    opened = {share.server: found.granted[share.server] - share.taken for share in given_shares}
    assert min(opened.values()) >= 0
    assert sum(opened.values()) <= max(0, left)


@given(left=st.integers(0, 1 << 35), given_shares=shares())
def test_a_request_is_granted_after_some_looks_or_the_host_is_full(left: int, given_shares: list[ServerShare]) -> None:
    """Only one PS requests memory, and no PS takes any meanwhile."""
    one, others = given_shares[0], [msgspec.structs.replace(share, wanted=0) for share in given_shares[1:]]
    now = [msgspec.structs.replace(one, wanted=max(1, one.wanted)), *others]
    for _ in range(60):
        found = share_out(left, now)
        now = [msgspec.structs.replace(share, granted=found.granted[share.server]) for share in now]
        if not found.short or found.is_full:
            break
    assert found.is_full == (now[0].wanted > left)
    assert found.is_full or now[0].open >= now[0].wanted


@given(left=st.integers(0, 1 << 35), given_shares=shares())
def test_of_several_requests_at_least_one_is_granted_if_it_fits(left: int, given_shares: list[ServerShare]) -> None:
    """All PS may request memory at once, and none takes any meanwhile. No PS may keep memory that is too little for its
    own request."""
    now, wants = given_shares, [share.wanted for share in given_shares if share.wanted]
    for _ in range(60):
        found = share_out(left, now)
        now = [msgspec.structs.replace(share, granted=found.granted[share.server]) for share in now]
    served = [share for share in now if share.wanted and share.open >= share.wanted]
    assert found.is_full == any(want > left for want in wants)
    assert bool(served) == any(want <= left for want in wants)


@pytest.mark.parametrize(
    ("left", "shares", "opened", "is_full"),
    [
        (50, [(0, 60), (0, 40)], [0, 40], True),  # the request that fits is granted
        (100, [(50, 60), (50, 60)], [50, 25], False),  # one PS gives back, so that the request of the other fits
        (100, [(50, 60), (25, 60)], [60, 25], False),  # which is granted at the next look
        (100, [(60, 60), (20, 50)], [60, 20], False),  # a granted request is not taken back for another
        (0, [(0, 10)], [0], True),
        (-30, [(40, 0), (0, 10)], [0, 0], True),
        (100, [(0, 0), (0, 0)], [25, 25], False),
    ],
)
def test_two_requests_at_once(left: int, shares: list[tuple[int, int]], opened: list[int], is_full: bool) -> None:
    """shares: (open, wanted) of each."""
    found = share_out(left, [ServerShare(i, 7 + has, 7, wanted) for i, (has, wanted) in enumerate(shares)])
    now = [found.granted[i] - 7 for i in range(len(shares))]
    assert now[: len(opened)] == opened
    assert found.is_full == is_full


def test_grants_ahead_are_small_when_little_is_left() -> None:
    found = share_out(100 << 20, [ServerShare(0, 0, 0), ServerShare(1, 0, 0)])
    assert found.granted == {0: 25 << 20, 1: 25 << 20}
    rich = share_out(1 << 40, [ServerShare(0, 0, 0)])
    assert rich.granted == {0: MOST_OPEN_BYTES}


def test_a_grant_stays_while_there_is_room() -> None:
    before = ServerShare(0, 60 << 20, 20 << 20)
    assert share_out(100 << 20, [before]).granted == {0: 60 << 20}
    assert share_out(10 << 20, [before]).granted == {0: 30 << 20}, "less is left than was open"
    assert share_out(-5, [before]).granted == {0: 20 << 20}


class Interleavings(RuleBasedStateMachine):
    """PS check their grant, allocate and count in separate steps; so does the supervisor, which reads, measures and
    grants. used: as the kernel counts it. PS also free memory, and other processes use some of the budget."""

    LIMIT, STEP = 10_000, 100

    def __init__(self) -> None:
        super().__init__()
        self.used = self.others = 0
        self.granted, self.taken = [0, 0], [0, 0]
        self.checked: list[int | None] = [None, None]  # bytes that a PS has found allowed and not allocated yet
        self.uncounted = [0, 0]
        self.read: list[ServerShare] | None = None
        self.never_counted = 0  # bytes that a killed PS had allocated and not counted

    @rule(server=st.integers(0, 1), size=st.integers(1, STEP))
    def checks_its_grant(self, server: int, size: int) -> None:
        is_idle = self.checked[server] is None and not self.uncounted[server]
        if is_idle and self.taken[server] + size <= self.granted[server]:
            self.checked[server] = size

    @rule(server=st.integers(0, 1))
    def allocates(self, server: int) -> None:
        size = self.checked[server]
        if size is not None:
            self.used += size
            self.checked[server], self.uncounted[server] = None, size

    @rule(server=st.integers(0, 1))
    def counts(self, server: int) -> None:
        self.taken[server] += self.uncounted[server]
        self.uncounted[server] = 0

    @rule(server=st.integers(0, 1))
    def is_killed(self, server: int) -> None:
        """The kill may come between any two steps; the next incarnation goes on with the same counters."""
        self.never_counted += self.uncounted[server]
        self.checked[server], self.uncounted[server] = None, 0

    @rule(share=st.floats(0, 1))
    def gives_back(self, share: float) -> None:
        self.used -= int(self.used * share)

    @rule(size=st.integers(0, 2000))
    def others_take(self, size: int) -> None:
        """Up to a fifth of the budget, even if that much is not left."""
        self.others = size

    @rule(wanted=st.lists(st.integers(0, STEP), min_size=2, max_size=2))
    def supervisor_reads(self, wanted: list[int]) -> None:
        self.read = [ServerShare(i, self.granted[i], self.taken[i], wanted[i]) for i in range(2)]

    @rule()
    def supervisor_measures_and_grants(self) -> None:
        if self.read is not None:
            found = share_out(self.LIMIT - self.others - self.used, self.read)
            self.granted = [found.granted[0], found.granted[1]]
            self.read = None

    @invariant()
    def the_budget_holds(self) -> None:
        """Except for one allocation of each PS, which had checked its grant before the grant was taken back."""
        assert self.used <= self.LIMIT + 2 * self.STEP + self.never_counted


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=examples(150), stateful_step_count=60, deadline=None)
