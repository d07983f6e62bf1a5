"""An interrupt that comes while a run begins."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import elastichost as eh
from elastichost.api.interrupts import run_to_end
from tests.system.test_run import folder

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

__all__ = ["folder"]


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """Tests that were started in the background of a shell ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_while_a_run_begins_ends_the_run(folder: Path) -> None:
    """The run has a process already, and nobody has its handle yet."""
    data = eh.Data(format="synthetic", synthetic={"rows": 10_000, "test_rows": 1000, "tables": 2, "table_rows": 100})
    begun: list[eh.RunHandle] = []
    before = set(psutil.Process().children())  # of other tests

    def begin() -> eh.RunHandle:
        begun.append(eh.start(model="elastichost.models:dlrm", data=data, dir=folder / "run"))
        os.kill(os.getpid(), signal.SIGINT)
        return begun[0]

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="the run is stopped"):
        run_to_end(begin, [])
    assert not begun[0].is_running
    assert set(psutil.Process().children()) <= before
    assert signal.getsignal(signal.SIGINT) is handler
