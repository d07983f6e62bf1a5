"""The files of the job that processes on other machines need: the job file and the source of the model."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from elastichost.config.job import JobSpec, to_toml
from elastichost.run_files import RESOLVED_JOB_FILE
from elastichost.supervisor.remote.messages import SourceFile
from elastichost.user_model.source import local_sources, parse_build_spec, source_file

__all__ = ["SOURCE", "files_for_others"]

SOURCE = "source"  # in the run's directory there: the working directory of its processes


def files_for_others(job: JobSpec, base_dir: Path) -> tuple[SourceFile, ...]:
    """The resolved job, and the source of its model with the modules beside it. If `model.build` names a file, the job
    has its path on the other machines. A model in an installed package is not copied: the package must be installed
    there, as elastichost is. base_dir: the directory in which modules are found. Raises ModelError."""
    parsed = parse_build_spec(job.model.build, base_dir)
    file = source_file(parsed, base_dir)
    build, sources = job.model.build, list[SourceFile]()
    if file is not None and parsed.file is not None:
        build = f"{SOURCE}/{file.name}:{parsed.function}"
        sources = [_source(one, file.parent) for one in (file, *local_sources(file))]
    elif file is not None and file.resolve().is_relative_to(base_dir.resolve()) and not _is_own(file):
        sources = [_source(one, base_dir) for one in (file, *local_sources(file), *_packages(file, base_dir))]
    there = job.model_copy(update={"model": job.model.model_copy(update={"build": build})})
    return (SourceFile(RESOLVED_JOB_FILE, to_toml(there).encode()), *sources)


def _is_own(file: Path) -> bool:
    """Whether the file belongs to elastichost. It is not copied, because every host has elastichost, and a copy of one
    part would hide the other parts from imports."""
    return file.resolve().is_relative_to(Path(str(files("elastichost"))).resolve())


def _packages(file: Path, base_dir: Path) -> tuple[Path, ...]:
    """The `__init__.py` files of the packages, below `base_dir`, that contain the module."""
    above = (parent / "__init__.py" for parent in file.resolve().parents if parent.is_relative_to(base_dir.resolve()))
    return tuple(path for path in above if path.is_file())


def _source(path: Path, base: Path) -> SourceFile:
    return SourceFile(f"{SOURCE}/{path.resolve().relative_to(base.resolve())}", path.read_bytes())
