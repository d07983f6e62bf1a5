"""The order book under any interleaving of batches and kills: every position is taken once, in order."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from elastichost.worker.readers.orders import OrderBook, ReadingOrder

PLACES = 2  # of a simulated ring


class Readers:
    """Simulated readers: each works on its orders in turn, one position a batch, and has a ring of PLACES."""

    def __init__(self) -> None:
        self.book = OrderBook()
        self.orders: dict[int, deque[tuple[int, ReadingOrder]]] = {}
        self.rings: dict[int, deque[tuple[int, int, int | None]]] = {}  # (round, order, stop or None for its end)
        self.joined = 0

    def join(self) -> None:
        self.joined += 1
        self.orders[self.joined], self.rings[self.joined] = deque(), deque()
        self.book.joined(self.joined)
        self.send()

    def send(self) -> None:
        for reader, order in self.book.send():
            self.orders[reader].append((self.book.round, order))

    def withdrawn(self) -> None:
        for orders in self.orders.values():
            while orders and orders[0][0] < self.book.round:
                orders.popleft()

    def kill(self, draw: int) -> None:
        if self.orders:
            reader = sorted(self.orders)[draw % len(self.orders)]
            del self.orders[reader], self.rings[reader]
            self.book.lost(reader)
            self.withdrawn()
            self.send()

    def publish(self, draw: int) -> bool:
        """One reader publishes one record. False: none can."""
        able = [one for one in sorted(self.orders) if self.orders[one] and len(self.rings[one]) < PLACES]
        if not able:
            return False
        reader = able[draw % len(able)]
        of_round, order = self.orders[reader].popleft()
        if order.start == order.stop:
            self.rings[reader].append((of_round, order.number, None))
            return True
        self.rings[reader].append((of_round, order.number, order.start + 1))
        rest = ReadingOrder(order.number, order.unit, order.start + 1, order.stop, 1, None, 1)
        self.orders[reader].appendleft((of_round, rest))
        return True

    def take(self, taken: list[tuple[int, int]]) -> bool:
        """The worker takes the next record. False: it is not there."""
        first = self.book.first
        if first is not None and self.book.is_suspected:
            if first[0].start == first[0].stop:
                self.book.ended()
            else:
                taken.append((first[0].unit, first[0].start))
                self.book.took(first[0].start + 1)
            self.send()
            return True
        if first is None or first[1] is None:
            return False
        order, ring = first[0], self.rings[first[1]]
        while ring and ring[0][0] < self.book.round:
            ring.popleft()
        if not ring:
            return False
        _, number, stop = ring.popleft()
        assert number == order.number, "the next record of the first order's reader is of that order"
        if stop is None:
            self.book.ended()
        else:
            taken.append((order.unit, stop - 1))
            self.book.took(stop)
        return True


ACTIONS = st.tuples(
    st.sampled_from(["publish", "publish", "take", "take", "kill", "join", "order"]), st.integers(0, 99)
)


@given(st.lists(ACTIONS, max_size=150), st.integers(1, 4))
@settings(max_examples=300, deadline=None)
def test_no_position_is_lost_or_doubled_or_out_of_order(actions: list[tuple[str, int]], readers: int) -> None:
    world, taken, wanted = Readers(), list[tuple[int, int]](), list[tuple[int, int]]()
    for _ in range(readers):
        world.join()
    for action, draw in actions:
        match action:
            case "publish":
                world.publish(draw)
            case "take":
                world.take(taken)
            case "kill":
                world.kill(draw)
            case "join":
                world.join()
            case _:
                unit, start, stop = draw % 3, draw, draw + draw % 5
                world.book.add(unit, start, stop, 1, None, 1)
                wanted += [(unit, position) for position in range(start, stop)]
                world.send()
    world.join()
    while world.take(taken) or world.publish(0):
        pass
    assert taken == wanted
    assert world.book.first is None


def test_what_was_withdrawn_is_not_read_any_more() -> None:
    book = OrderBook()
    book.joined(1)
    book.add(0, 0, 10, 5, None, 2)
    assert len(book.send()) == 1
    book.withdraw()
    assert (book.round, book.first, book.send()) == (1, None, ())


def test_a_unit_stays_with_its_reader_and_other_units_go_to_the_reader_with_the_fewest_orders() -> None:
    book = OrderBook()
    for reader in (1, 2):
        book.joined(reader)
    for unit in (0, 0, 1, 0, 2):
        book.add(unit, 0, 10, 5, None, 2)
    assert [reader for reader, _ in book.send()] == [1, 1, 2, 1, 2]


def test_the_next_batch_of_a_lost_reader_is_suspected_and_nothing_is_sent_until_it_was_read() -> None:
    book = OrderBook()
    for reader in range(3):
        book.joined(reader)
    for unit in (0, 1):
        book.add(unit, 0, 10, 5, None, 2)
    book.send()
    book.lost(1)
    assert not book.is_suspected, "its order is not the first one"
    assert [(reader, order.start) for reader, order in book.send()] == [(0, 0), (2, 0)]
    book.lost(0)
    assert book.is_suspected
    assert book.send() == ()
    book.took(5)
    assert [(reader, order.unit, order.start) for reader, order in book.send()] == [(2, 0, 5), (2, 1, 0)]
    book.lost(2)
    book.withdraw()
    assert not book.is_suspected
