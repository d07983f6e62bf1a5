"""Training in a real Jupyter kernel: what a notebook shows, the stop button, and what a kernel that ends leaves."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import elastichost as eh
from elastichost.metrics import read_status
from elastichost.runs.learning_curve import read_curve
from elastichost.wire.applied import read_applied
from tests.examples.kernels import LIMIT_S, Kernel, kernel_in
from tests.system.test_run import folder

pytestmark = [pytest.mark.system, pytest.mark.timeout(200)]

__all__ = ["folder"]

ROWS = 60_000
CELL = f"""
import time
import elastichost as eh

PAUSE_S = 0.01

def pause(*_):
    time.sleep(PAUSE_S)

def build(tables, num_dense, **args):
    from elastichost.models import dlrm
    model = dlrm(tables, num_dense, bottom=[16, 8], top=[16, 1], **args)
    model.register_forward_pre_hook(pause)
    return model

shape = {{"rows": {ROWS}, "test_rows": 3000, "tables": 4, "table_rows": 500, "dense": 3, "unit_rows": 8192}}
facts = dict(
    data=eh.Data(format="synthetic", synthetic=shape), tables={{"default": eh.Table(dim=8)}}, workers=2, servers=1,
    tuner={{"mode": "off"}}, train={{"batch_size": 128}},
)
"""


@pytest.fixture
def kernel(folder: Path) -> Iterator[Kernel]:
    with kernel_in(folder) as opened:
        assert not opened.run(CELL).error
        yield opened


def wait_for(what: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not what():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def has_begun(run_dir: Path) -> bool:
    return run_dir.exists()


def is_examined(run_dir: Path) -> bool:
    """The model is being examined, before the training."""
    return (run_dir / "journal.jsonl").exists()


def is_trained(run_dir: Path) -> bool:
    return bool(read_curve(run_dir))


def assert_exact(run: eh.Run) -> None:
    assert run.status == "done"
    assert run.samples == {"planned": ROWS, "trained": ROWS, "skipped": 0, "quarantined": 0}
    assert int(read_applied(run.dir)["samples"].sum()) == ROWS


def test_a_run_is_one_output_that_changes_and_the_kernel_goes_on(kernel: Kernel, folder: Path) -> None:
    """Two runs in one kernel, the second one with a changed model and with a callback that fails."""
    cell = kernel.run("run = eh.train(model=build, dir='one', **facts)\nrun")
    assert not cell.error and not cell.stdout and not cell.stderr
    (shown,) = cell.displays.values()
    assert cell.updates >= 1
    assert shown["text/plain"].startswith("Run one: done, auc 0.")
    assert "<code>Run one: done" in shown["text/html"]
    assert f"{folder}/one" in cell.result["text/html"] and f"{ROWS:,} of {ROWS:,}" in cell.result["text/html"]
    assert_exact(eh.Run(folder / "one"))
    kernel.run(
        "PAUSE_S = 0.0\nclass Failing(eh.Callback):\n    def on_end(self, run):\n        raise ValueError('no luck')\n"
    )
    cell = kernel.run("again = eh.train(model=build, dir='two', callbacks=[Failing()], **facts)")
    assert not cell.error
    assert "ValueError: no luck" in cell.stderr and "raise ValueError" in cell.stderr
    assert "PAUSE_S = 0.0" in (folder / "two" / "model.py").read_text()
    assert "PAUSE_S = 0.01" in (folder / "one" / "model.py").read_text()
    assert_exact(eh.Run(folder / "two"))
    assert kernel.descendants() == []


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(has_begun, marks=pytest.mark.thorough),
        pytest.param(is_examined, marks=pytest.mark.thorough),
        is_trained,
    ],
    ids=lambda one: one.__name__,
)
def test_the_stop_button_leaves_a_run_that_can_be_resumed(
    kernel: Kernel, folder: Path, moment: Callable[[Path], bool]
) -> None:
    started = kernel.start_cell("eh.train(model=build, dir='run', **facts)")
    wait_for(lambda: moment(folder / "run"))
    kernel.manager.interrupt_kernel()
    cell = kernel.output_of(started)
    assert cell.ename == "KeyboardInterrupt"
    assert "----> 1 eh.train(model=build" in cell.error, "the user's own line"
    assert "elastichost/api" not in cell.error and len(cell.error.splitlines()) <= 5
    assert kernel.descendants() == []
    if moment is is_trained:
        assert f"eh.resume('{folder}/run')" in cell.error
        cell = kernel.run(f"eh.resume('{folder}/run')")
        assert not cell.error
        assert_exact(eh.Run(folder / "run"))
    else:
        assert "it had not begun to train" in cell.error or "nothing of it was saved" in cell.error
        assert (folder / "run").exists() == (moment is is_examined)
        cell = kernel.run("eh.train(model=build, dir='again', **facts)")
        assert not cell.error
        assert_exact(eh.Run(folder / "again"))


@pytest.mark.thorough
def test_the_stop_button_while_a_handle_waits_ends_the_waiting_only(kernel: Kernel, folder: Path) -> None:
    kernel.run("handle = eh.start(model=build, dir='run', **facts)")
    started = kernel.start_cell("handle.wait()")
    wait_for(lambda: is_trained(folder / "run"))
    kernel.manager.interrupt_kernel()
    assert kernel.output_of(started).ename == "KeyboardInterrupt"
    assert kernel.run("handle.is_running").result["text/plain"] == "True"
    assert not kernel.run("handle.wait()").error
    assert_exact(eh.Run(folder / "run"))


@pytest.mark.thorough
def test_a_second_press_kills_a_run_that_does_not_stop_soon(kernel: Kernel, folder: Path) -> None:
    """Its model hangs in a batch, so its workers do not end after the first press."""
    kernel.run(
        "import os\n"
        f"HANG = {str(folder / 'hang')!r}\n"
        "def pause(*_):\n"
        "    time.sleep(PAUSE_S)\n"
        "    while os.path.exists(HANG):\n"
        "        time.sleep(0.01)\n"
        "facts['supervision'] = {'hang_timeout_s': 600.0}"
    )
    started = kernel.start_cell("eh.train(model=build, dir='run', **facts)")
    wait_for(lambda: is_trained(folder / "run"))
    (folder / "hang").touch()
    kernel.manager.interrupt_kernel()
    wait_for(lambda: read_status(folder / "run").state == "stopping")
    kernel.manager.interrupt_kernel()
    cell = kernel.output_of(started)
    assert cell.ename == "KeyboardInterrupt" and "nothing of it was saved" in cell.error
    assert eh.Run(folder / "run").status == "killed"
    assert kernel.descendants() == []
    assert not kernel.run("1 + 1").error


def kill(kernel: Kernel) -> None:
    os.kill(kernel.pid, signal.SIGKILL)


def restart(kernel: Kernel) -> None:
    kernel.manager.restart_kernel()


@pytest.mark.thorough
@pytest.mark.parametrize("end", [kill, restart], ids=lambda one: one.__name__)
def test_a_kernel_that_ends_leaves_a_run_that_can_be_resumed(
    kernel: Kernel, folder: Path, end: Callable[[Kernel], None]
) -> None:
    kernel.run("handle = eh.start(model=build, dir='run', **facts)")
    wait_for(lambda: is_trained(folder / "run"))
    of_run = kernel.descendants()
    assert len(of_run) >= 4, "the supervisor, a parameter server and two workers"
    end(kernel)
    assert_end(of_run)
    run = eh.Run(folder / "run")
    assert run.status == "stopped"
    assert_exact(eh.resume(run, progress=False))


@pytest.mark.thorough
def test_a_process_that_the_kernel_forked_keeps_no_run_alive(kernel: Kernel, folder: Path) -> None:
    """The child has all files and sockets of the kernel, so they do not close when the kernel is killed."""
    kernel.run("handle = eh.start(model=build, dir='run', **facts)")
    wait_for(lambda: is_trained(folder / "run"))
    of_run = kernel.descendants()
    kernel.run("import os\nif os.fork() == 0:\n    time.sleep(600)\n    os._exit(0)")
    (child,) = set(kernel.descendants()) - set(of_run)
    try:
        kill(kernel)
        assert_end(of_run)
        assert child.is_running()
    finally:
        child.kill()
    assert eh.Run(folder / "run").status == "stopped"


def assert_end(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=LIMIT_S)
    assert alive == []


@pytest.mark.thorough
def test_errors_are_short_and_show_the_users_line(kernel: Kernel, folder: Path) -> None:
    kernel.run("log = open('log.txt', 'w')\ndef with_file(tables, num_dense):\n    return log")
    kernel.run("def broken(tables, num_dense):\n    return tables[7]")
    for code, said in (
        ("eh.Data(lable='clicked')", 'did you mean "label"'),
        ("eh.train(model=with_file, **facts)", "'log', which is a TextIOWrapper"),
        ("eh.train(model=broken, **facts)", "in broken\n    return tables[7]"),
        ("eh.train(model='nowhere.py:build', **facts)", "there is no file"),
        ("eh.train(model=build, **facts, trian={'epochs': 2})", 'did you mean "train"'),
        ("eh.Run('nowhere')", "is not the directory of a run"),
    ):
        cell = kernel.run(code)
        assert said in cell.error, cell.error
        assert f"----> 1 {code}" in cell.error
        assert len(cell.error.splitlines()) <= 20, cell.error
    assert kernel.descendants() == []
