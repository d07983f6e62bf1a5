"""The files of the job that processes on other machines need: the job file and the user's own source files."""

from __future__ import annotations

from pathlib import Path

from elastichost.config.job import JobSpec, to_toml
from elastichost.config.metric_names import metric_of
from elastichost.errors import ModelError
from elastichost.run_files import RESOLVED_JOB_FILE
from elastichost.supervisor.remote.messages import SourceFile
from elastichost.user_model.source import imported_files, local_module, parse_build_spec, source_file

__all__ = ["SOURCE", "files_for_others"]

SOURCE = "source"  # in the run's directory there: the working directory of its processes
OWN_PACKAGE = "elastichost"


def files_for_others(job: JobSpec, base_dir: Path) -> tuple[SourceFile, ...]:
    """The resolved job, and the source of its model, of its own metric functions and of its own reader, each with the
    modules beside it. Where the job names a file, it has the path on the other machines instead. A module in an
    installed package is not copied: the package must be installed there, as elastichost is. base_dir: the directory in
    which modules are found. Raises ModelError, also when two different files would have the same path there."""
    parsed = parse_build_spec(job.model.build, base_dir)
    file = source_file(parsed, base_dir)
    is_file = file is not None and parsed.file is not None
    own = _OwnSources(base_dir, file.parent if file is not None and is_file else base_dir)
    build = job.model.build
    if file is not None and is_file:
        build = f"{own.add_file(file)}:{parsed.function}"
    else:
        own.add_module(parsed.module)
    if job.data.has_own_reader:
        own.add_module(job.data.format.partition(":")[0])
    functions = {text: _function_there(text, own, base_dir) for text in job.evaluate.metrics}
    evaluate = {
        "metrics": tuple(functions.values()),
        "better": {functions.get(text, text): way for text, way in job.evaluate.better.items()},
    }
    there = job.model_copy(
        update={
            "model": job.model.model_copy(update={"build": build}),
            "evaluate": job.evaluate.model_copy(update=evaluate),
        }
    )
    return (SourceFile(RESOLVED_JOB_FILE, to_toml(there).encode()), *own.read())


def _function_there(text: str, own: _OwnSources, base_dir: Path) -> str:
    """Adds the source of a metric of the user's own, and returns its name on the other machines. A missing file changes
    nothing: a job that computes its metrics was refused before, and the other jobs do not need the file."""
    metric = metric_of(text)
    if metric is None or metric.kind != "own":
        return text
    left, _, function = text.rpartition(":")
    if not left.endswith(".py"):
        own.add_module(left)
    elif (file := base_dir / left).is_file():
        return f"{own.add_file(file)}:{function}"
    return text


class _OwnSources:
    """The source files that are sent, by their paths there.

    Modules in `base_dir` and files in `home` (the directory of the model) lie in SOURCE itself, because the processes
    import modules from there. Files of any other directory have a directory of their own below SOURCE: each metric
    function imports the modules beside its file, which may have the same names as others."""

    def __init__(self, base_dir: Path, home: Path) -> None:
        self._base = base_dir.resolve()
        self._folders = {home.resolve(): SOURCE}
        self._files: dict[str, Path] = {}

    def add_file(self, file: Path) -> str:
        """Adds a file, and the modules and packages beside it that it imports. Returns its path there. Raises
        ModelError."""
        folder = self._folders.setdefault(file.parent.resolve(), f"{SOURCE}/metrics-{len(self._folders)}")
        for one in imported_files(file, file.parent):
            self._add(f"{folder}/{one.relative_to(file.parent)}", one)
        return f"{folder}/{file.name}"

    def add_module(self, module: str) -> None:
        """Adds a module in `base_dir`, its package, and what it imports from there; nothing for an installed module.
        Raises ModelError. elastichost is not added even from a checkout: every host has it, and a
        copy of one part would hide the other parts from imports."""
        if module.partition(".")[0] == OWN_PACKAGE or (file := local_module(module, self._base)) is None:
            return
        for one in imported_files(file, self._base):
            self._add(f"{SOURCE}/{one.relative_to(self._base)}", one)

    def read(self) -> tuple[SourceFile, ...]:
        """The files, in the order in which they were added."""
        return tuple(SourceFile(path, file.read_bytes()) for path, file in self._files.items())

    def _add(self, path: str, file: Path) -> None:
        present = self._files.setdefault(path, file)
        if not present.samefile(file) and present.read_bytes() != file.read_bytes():
            raise ModelError(
                f"other machines need {present} and {file}, and both would be {path} there",
                hint="rename one of these modules",
            )
