"""Runs the probes one after the other: `python -m benchmarks.gpu.probes [--only P1,P3] [--out DIR] [--dry-run]`.

Every result is a line of JSON, printed at once and written to DIR/probes.jsonl, so that nothing is lost when the
machine is taken away. Each probe is a process of its own with a time limit."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from benchmarks.gpu.device.kernels import compile_kernels
from benchmarks.gpu.device.mounts import remove_left
from benchmarks.gpu.probes.child import Facts, Lines, parsed
from benchmarks.gpu.probes.registry import PROBES, Probe
from benchmarks.gpu.probes.setting import Setting

START_S = 2.0  # a probe gets its deadline that much before it is killed


@dataclass(frozen=True)
class Report:
    """Where results go: the screen and a file."""

    file: TextIO
    begin_s: float

    def write(self, probe: str, facts: Facts) -> None:
        """Writes one result to both at once."""
        line = json.dumps({"probe": probe, "at_s": round(time.monotonic() - self.begin_s, 3), **facts})
        for stream in (sys.stdout, self.file):
            stream.write(line + "\n")
            stream.flush()


def run_probe(name: str, probe: Probe, setting: Setting, report: Report) -> None:
    """Runs a probe, reports what it says, and kills it with its children at its deadline."""
    command = [sys.executable, "-m", "benchmarks.gpu.probes.child", probe.function, setting.as_text(), "{}"]
    begin = time.monotonic()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    assert process.stdout is not None
    lines, end = Lines(process.stdout.fileno()), setting.deadline_s + START_S
    while not lines.ended:
        line = lines.next(min(0.5, max(0.0, end - time.monotonic())))
        if line is not None:
            report.write(name, parsed(line))
        elif time.monotonic() >= end:
            report.write(name, {"error": "killed at its time limit"})
            break
        elif process.poll() is not None and not lines.ended:
            line = lines.next(0.2)  # a grandchild may keep the pipe open
            if line is None:
                break
            report.write(name, parsed(line))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    code = process.wait()
    process.stdout.close()
    remove_left(process.pid)
    report.write(name, {"experiment": "probe", "exit_code": code, "elapsed_s": round(time.monotonic() - begin, 3)})


def run_probes(names: Sequence[str], out: Path, budget_s: float, dry_run: bool) -> None:
    """Runs the named probes until the budget is spent."""
    out.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="probes-") as folder, (out / "probes.jsonl").open("a") as file:
        report = Report(file, begin)
        kernels = Path(folder) / "kernels.cubin"
        try:
            report.write("setup", {"compiler": "none" if dry_run else compile_kernels(kernels)})
        except RuntimeError as error:
            report.write("setup", {"error": str(error), "traceback": traceback.format_exc()})
        for name in names:
            left_s = begin + budget_s - time.monotonic() - START_S
            if left_s <= START_S:
                report.write(name, {"error": "not begun: the time of all probes is spent"})
                continue
            deadline = time.monotonic() + min(left_s, PROBES[name].limit_s)
            run_probe(name, PROBES[name], Setting(folder, str(kernels), str(out), deadline, dry_run), report)
        report.write("setup", {"elapsed_s": round(time.monotonic() - begin, 3)})


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def main(arguments: Sequence[str]) -> int:
    """Parses the command line and runs the probes. Returns 3 without a GPU; exits with 2 for an unknown probe."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.probes", description=__doc__)
    parser.add_argument("--only", default="", help=f"names with commas; all: {','.join(PROBES)}")
    parser.add_argument("--out", type=Path, default=Path("gpu-probes"), help="folder of the results")
    parser.add_argument("--budget", type=float, default=150, help="seconds for all probes")
    parser.add_argument(
        "--dry-run", action="store_true", help="a double stands in for the device; figures mean nothing"
    )
    chosen = parser.parse_args(arguments)
    names = [name for name in chosen.only.split(",") if name] or list(PROBES)
    unknown = [name for name in names if name not in PROBES]
    if unknown:
        parser.error(f"unknown probes {unknown}; there are {list(PROBES)}")
    if not chosen.dry_run and not _has_gpu():
        print("the probes need a GPU, and torch in its CUDA build; --dry-run tries them without", file=sys.stderr)
        return 3
    run_probes(names, chosen.out.resolve(), chosen.budget, chosen.dry_run)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
