"""Puts each fault into a copy of the package and runs the tests that must find it.

    python -m tests.mutations                 all faults
    python -m tests.mutations fence epoch     faults whose names contain one of the words

Slow imports happen once; each fault is tried in a process of its own, forked from the one that has imported them.
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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.interpreter import interpret_kernels
from tests.mutations.catalogue import MUTATIONS, Mutation

__all__ = ["Verdict", "judged"]

ROOT = Path(__file__).resolve().parents[2]
HISTORIES = 200  # number of histories that are run in one mode
SEEN, UNSEEN, BROKEN = 10, 11, 12  # exit codes of a fault's process
LIMIT_S = 200


@dataclass(frozen=True)
class Verdict:
    """The result for one fault. by: the tests or histories that found it; "": none did. problem: why it could not be
    tried."""

    mutation: Mutation
    by: str
    seconds: float
    problem: str = ""

    def __str__(self) -> str:
        said = f"seen by {self.by}" if self.by else self.problem or "NOT SEEN"
        return f"{self.mutation.name}: {said} ({self.seconds:.1f} s)"


def judged(mutations: tuple[Mutation, ...]) -> Iterator[Verdict]:
    """Yields the verdict on each fault."""
    _import_once()
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = Path(folder)
        for name in ("elastichost", "tests"):
            # with numba's caches, which know a source by its time and size; other tests may be writing some of them
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("*.tmp.*", "*.pyc.*"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        for mutation in mutations:
            began_s = time.monotonic()
            by, problem = _judge(mutation, copy)
            yield Verdict(mutation, by, time.monotonic() - began_s, problem)


def _import_once() -> None:
    """Imports the libraries, but no module of the project."""
    interpret_kernels()  # before torchrec imports Triton
    import hypothesis
    import numba
    import pytest
    import torch
    import torchrec  # noqa: F401
    import zmq  # noqa: F401

    assert not any(name.partition(".")[0] == "elastichost" for name in sys.modules), (
        "elastichost must be imported from the copy"
    )
    del hypothesis, numba, pytest, torch


def _judge(mutation: Mutation, copy: Path) -> tuple[str, str]:
    """Returns what found the fault, and why it could not be tried; "" for neither."""
    path = copy / "elastichost" / mutation.file
    if not path.exists() or path.read_text().count(mutation.old) != 1:
        return "", f"elastichost/{mutation.file} has the text to be replaced not exactly once: correct the catalogue"
    with _mutated(path, mutation):
        if mutation.tests and (code := _forked(copy, lambda: _run_tests(mutation.tests))) != UNSEEN:
            return (", ".join(mutation.tests), "") if code == SEEN else ("", "its tests could not be run")
        mode, failed = mutation.histories, copy / "failed_seed"
        code = _forked(copy, lambda: _run_histories(mode, range(HISTORIES), failed)) if mode else UNSEEN
    if code == UNSEEN:
        return "", ""
    if code != SEEN:
        return "", f"its {mode} histories could not be run"
    seed = int(failed.read_text())
    if _forked(copy, lambda: _run_histories(mode, [seed], failed)) != UNSEEN:
        return "", f"the {mode} history of seed {seed} fails without the fault, too"
    return f"the {mode} history of seed {seed}", ""


@contextmanager
def _mutated(path: Path, mutation: Mutation) -> Iterator[None]:
    """Puts the fault into the copy, and takes it out afterwards."""
    source, times = path.read_text(), path.stat()
    path.write_text(source.replace(mutation.old, mutation.new))
    try:
        yield
    finally:
        path.write_text(source)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _forked(copy: Path, work: Callable[[], bool]) -> int:
    """Does this work in the copy, in a forked process, and returns its exit code: SEEN if the work returns true, UNSEEN
    if it returns false, BROKEN after an error."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = BROKEN
    try:
        signal.alarm(LIMIT_S)  # kills the process: its exit code is neither SEEN nor UNSEEN
        log = os.open(copy / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(copy)
        sys.path.insert(0, str(copy))
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        code = SEEN if work() else UNSEEN
    except BaseException:  # noqa: BLE001 - the exit code tells the parent, the log tells people
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _run_tests(tests: tuple[str, ...]) -> bool:
    """Whether one of the tests fails."""
    import pytest
    from hypothesis import Phase, settings

    settings.register_profile("mutations", phases=(Phase.explicit, Phase.generate), database=None)
    settings.load_profile("mutations")  # without shrinking: a failure is enough
    code = pytest.main(["-q", "-x", "-m", "", "-p", "no:cacheprovider", *tests])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise RuntimeError(f"pytest ended with {code!r}")
    return code == pytest.ExitCode.TESTS_FAILED


def _run_histories(mode: str, seeds: Iterable[int], failed: Path) -> bool:
    """Whether one of the histories of this mode fails. The seed of the first that does is written to `failed`."""
    from tests.simulation.histories import histories

    for history in histories(seeds, mode):  # type: ignore[arg-type]
        if history.violations:
            failed.write_text(str(history.scenario.seed))
            return True
    return False


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
