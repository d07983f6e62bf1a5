"""Writes all measurements of the tuner's benchmarks to one page.

    python -m benchmarks.tuner.results --run all          measures everything: two hours on a quiet machine
    python -m benchmarks.tuner.results --run real,search  measures these parts again
    python -m benchmarks.tuner.results                    writes the page from the last measurements
    python -m benchmarks.tuner.results --take live=FILE   keeps the output of `python -m benchmarks.tuner.live --json`
    python -m benchmarks.tuner.results --run memory --quick --into FOLDER  tests the path from a part to the page

The output of each part is kept, with its machine, in `benchmarks/tuner/data/results/PART.json`. `docs/tuner.md` (every
table and plot) and the table of aims in `benchmarks/RESULTS.md` are made from these files.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from benchmarks.harness.commit import read_commit
from benchmarks.harness.machine import Machine
from benchmarks.tuner.results.plots import save_plots
from benchmarks.tuner.results.row import Row
from benchmarks.tuner.results.rows import rows_of

__all__ = [
    "PARTS",
    "Kept",
    "Part",
    "Places",
    "kept_of",
    "main",
    "measured",
    "page_of",
    "places_in",
    "read_kept",
    "with_table",
]

ROOT = Path(__file__).resolve().parents[3]
KEPT = Path(__file__).parents[1] / "data" / "results"
PAGE, RESULTS = ROOT / "docs" / "tuner.md", ROOT / "benchmarks" / "RESULTS.md"
BEGIN, END = "<!-- made by benchmarks.tuner.results: begin -->", "<!-- made by benchmarks.tuner.results: end -->"


class Part(msgspec.Struct, frozen=True):
    """A benchmark of this package. is_live: it needs a quiet machine."""

    title: str
    about: str
    is_live: bool = False
    arguments: tuple[str, ...] = ()


PARTS: dict[str, Part] = {
    "real": Part("Accuracy on real runs", "Accuracy of models for configurations that were not measured."),
    "coverage": Part("Intervals on unseen jobs", "Share of true speeds in the 90 % intervals, job by job."),
    "accuracy": Part("Accuracy on simulated queues", "The same with exactly known speeds, and with ablations."),
    "search": Part("How soon the best is found", "Configurations tried until within 5 % of the best of the space."),
    "live": Part("The live tuner", "Real runs from good and bad first plans, compared with every static plan.", True),
    "stay": Part(
        "Good plans and bad ones, simulated",
        "Whether a good plan is left alone and a bad one improved. Seeds 0 to 5 and 100 to 105 were looked at before.",
        arguments=("--first-seed", "300"),
    ),
    "stay_live": Part(
        "Good plans and bad ones, live", "The same with real runs; `off` has no tuner.", True, ("--for", "60")
    ),
    "simulated": Part("Many jobs on a cluster", "Policies on the same jobs, hosts, noise and failures."),
    "memory": Part("Running out of memory", "Whether it is predicted in time, and without false alarms."),
    "emulated": Part("An emulated cloud", "Real processes with synthetic costs.", True),
}


class Kept(msgspec.Struct, frozen=True):
    """The kept output of one part. tables: as printed. figures: as JSON. commit: of the measured code; "" where it is
    not known."""

    part: str
    measured_utc: str
    machine: Machine
    tables: str
    figures: msgspec.Raw
    commit: str = ""


class _Said(msgspec.Struct, frozen=True):
    """The JSON object in the last line of a benchmark's stdout."""

    machine: Machine
    figures: msgspec.Raw
    commit: str = ""


class Places(msgspec.Struct, frozen=True):
    """The files to write. kept: folder of the figures. results: the file with the table between the marks."""

    kept: Path = KEPT
    page: Path = PAGE
    results: Path = RESULTS


