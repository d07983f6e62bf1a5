"""elastichost compared with other systems that train the same model here: samples per second, CPU time, memory.

    python -m elastichost bench data-plane            all batch sizes and models: about half an hour
    python -m elastichost bench data-plane --quick    dlrm with 2048 samples a batch: below a minute
    python -m elastichost bench data-plane --only direct2,tbe1
    python -m elastichost bench data-plane --shapes   models of five sizes in float32 and bfloat16: 11 minutes
    python -m elastichost bench data-plane --shapes --quick     the same in 4 minutes
    python -m elastichost bench data-plane --shape "dim=96 batch=1024 bottom=384-96 top=768-384-1 tables=26 rows=100000"

Every arm (elastichost in several forms, and each peer) is a tree of real processes that trains the workload
"Criteo-26" endlessly. All arms start together and are stopped as soon as they train. Then, in each round, each arm
runs alone for a window. TensorFlow is an arm if it can be imported; --tensorflow-python PATH names another Python that
has it (benchmarks/requirements-tensorflow.txt).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, get_args

from rich.console import Console

from benchmarks.data_plane import plot, report
from benchmarks.data_plane.comparison import SEED, Comparison, Options
from benchmarks.data_plane.lineup import all_arms
from benchmarks.data_plane.report import CaseResult
from benchmarks.data_plane.shapes import report as shapes_report
from benchmarks.data_plane.shapes.comparison import ShapeOptions, compare_shapes
from benchmarks.data_plane.shapes.figures import ShapeResult
from benchmarks.data_plane.windows import WindowSettings
from benchmarks.harness.aims import is_any_missed
from benchmarks.harness.interleave import Rounds
from benchmarks.harness.machine import Machine, read_machine
from benchmarks.harness.workshop import Workshop
from benchmarks.workload.shape import SHAPES, ModelName, Shape, parse_shape

__all__ = ["main"]

MODELS: tuple[ModelName, ...] = get_args(ModelName)
Word = TypeVar("Word", bound=str)
HEADLINE = ("dlrm", 2048)
NOT_QUICK = ("served2", "bare_loop_fused", "direct1_fused")
WIDTH = 160  # of the output, if it is not a terminal
QUICK_S = 46.0  # a quick run starts no round that would end after this time
QUICK_SHAPE_S = 65.0  # the same for one of several shapes
QUICK_IDS_BYTES, IDS_BYTES = 150_000_000, 600_000_000


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="elastichost bench data-plane", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="dlrm with B = 2048 and short windows")
    parser.add_argument("--json", action="store_true", help="print progress to stderr, and one JSON object to stdout")
    parser.add_argument("--models", help=f"comma-separated: {', '.join(MODELS)}")
    parser.add_argument("--batch-sizes", help="comma-separated, per worker")
    parser.add_argument("--shapes", action="store_true", help=f"the shapes {', '.join(SHAPES)}")
    parser.add_argument("--shape", action="append", metavar="SIZES", help="another shape; may be given several times")
    parser.add_argument("--rounds", type=int, help="number of windows of each arm")
    parser.add_argument("--window", type=float, metavar="SECONDS", help="length of a window")
    parser.add_argument("--samples", type=int, help="number of training samples in an epoch")
    parser.add_argument("--only", metavar="ARMS", help=f"comma-separated: {', '.join(all_arms())}")
    parser.add_argument("--out", type=Path, metavar="DIR", help="directory for data_plane.png and data_plane.md")
    parser.add_argument("--tensorflow-python", default=sys.executable, metavar="PATH", help="a Python with tensorflow")
    return parser


def _options(given: argparse.Namespace, began_s: float) -> Options:
    """The options with the defaults of a quick or a full run. Raises ValueError for invalid options."""
    quick, known = given.quick, all_arms()
    sizes = tuple(int(size) for size in given.batch_sizes.split(",")) if given.batch_sizes else ()
    options = Options(
        arms={name: known[name] for name in _chosen(given.only, list(known), _usual_arms(known, quick=quick))},
        models=_chosen(given.models, MODELS, MODELS[:1] if quick else MODELS),
        batch_sizes=sizes or ((2048,) if quick else (512, 2048, 8192)),
        samples=given.samples or (400_000 if quick else 1_000_000),
        rounds=Rounds(
            given.rounds or (5 if quick else 7),
            is_shuffled=True,
            seed=SEED,
            deadline_s=began_s + QUICK_S if quick else float("inf"),
            least=1 if quick else 2,
        ),
        windows=WindowSettings(
            window_s=given.window or (0.4 if quick else 2.0),
            settle_s=0.15 if quick else 0.4,
            repeats=1 if quick else 3,
        ),
        tensorflow_python=given.tensorflow_python,
    )
    if min(options.batch_sizes) < 1 or options.samples < 2 * max(options.batch_sizes):
        raise ValueError("a batch size must be at least 1, and the samples must fill at least two batches")
    return options


def _shapes(given: argparse.Namespace) -> dict[str, Shape]:
    """The shapes by name; empty without --shapes and --shape. Raises ValueError for invalid sizes."""
    return {**(SHAPES if given.shapes else {}), **{text: parse_shape(text) for text in given.shape or ()}}


def _shape_options(given: argparse.Namespace, shapes: Mapping[str, Shape]) -> ShapeOptions:
    quick = given.quick
    return ShapeOptions(
        shapes=shapes,
        samples=given.samples or (400_000 if quick else 1_000_000),
        ids_bytes=QUICK_IDS_BYTES if quick else IDS_BYTES,
        rounds=Rounds(given.rounds or (3 if quick else 5), is_shuffled=True, seed=SEED, least=1 if quick else 2),
        windows=WindowSettings(
            window_s=given.window or (0.5 if quick else 2.0), settle_s=0.3, repeats=0 if quick else 3
        ),
        shape_s=QUICK_SHAPE_S if quick else float("inf"),
    )


def _usual_arms(known: Iterable[str], *, quick: bool) -> list[str]:
    """The default arms. A quick run spends most of its time starting arms, so it leaves out those no ratio needs."""
    return [name for name in known if not (quick and name in NOT_QUICK)]


def _chosen(given: str | None, known: Sequence[Word], default: Sequence[Word]) -> tuple[Word, ...]:
    """The words of a comma-separated list, in the order of `known`. Raises ValueError for unknown words."""
    if not given:
        return tuple(default)
    words = given.split(",")
    unknown = set(words).difference(known)
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))}: choose from {', '.join(known)}")
    return tuple(word for word in known if word in words)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark and returns the exit code: 1 if an arm failed or an aim was missed, else 0."""
    began_s = time.monotonic()
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        shapes, options = _shapes(given), _options(given, began_s)
    except ValueError as error:
        parser.error(str(error))
    stream = sys.stderr if given.json else sys.stdout
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else WIDTH)
    if shapes:
        return _compare_shapes(given, _shape_options(given, shapes), console, began_s)
    with Workshop() as workshop:
        results, tensorflow = Comparison(workshop, options, console, began_s).all_cases()
    machine = read_machine({"tensorflow": tensorflow} if tensorflow is not None else None)
    if not given.json:
        for result in results:
            console.print("", report.figures_table(result), "", report.ratios_table(result), sep="\n")
            console.print(report.disturbance(result), style="yellow" if result.kept_disturbed else "dim")
    if given.out is not None:
        _write(results, machine, given.out, console)
    console.print(f"\n{time.monotonic() - began_s:.0f} s in all")
    if given.json:
        headline = next((one for one in results if (one.model, one.batch_size) == HEADLINE), results[0])
        sys.stdout.write(json.dumps(report.to_json(results, headline, machine)) + "\n")
    return int(any(map(_has_missed, results)))


