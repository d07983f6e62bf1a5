"""Tells runs which part of the host they may use from now on, and receives their answers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from elastichost.clock import Clock, MonotonicClock
from elastichost.dispatcher.core.allocation_drift import Answer
from elastichost.dispatcher.core.effects import ResizeJob
from elastichost.errors import ProtocolError
from elastichost.wire.commands import AcceptedMsg, CommandClient, LendMsg, RefusedMsg, Reply

__all__ = ["Lender"]

MOST_OPEN = 256  # unanswered commands; beyond that the oldest is given up
UNANSWERED_S = 30.0  # limit for the first answer; a run handles commands twice a second, unless it is paused or hangs
UNDONE_S = 300.0  # limit from AcceptedMsg to completion; new workers import the libraries of the job first


@dataclass(slots=True)
class _Asked:
    """A command without a final answer. until_s: time at which it is given up. is_newest: no later command was sent to
    the same run."""

    resize: ResizeJob
    client: CommandClient
    until_s: float
    is_newest: bool = True


class Lender:
    """Sends commands to runs and collects their answers. No method blocks: `turn` receives the answers.

    Of several commands to one run only the refusal of the last counts, because a run refuses an earlier command when a
    later one replaces its plan."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or MonotonicClock()
        self._open: deque[_Asked] = deque()
        self._answers: list[Answer] = []
        self._problems: list[str] = []

    def lend(self, address: str, resize: ResizeJob) -> None:
        """Tells a run its new part of the host. address: the run's command socket; "": the run has none yet, which is
        recorded as a refusal."""
        if not address:
            self._refused(resize, "its supervisor takes no commands yet")
            return
        size = resize.size
        client = CommandClient(address)
        client.send(
            LendMsg(
                cores=resize.cores,
                memory_bytes=resize.memory_bytes,
                workers=size.workers if size is not None else None,
                servers=size.servers if size is not None else None,
                worker_cores=size.worker_cores if size is not None else None,
                is_proposal=resize.is_proposal,
            )
        )
        for one in self._open:
            one.is_newest = one.is_newest and one.resize.job != resize.job
        self._open.append(_Asked(resize, client, self._clock.now_s() + UNANSWERED_S))
        if len(self._open) > MOST_OPEN:
            self._give_up(self._open.popleft())

    def turn(self) -> list[str]:
        """Receives answers. Returns sentences about commands that were refused or not answered. Call it every turn."""
        asked, self._open = self._open, deque()
        for one in asked:
            if self._is_open(one):
                self._open.append(one)
            else:
                one.client.close()
        problems, self._problems = self._problems, []
        return problems

    def answers(self) -> list[Answer]:
        """The answers since the last call."""
        answers, self._answers = self._answers, []
        return answers

    def forget(self, job: str) -> None:
        """Removes the commands and answers of a job whose run has ended."""
        for one in self._open:
            if one.resize.job == job:
                one.client.close()
        self._open = deque(one for one in self._open if one.resize.job != job)
        self._answers = [one for one in self._answers if one.resize.job != job]

    def close(self) -> None:
        for one in self._open:
            one.client.close()
        self._open.clear()

    def _is_open(self, one: _Asked) -> bool:
        """Receives at most one answer of a command. Returns whether another answer may follow."""
        try:
            reply: Reply | None = one.client.receive(0.0)
        except ProtocolError as error:
            self._refused(one.resize, str(error), one.is_newest)
            return False
        now_s = self._clock.now_s()
        if reply is None:
            if now_s < one.until_s:
                return True
            self._refused(one.resize, "its supervisor did not answer in time", one.is_newest)
            return False
        if isinstance(reply, RefusedMsg):
            self._refused(one.resize, reply.message, one.is_newest)
            return False
        self._answers.append(Answer(one.resize))
        one.until_s = now_s + UNDONE_S
        return isinstance(reply, AcceptedMsg)

    def _give_up(self, one: _Asked) -> None:
        self._refused(one.resize, f"it is the oldest of more than {MOST_OPEN} unanswered commands", one.is_newest)
        one.client.close()

    def _refused(self, resize: ResizeJob, why: str, is_newest: bool = True) -> None:
        if is_newest:
            self._answers.append(Answer(resize, why))
            self._problems.append(f"{resize.job} keeps its present resources: {why}")
