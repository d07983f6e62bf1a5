"""Decodes the next units of a reader in threads, within the memory that the input may hold ahead.

A unit is announced (`expect`) when the lease that needs it is granted, and is asked for (`decode`) when its turn has
come. In between a thread may decode it. What it holds is charged before it begins: the stored bytes and, by the units
decoded so far, the decoded ones. The unit that the reader asks for is always decoded, so a small budget slows nothing
beyond reading without this class."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any, Literal

import numpy.typing as npt

from elastichost.datasets.api import Unit
from elastichost.datasets.decoded import DecodedUnit
from elastichost.datasets.reader import Decoder, ForwardingDecoder
from elastichost.datasets.sources.control import InputControl

__all__ = ["ReadAhead", "decoded_bytes"]

MARGIN = 1.1  # a unit may be larger than those before, by sample


@dataclass(slots=True)
class _Task:
    """A unit that was announced. charged_bytes: of the budget, until the unit is handed over or dropped."""

    unit: Unit
    state: Literal["waiting", "decoding", "done", "failed"] = "waiting"
    charged_bytes: int = 0
    decoded: DecodedUnit | None = None
    error: BaseException | None = None
    is_dropped: bool = False


class ReadAhead(ForwardingDecoder):
    """A `Decoder` that decodes announced units before they are asked for. `decode` of the inner decoder must be
    usable by several threads."""

    def __init__(self, decoder: Decoder, control: InputControl) -> None:
        super().__init__(decoder)
        self._control = control
        self._changed = threading.Condition()
        self._tasks: list[_Task] = []
        self._threads: list[threading.Thread] = []
        self._sample_bytes = 0.0  # most decoded bytes of a sample so far; 0.0: no unit was decoded yet
        self._is_closed = False
        control.ahead = self
        control.when_tuned(self._wake)

    # --- Decoder --------------------------------------------------------------------------------------------

    def decode(self, unit: Unit) -> DecodedUnit:
        """The decoded unit: the one that was decoded ahead, or decoded now. Raises what the inner decoder raises."""
        with self._changed:
            task = next((one for one in self._tasks if one.unit == unit and not one.is_dropped), None)
            if task is not None and task.state == "waiting":
                self._tasks.remove(task)  # decoding it here is as fast as waiting for a thread
                task = None
        if task is None:
            return self._decode(unit)
        began_s = time.perf_counter()
        with self._changed:
            self._changed.wait_for(lambda: task.state in ("done", "failed"))
            self._control.decode.wait_here(empty_s=time.perf_counter() - began_s)
            self._tasks = [one for one in self._tasks if one is not task]
            self._control.budget.release(task.charged_bytes)
            self._changed.notify_all()
        if task.error is not None:
            raise task.error
        return task.decoded if task.decoded is not None else self._decode(unit)

    def _decode(self, unit: Unit) -> DecodedUnit:
        decoded = self._decoder.decode(unit)
        with self._changed:
            self._learn(unit, decoded)
            self._changed.notify_all()
        return decoded

    def _learn(self, unit: Unit, decoded: DecodedUnit) -> None:
        self._sample_bytes = max(self._sample_bytes, decoded_bytes(decoded) / max(1, unit.samples))
        self._control.unit_bytes = max(self._control.unit_bytes, self._charge(unit))

    def _charge(self, unit: Unit) -> int:
        """Bytes that a unit is charged with: those that are stored and, by the units decoded so far, those decoded."""
        return int(self._decoder.stored_bytes(unit) + MARGIN * self._sample_bytes * unit.samples)

    # --- Upcoming -------------------------------------------------------------------------------------------

    def expect(self, unit: Unit) -> None:
        """Announces a unit. Announcing the newest one again has no effect: it is decoded once."""
        with self._changed:
            if self._is_closed or any(one.unit == unit and not one.is_dropped for one in self._tasks):
                return
            self._tasks.append(_Task(unit))
            self._start_threads()
            self._changed.notify_all()

    def forget(self) -> None:
        """Drops all announced units. One that is being decoded ends, and is then dropped."""
        with self._changed:
            for task in self._tasks:
                task.is_dropped = True
                if task.state in ("done", "failed"):
                    self._control.budget.release(task.charged_bytes)
                    task.charged_bytes = 0  # a thread that waits for it may not have woken yet
            self._tasks = [one for one in self._tasks if one.state == "decoding"]
            self._changed.notify_all()

    def close(self) -> None:
        """Ends the threads; one that decodes ends after its unit."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    # --- threads --------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        with self._changed:
            self._start_threads()
            self._changed.notify_all()

    def _start_threads(self) -> None:
        while self._tasks and len(self._threads) < self._control.knobs.decode_threads:
            thread = threading.Thread(target=self._run, args=(len(self._threads),), name="decode", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, number: int) -> None:
        while (task := self._next_task(number)) is not None:
            try:
                with self._control.decode.span(items=1):
                    task.decoded = self._decoder.decode(task.unit)
            except BaseException as error:  # noqa: BLE001 - raised by `decode`, in the thread that asks for the unit
                task.error = error
            self._finish(task)

    def _next_task(self, number: int) -> _Task | None:
        with self._changed:
            while not self._is_closed:
                task = self._startable() if number < self._control.knobs.decode_threads else None
                if task is not None:
                    task.state = "decoding"
                    return task
                self._changed.wait(1.0)  # the budget may have been freed elsewhere
            return None

    def _startable(self) -> _Task | None:
        """The first unit that waits, if there is memory for it. It is charged then."""
        task = next((one for one in self._tasks if one.state == "waiting"), None)
        if task is None or not self._sample_bytes:
            return None
        size = self._charge(task.unit)
        if not self._control.budget.take(size):
            return None
        task.charged_bytes = size
        return task

    def _finish(self, task: _Task) -> None:
        with self._changed:
            held = decoded_bytes(task.decoded) if task.decoded is not None else 0
            if task.decoded is not None:
                self._learn(task.unit, task.decoded)
            if held > task.charged_bytes:  # larger than all before it: decoded again when its turn has come
                task.decoded, held = None, 0
            if task.is_dropped:
                task.decoded, held = None, 0
                self._tasks = [one for one in self._tasks if one is not task]
            self._control.budget.release(task.charged_bytes - held)
            task.charged_bytes = held
            task.state = "failed" if task.error is not None else "done"
            self._changed.notify_all()


def decoded_bytes(decoded: DecodedUnit) -> int:
    """The bytes of the arrays of a decoded unit."""
    arrays: list[npt.NDArray[Any] | None] = [decoded.dense, decoded.labels, decoded.weights, decoded.bad]
    for column in decoded.ids:
        arrays += [column.keys, column.offsets]
    return sum(array.nbytes for array in arrays if array is not None)