def _compare_shapes(given: argparse.Namespace, options: ShapeOptions, console: Console, began_s: float) -> int:
    with Workshop() as workshop:
        results = compare_shapes(workshop, options, console, began_s)
    machine = read_machine()
    console.print("", shapes_report.shapes_table(results), "", sep="\n")
    for note in (note for result in results for note in shapes_report.notes(result)):
        console.print(note, markup=False)
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        page = given.out / "shapes.md"
        command = " ".join(["python -m elastichost bench data-plane", *(["--shapes"] if given.shapes else [])])
        page.write_text(shapes_report.markdown(results, machine, command), encoding="utf-8")
        console.print(f"written: {page}")
    console.print(f"\n{time.monotonic() - began_s:.0f} s in all")
    if given.json:
        sys.stdout.write(json.dumps(shapes_report.shapes_json(results, machine)) + "\n")
    return int(any(map(_has_missed, results)))


def _has_missed(result: CaseResult | ShapeResult) -> bool:
    """Whether an arm failed or an aim was missed."""
    return bool(result.failures) or is_any_missed(result.verdicts.values())


def _write(results: Sequence[CaseResult], machine: Machine, out: Path, console: Console) -> None:
    out.mkdir(parents=True, exist_ok=True)
    picture = out / "data_plane.png"
    has_picture = plot.is_available()
    if has_picture:
        plot.save_plot(results, machine, picture)
    else:
        console.print("no chart: matplotlib is not installed (pip install matplotlib)")
    page = out / "data_plane.md"
    page.write_text(report.markdown(results, machine, picture.name if has_picture else None), encoding="utf-8")
    console.print(f"written: {page}" + (f", {picture}" if has_picture else ""))


if __name__ == "__main__":
    sys.exit(main())