def places_in(folder: Path) -> Places:
    """All files in one folder, which is created if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    found = Places(folder / "results", folder / PAGE.name, folder / RESULTS.name)
    if not found.results.exists():
        found.results.write_text(f"{BEGIN}\n{END}\n")
    return found


def measured(name: str, more: Sequence[str] = ()) -> Kept:
    """Runs the part with more arguments. Raises RuntimeError if it prints no figures; a missed aim is not an error."""
    command = [sys.executable, "-m", f"benchmarks.tuner.{name}", "--json", *PARTS[name].arguments, *more]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    return kept_of(name, done.stdout, datetime.now(UTC))


def kept_of(name: str, said: str, when: datetime) -> Kept:
    """The output of a part as Kept. said: its tables, and its figures in the last line. Raises RuntimeError without
    figures."""
    *tables, last = said.rstrip("\n").split("\n")
    try:
        found = msgspec.json.decode(last, type=_Said)
    except msgspec.DecodeError:
        raise RuntimeError(f"{name} printed no figures in its last line: {last[:200]!r}") from None
    stamp = when.isoformat(timespec="seconds")
    return Kept(name, stamp, found.machine, "\n".join(tables).strip("\n"), found.figures, found.commit)


def read_kept(folder: Path = KEPT) -> dict[str, Kept]:
    """The kept parts, in the order of PARTS."""
    paths = {name: folder / f"{name}.json" for name in PARTS}
    return {name: msgspec.json.decode(path.read_bytes(), type=Kept) for name, path in paths.items() if path.exists()}


def _write(kept: Kept, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{kept.part}.json").write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n")


def page_of(kept: Mapping[str, Kept], plots: Mapping[str, str]) -> str:
    """The page as Markdown. plots: file names of the plots by part, in the folder of the page."""
    lines = [
        "# The tuner, measured",
        "",
        "Made by `python -m benchmarks.tuner.results`; every table is the output of its command. Speeds are compared",
        "only within one run on one machine. The figures are compared with the aims in `benchmarks/RESULTS.md`.",
    ]
    for name, one in kept.items():
        part, machine = PARTS[name], one.machine
        gib, commit = machine.memory_bytes / 2**30, f"commit {one.commit}, " * bool(one.commit)
        lines += [
            "",
            f"## {part.title}",
            "",
            f"{part.about} `{_command(name)}`, {one.measured_utc[:10]}, {commit}{machine.cores} cores "
            f"({machine.cpu}), {gib:.0f} GiB.",
            "",
            "```",
            one.tables,
            "```",
        ]
        if name in plots:
            lines += ["", f"![{part.title}]({plots[name]})"]
    return "\n".join(lines) + "\n"


def _command(name: str) -> str:
    return " ".join(("python -m", f"benchmarks.tuner.{name}", *PARTS[name].arguments))


def table_of(rows: Sequence[Row]) -> str:
    """The table of aims as Markdown."""
    lines = ["| what | others | aim | elastichost | reached |", "|---|---|---|---|---|"]
    lines += [f"| {row.what} | {row.others} | {row.aim} | {row.ours} | {row.reached} |" for row in rows]
    return "\n".join(lines)


def with_table(text: str, table: str) -> str:
    """The text with a new table between the two marks. Raises ValueError if it has no marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no {BEGIN!r} ... {END!r} in the text")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the chosen parts and writes the page. Returns 2 for invalid options, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", default="", help=f"all, or comma-separated parts: {', '.join(PARTS)}")
    parser.add_argument(
        "--take", action="append", default=[], metavar="PART=FILE", help="keep the output of a part that is in FILE"
    )
    parser.add_argument("--into", type=Path, help="a folder for all output instead of the repository")
    parser.add_argument("--quick", action="store_true", help="run parts in their smallest setting; needs --into")
    options = parser.parse_args(arguments)
    names = list(PARTS) if options.run == "all" else [name for name in options.run.split(",") if name]
    taken = {name: Path(path) for name, _, path in (one.partition("=") for one in options.take)}
    if unknown := [name for name in (*names, *taken) if name not in PARTS]:
        print(f"unknown part {unknown[0]!r}: choose from {', '.join(PARTS)}", file=sys.stderr)
        return 2
    if options.quick and options.into is None:
        print("--quick needs --into: its figures must not replace those of the repository", file=sys.stderr)
        return 2
    places, more = Places() if options.into is None else places_in(options.into), ["--quick"] if options.quick else []
    commit = read_commit(ROOT)  # a part that runs later finds files that an earlier one has changed
    for name in names:
        print(" ".join((_command(name), *more, "...")), file=sys.stderr, flush=True)
        _write(msgspec.structs.replace(measured(name, more), commit=commit), places.kept)
    for name, path in taken.items():
        _write(kept_of(name, path.read_text(), datetime.fromtimestamp(path.stat().st_mtime, UTC)), places.kept)
    kept = read_kept(places.kept)
    figures = {name: one.figures for name, one in kept.items()}
    places.page.write_text(page_of(kept, save_plots(figures, places.page.parent)))
    places.results.write_text(with_table(places.results.read_text(), table_of(rows_of(figures))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
