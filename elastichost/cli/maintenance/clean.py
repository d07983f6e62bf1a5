"""`clean`: removes arenas and sockets of dead runs, and on request old run directories and kept data."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Annotated

import typer

from elastichost.cli.output import AsJson, data_console, print_json, progress_console
from elastichost.cli.runs import RUNS, runs_under
from elastichost.errors import ArenaError
from elastichost.human_readable import bytes_words

__all__ = ["clean", "register"]


def register(app: typer.Typer) -> None:
    app.command("clean")(clean)


def clean(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
    runs: Annotated[bool, typer.Option("--runs", help="Also remove old run directories under runs/.")] = False,
    keep: Annotated[
        int, typer.Option("--keep", min=0, help="With --runs: the number of newest run directories that stay.")
    ] = 5,
    cache: Annotated[
        bool, typer.Option("--cache", help="Also remove data of remote sources that no run uses (data.input.cache).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove arenas and sockets of dead runs. A run that trains or is being resumed is never touched.

    The arena of a killed supervisor is kept for supervision.keep_arena_s, so that `resume` can continue in it. It is
    not touched during that time.
    """
    from elastichost.arena.host import reclaim, stale_arenas

    removed: list[tuple[Path, int]] = []
    for stale in stale_arenas():
        try:
            if not dry_run:
                reclaim(stale.path)
        except ArenaError as error:
            progress_console().print(f"not removed: {error.message}")
            continue
        removed.append((stale.path, stale.bytes))
    for directory in _old_runs(keep) if runs else ():
        size_bytes = _size_bytes(directory)
        try:
            if not dry_run:
                shutil.rmtree(directory)
        except OSError as error:
            progress_console().print(f"not removed: {directory}: {error.strerror or error}")
            continue
        removed.append((directory, size_bytes))
    if cache:
        removed += _kept_data(dry_run)
    if runs and not dry_run:
        _drop_dangling_link(RUNS / "latest")
    _report(removed, dry_run, as_json)


def _report(removed: list[tuple[Path, int]], dry_run: bool, as_json: bool) -> None:
    if as_json:
        listed = [{"path": str(path), "bytes": size_bytes} for path, size_bytes in removed]
        print_json({"removed": listed, "bytes": sum(size_bytes for _, size_bytes in removed), "dry_run": dry_run})
        return
    out = data_console()
    for path, size_bytes in removed:
        out.print(f"{'would remove' if dry_run else 'removed'} {path}  {bytes_words(size_bytes)}")
    if not removed:
        out.print("nothing to remove")


def _old_runs(keep: int) -> list[Path]:
    from elastichost.runs.liveness import is_locked

    return [directory for directory in runs_under()[keep:] if not is_locked(directory)]


def _kept_data(dry_run: bool) -> list[tuple[Path, int]]:
    """What was removed, or would be: ranges, footers and plain copies of compressed text that no process uses."""
    from elastichost.datasets.files import cache_directory
    from elastichost.datasets.sources.bounded_directory import BoundedDirectory

    found = [path for name in ("ranges", "text", "footers") if (path := cache_directory(os.environ) / name).is_dir()]
    sizes = [(path, _size_bytes(path) if dry_run else BoundedDirectory(path, None).clear()) for path in found]
    return [(path, size_bytes) for path, size_bytes in sizes if size_bytes]


def _size_bytes(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file())


def _drop_dangling_link(link: Path) -> None:
    if link.is_symlink() and not link.exists():
        link.unlink()
