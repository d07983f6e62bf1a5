"""Processes that run one function of the probes and speak lines of JSON: `python -m ... child FUNCTION SETTING FACTS`.

A line that is JSON is a result, any other line is text."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.gpu.probes.setting import Setting

__all__ = ["Child", "Facts", "Lines", "attempt", "children", "hear", "main", "say"]

Facts = dict[str, Any]
MODULE = "benchmarks.gpu.probes.child"  # its __name__ is __main__ in a child that starts children


def say(**facts: Any) -> None:
    """Writes a line of JSON for the parent process."""
    sys.stdout.write(json.dumps(facts, default=str) + "\n")
    sys.stdout.flush()


def hear() -> Facts:
    """Waits for a line from the parent process. Ends this process when the parent is gone."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return parsed(line)


def parsed(line: str) -> Facts:
    """Returns a line as facts; text becomes the fact `text`."""
    try:
        facts = json.loads(line)
    except ValueError:
        return {"text": line.rstrip("\n")}
    return facts if isinstance(facts, dict) else {"text": line.rstrip("\n")}


@contextlib.contextmanager
def attempt(experiment: str) -> Iterator[None]:
    """Says the error of an experiment and lets the next one go on."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - an experiment may fail in any way, and that is its result
        say(experiment=experiment, error=str(error), kind=type(error).__name__, traceback=traceback.format_exc())


class Lines:
    """Reads lines of a pipe, with a time limit."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = b""
        self.ended = False

    def next(self, timeout_s: float) -> str | None:
        """Returns the next line; None at the end of the pipe (then `ended` is true) or after the time limit."""
        end = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            if self.ended or not select.select([self._descriptor], [], [], max(0.0, end - time.monotonic()))[0]:
                return None
            piece = os.read(self._descriptor, 1 << 16)
            self.ended = not piece
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace")


class Child:
    """A process that runs "module:function" with a setting and facts; `pass_fds` are descriptors that it inherits."""

    def __init__(self, function: str, setting: Setting, pass_fds: Sequence[int] = (), **facts: Any) -> None:
        command = [sys.executable, "-m", MODULE, function, setting.as_text(), json.dumps(facts)]
        environment = {**os.environ, **facts.get("environment", {})}
        self.function = function
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=pass_fds, env=environment
        )
        assert self.process.stdout is not None
        self._lines = Lines(self.process.stdout.fileno())

    def hear(self, timeout_s: float = 20) -> Facts:
        """Returns the next result of the process; its other lines are said on as text. Raises TimeoutError, and
        RuntimeError if the process ended or said an error."""
        end = time.monotonic() + timeout_s
        while True:
            line = self._lines.next(end - time.monotonic())
            if line is None:
                if self._lines.ended:
                    raise RuntimeError(f"{self.function} ended with {self.process.wait()}")
                raise TimeoutError(f"{self.function} said nothing for {timeout_s} s")
            facts = parsed(line)
            if "error" in facts:
                raise RuntimeError(f"{self.function}: {facts}")
            if "text" not in facts:
                return facts
            say(text=facts["text"], child=self.function)

    def tell(self, **facts: Any) -> None:
        """Writes a line to the process. Raises BrokenPipeError if it ended."""
        assert self.process.stdin is not None
        self.process.stdin.write((json.dumps(facts) + "\n").encode())
        self.process.stdin.flush()

    def kill(self) -> float:
        """Kills the process by SIGKILL and returns the seconds until waitpid returned."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        return time.monotonic() - begin

    def finish(self, timeout_s: float = 10) -> None:
        """Closes its input and waits for its end; kills it after the time limit."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self.process.stdout.close()


@contextlib.contextmanager
def children() -> Iterator[list[Child]]:
    """Yields a list; the processes put into it are ended at the end."""
    started: list[Child] = []
    try:
        yield started
    finally:
        for child in started:
            child.finish(timeout_s=0 if sys.exc_info()[0] else 5)


def main(arguments: Sequence[str]) -> int:
    """Runs the function; an error is said as JSON with its traceback."""
    name, setting, facts = arguments
    module, _, function = name.partition(":")
    try:
        getattr(importlib.import_module(module), function)(Setting.from_text(setting), **json.loads(facts))
    except Exception as error:  # noqa: BLE001 - the process that started this one must learn of any error
        say(error=str(error), kind=type(error).__name__, traceback=traceback.format_exc())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
