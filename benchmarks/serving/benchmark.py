"""Serving: requests per second and their times at 1, 16 and 64 clients, beside FastAPI with an eager model.

    python -m elastichost bench serving --rounds 5

The model is that of examples/synthetic.toml (13 numbers, 26 ids a row) after a short training; a request has 100 rows.
Arms: `serve` with the program of torch.export and JSON, with Arrow, `serve` with the torchrec export and JSON, and
`FastAPI`: one endpoint around the same export, JSON, no batches. All have one server process; clients, in a process of
their own, ask one after another over open connections. `--quick` only tries whether everything runs.

TorchServe is not among the arms: it is no longer maintained. To compare with it, put an export of format torchrec and a
handler with the three lines of `plain_server.predict` into an archive, and run `benchmarks.serving.load` on its port.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.harness.aims import Aim
from benchmarks.harness.benchmark import Benchmark, Figure, PairedFigure
from benchmarks.harness.interleave import Rounds
from benchmarks.harness.output import write_json
from benchmarks.harness.runner import exit_code, print_outcomes, run
from benchmarks.harness.training_run import EXAMPLES, train
from benchmarks.serving.load import Load, measure

__all__ = ["ARMS", "benchmark_of", "main", "write_bodies"]

CLIENTS = (1, 16, 64)
REQUEST_ROWS = 100
BODIES = 20  # different requests
PROGRAM, ARROW, MODEL, PLAIN = "serve", "serve, Arrow", "serve, torchrec export", "FastAPI"
ARMS = (PROGRAM, ARROW, MODEL, PLAIN)
NUMBERS, IDS, TABLE_ROWS = 13, 26, 100_000


def write_bodies(folder: Path, rows: int, count: int) -> dict[str, list[Path]]:
    """Requests with random rows as JSON and as Arrow, by suffix."""
    generator = np.random.default_rng(1)
    found: dict[str, list[Path]] = {"json": [], "arrow": []}
    for number in range(count):
        columns = {f"d{i}": pa.array(generator.exponential(2, rows).round(3)) for i in range(NUMBERS)}
        columns |= {f"c{i}": pa.array(generator.integers(0, TABLE_ROWS, rows)) for i in range(IDS)}
        table = pa.table(columns)
        for suffix in found:
            found[suffix].append(folder / f"request-{number}.{suffix}")
        found["json"][-1].write_text(json.dumps({"rows": table.to_pylist()}))
        with pa.ipc.new_stream(found["arrow"][-1], table.schema) as writer:
            writer.write_table(table)
    return found


@contextmanager
def serving(arm: str, exports: Path) -> Iterator[int]:
    """The server of an arm in a process. Yields its port."""
    if arm == PLAIN:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = ["benchmarks.serving.plain_server", str(exports / "torchrec"), str(port)]
    else:
        directory = exports / ("torchrec" if arm == MODEL else "pt2")
        command = ["elastichost", "serve", str(directory), "--port", "0", "--json"]
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if arm != PLAIN:
                port = int(json.loads(line)["url"].rpartition(":")[2])
            _wait_until_open(port)
            yield port
        finally:
            process.terminate()


def _wait_until_open(port: int) -> None:
    """Raises ConnectionRefusedError if nothing listens after a hundred tries."""
    for tries_left in reversed(range(100)):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=10).close()
        except ConnectionRefusedError:
            if not tries_left:
                raise
            subprocess.run(["sleep", "0.1"], check=True)
        else:
            return


def measure_arm(arm: str, exports: Path, bodies: dict[str, list[Path]], clients: int, seconds: float, _: int) -> Load:
    with serving(arm, exports) as port:
        return measure(port, clients, seconds, bodies["arrow" if arm == ARROW else "json"])


def benchmark_of(measured: Callable[[str, int], Callable[[int], Load]], clients: int, rounds: int) -> Benchmark[Load]:
    """The benchmark for a number of clients. measured: (arm, clients) -> the function that measures a round."""

    def requests(one: Load, other: Load) -> float:
        return one.requests_per_s / other.requests_per_s

    def slowest(one: Load, other: Load) -> float:
        return one.p99_ms / other.p99_ms

    return Benchmark(
        title=f"{REQUEST_ROWS} rows a request: median (least-most)",
        case=f"{clients} clients" if clients > 1 else "1 client",
        arms={arm: measured(arm, clients) for arm in ARMS},
        rounds=Rounds(rounds),
        figures=(
            Figure("requests/s", "", lambda one: one.requests_per_s, form=",.0f"),
            Figure("p50", "ms", lambda one: one.p50_ms),
            Figure("p99", "ms", lambda one: one.p99_ms),
            Figure("failed", "", lambda one: float(one.failed), form=".0f"),
        ),
        pairs=(
            PairedFigure("requests/s, serve over FastAPI", "", PROGRAM, PLAIN, requests),
            PairedFigure("p99, serve over FastAPI", "", PROGRAM, PLAIN, slowest),
        ),
        aims=(
            Aim("requests/s, serve over FastAPI", 1.0, "at least"),
            Aim("p99, serve over FastAPI", 1.0, "at most"),
            *(Aim("failed", 0, "at most", arm) for arm in (PROGRAM, ARROW, MODEL)),
        ),
    )


def make_exports(folder: Path, rows: int) -> Path:
    """Trains the example and exports it in both formats. Returns the folder with `torchrec` and `pt2`."""
    settings = {"data.synthetic.rows": rows, "data.synthetic.test_rows": 1000}
    train(EXAMPLES / "synthetic.toml", settings, folder / "run")
    for form in ("torchrec", "pt2"):
        command = ["elastichost", "export", str(folder / "run"), str(folder / form), "--format", form]
        subprocess.run([sys.executable, "-m", *command], stdout=subprocess.DEVNULL, check=True)
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="elastichost bench serving", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each arm (5)")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each measurement (15)")
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS, help="numbers of clients (1 16 64)")
    parser.add_argument("--quick", action="store_true", help="one short round: tries that everything runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    chosen = parser.parse_args(arguments)
    rounds, seconds = (1, 2.0) if chosen.quick else (chosen.rounds, chosen.seconds)
    with tempfile.TemporaryDirectory(prefix="elastichost-benchmark-") as name:
        folder = Path(name)
        exports = make_exports(folder, rows=20_000 if chosen.quick else 500_000)
        bodies = write_bodies(folder, REQUEST_ROWS, BODIES)

        def measured(arm: str, clients: int) -> Callable[[int], Load]:
            return partial(measure_arm, arm, exports, bodies, clients, seconds)

        outcomes = [run(benchmark_of(measured, clients, rounds)) for clients in chosen.clients]
    print_outcomes(outcomes)
    if chosen.json:
        figures = {
            outcome.benchmark.case: {
                arm: {figure.name: outcome.figure(figure.name, arm) for figure in outcome.benchmark.figures}
                for arm in ARMS
            }
            for outcome in outcomes
        }
        write_json("serving", figures, [verdict for outcome in outcomes for verdict in outcome.verdicts()])
    return 0 if chosen.quick else exit_code(outcomes)
