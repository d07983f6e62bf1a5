"""What processes on other machines need of the job: its file, and the model's source beside it."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from elastichost.config.job import JobSpec, to_toml
from elastichost.supervisor.remote.messages import SourceFile
from elastichost.user_model.source import local_sources, parse_build_spec, source_file

__all__ = ["SOURCE", "files_for_others"]

SOURCE = "source"  # below the run's directory there; processes work in it


def files_for_others(job: JobSpec, base_dir: Path) -> tuple[SourceFile, ...]:
    """The resolved job, with the model where its source will be, and that source with the modules beside it. A package
    that is installed has to be installed there, as elastichost is. base_dir: that modules are found in. Raises
    ModelError."""
    parsed = parse_build_spec(job.model.build, base_dir)
    file = source_file(parsed, base_dir)
    build, sources = job.model.build, list[SourceFile]()
    if file is not None and parsed.file is not None:
        build = f"{SOURCE}/{file.name}:{parsed.function}"
        sources = [_source(one, file.parent) for one in (file, *local_sources(file))]
    elif file is not None and file.resolve().is_relative_to(base_dir.resolve()) and not _is_own(file):
        sources = [_source(one, base_dir) for one in (file, *local_sources(file), *_packages(file, base_dir))]
    there = job.model_copy(update={"model": job.model.model_copy(update={"build": build})})
    return (SourceFile("job.resolved.toml", to_toml(there).encode()), *sources)


def _is_own(file: Path) -> bool:
    """A model of elastichost itself, which every host has: a second copy of a part of it would hide the rest."""
    return file.resolve().is_relative_to(Path(str(files("elastichost"))).resolve())


def _packages(file: Path, base_dir: Path) -> tuple[Path, ...]:
    """The `__init__.py` of each package that a module lies in."""
    above = (parent / "__init__.py" for parent in file.resolve().parents if parent.is_relative_to(base_dir.resolve()))
    return tuple(path for path in above if path.is_file())


def _source(path: Path, base: Path) -> SourceFile:
    return SourceFile(f"{SOURCE}/{path.resolve().relative_to(base.resolve())}", path.read_bytes())
