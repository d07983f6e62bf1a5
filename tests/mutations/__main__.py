"""Puts each fault into a copy of the package and runs the tests that must see it.

    python -m tests.mutations                 all of them
    python -m tests.mutations fence epoch     those whose names hold one of the words

What takes seconds to import is imported once; each fault has a process of its own, forked from that.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.catalogue import MUTATIONS, Mutation

__all__ = ["Verdict", "judged"]

ROOT = Path(__file__).resolve().parents[2]
HISTORIES = 200  # of one mode are looked through
SEEN, UNSEEN, BROKEN = 10, 11, 12  # exit codes of a fault's process
LIMIT_S = 200


@dataclass(frozen=True)
class Verdict:
    """`by`: what saw the fault, "" when nothing did."""

    mutation: Mutation
    by: str
    seconds: float
    problem: str = ""

    def __str__(self) -> str:
        said = f"seen by {self.by}" if self.by else self.problem or "NOT SEEN"
        return f"{self.mutation.name}: {said} ({self.seconds:.1f} s)"


def judged(mutations: tuple[Mutation, ...]) -> Iterator[Verdict]:
    """One verdict after the other."""
    _import_once()
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = Path(folder)
        for name in ("elastichost", "tests"):
            shutil.copytree(ROOT / name, copy / name)  # with numba's caches: they know a source by its time and size
        shutil.copy(ROOT / "pyproject.toml", copy)
        broken = {mode for mode in {m.histories for m in mutations} if mode and _sees_histories(copy, mode) != UNSEEN}
        for mutation in mutations:
            began_s = time.monotonic()
            by, problem = _judge(mutation, copy, broken)
            yield Verdict(mutation, by, time.monotonic() - began_s, problem)


def _import_once() -> None:
    """What is not the project's own."""
    import hypothesis
    import numba
    import pytest
    import torch
    import torchrec  # noqa: F401
    import zmq  # noqa: F401

    assert not any(name.partition(".")[0] == "elastichost" for name in sys.modules), (
        "its modules must come from the copy"
    )
    del hypothesis, numba, pytest, torch


def _sees_histories(copy: Path, mode: str) -> int:
    return _forked(copy, lambda: _run_histories(mode))


def _judge(mutation: Mutation, copy: Path, broken: set[str]) -> tuple[str, str]:
    """(what saw it, why it could not be tried). broken: modes of which a history fails without any fault."""
    path = copy / "elastichost" / mutation.file
    if not path.exists() or path.read_text().count(mutation.old) != 1:
        return "", f"elastichost/{mutation.file} holds the text to be replaced not once: mend the catalogue"
    with _mutated(path, mutation):
        if mutation.tests and (code := _forked(copy, lambda: _run_tests(mutation.tests))) != UNSEEN:
            return (", ".join(mutation.tests), "") if code == SEEN else ("", "its tests could not be run")
        if mutation.histories in broken:
            return "", f"{mutation.histories} histories fail without it"
        if mutation.histories and (code := _sees_histories(copy, mutation.histories)) != UNSEEN:
            return (f"{mutation.histories} histories", "") if code == SEEN else ("", "its histories could not be run")
    return "", ""


@contextmanager
def _mutated(path: Path, mutation: Mutation) -> Iterator[None]:
    """The fault is in the copy, and then it is not."""
    source, times = path.read_text(), path.stat()
    path.write_text(source.replace(mutation.old, mutation.new))
    try:
        yield
    finally:
        path.write_text(source)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _forked(copy: Path, work: Callable[[], bool]) -> int:
    """Exit code of a process that does this work in the copy: it answers whether it saw anything."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = BROKEN
    try:
        signal.alarm(LIMIT_S)  # kills it: neither seen nor unseen
        log = os.open(copy / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(copy)
        sys.path.insert(0, str(copy))
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        code = SEEN if work() else UNSEEN
    except BaseException:  # noqa: BLE001 - the parent is told by the code, people by the log
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _run_tests(tests: tuple[str, ...]) -> bool:
    import pytest
    from hypothesis import Phase, settings

    settings.register_profile("mutations", phases=(Phase.explicit, Phase.generate), database=None)
    settings.load_profile("mutations")  # what fails need not be made small
    code = pytest.main(["-q", "-x", "-m", "", "-p", "no:cacheprovider", *tests])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest ended with {code!r}")
    return code == pytest.ExitCode.TESTS_FAILED


def _run_histories(mode: str) -> bool:
    from tests.simulation.histories import histories

    return any(history.violations for history in histories(range(HISTORIES), mode))  # type: ignore[arg-type]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    words = parser.parse_args().words
    chosen = tuple(m for m in MUTATIONS if not words or any(word in m.name for word in words))
    began_s, unseen = time.monotonic(), 0
    for verdict in judged(chosen):
        print(verdict, flush=True)
        unseen += not verdict.by
    print(f"{len(chosen)} faults in {time.monotonic() - began_s:.0f} s, {unseen} not seen")
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main())
