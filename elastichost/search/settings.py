"""The settings of a search in its directory, so that `search --resume DIR` continues it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from elastichost.atomic_write import write_atomically
from elastichost.config.job import JobSpec, load_job, to_toml, with_overrides
from elastichost.dispatcher.directory import write_asked
from elastichost.dispatcher.options import AskedOptions
from elastichost.errors import ConfigError, PreflightError
from elastichost.search.objective import Objective
from elastichost.search.space import Parameter

__all__ = [
    "SearchSettings",
    "begin_directory",
    "check_values",
    "is_search",
    "job_of_trial",
    "read_settings",
    "write_settings",
]

SETTINGS_FILE = "search.json"
JOB_FILE = "job.toml"  # the job of the search, with all defaults
OPTION = "--param"


class SearchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a search looks for. trials: number of trials. seed: of the sampler. working_directory: the directory from
    which the modules of its jobs are imported. job_directory: that of the job file, to which relative paths among the
    values are relative."""

    parameters: tuple[Parameter, ...]
    trials: int
    objective: Objective
    seed: int
    working_directory: str
    job_directory: str


def is_search(directory: Path) -> bool:
    """Whether this is the directory of a search."""
    return (directory / SETTINGS_FILE).is_file()


def begin_directory(directory: Path, settings: SearchSettings, job: JobSpec, asked: AskedOptions) -> None:
    """Creates the directory of a search. The settings are written last: a directory that has them can be resumed.
    asked: the options of its dispatcher. Raises PreflightError if the directory cannot be created or written."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(directory / JOB_FILE, to_toml(job).encode())
        write_asked(directory, asked)
        write_settings(directory, settings)
    except OSError as error:
        raise PreflightError(
            f"the search directory {directory} could not be written: {error}",
            hint="choose a place that you may write to",
        ) from error


def write_settings(directory: Path, settings: SearchSettings) -> None:
    """Writes the settings of a search, of which a resume may change the number of trials. Raises OSError."""
    write_atomically(directory / SETTINGS_FILE, msgspec.json.format(msgspec.json.encode(settings)) + b"\n")


def read_settings(directory: Path) -> tuple[SearchSettings, JobSpec]:
    """The settings and the job of a search. Raises ConfigError if the directory has no search, and PreflightError if
    its settings cannot be read."""
    path = directory / SETTINGS_FILE
    try:
        settings = msgspec.json.decode(path.read_bytes(), type=SearchSettings)
    except FileNotFoundError:
        raise ConfigError(
            f"{directory} is not the directory of a search: it has no {SETTINGS_FILE}",
            hint="name the directory that `elastichost search JOB` printed",
        ) from None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PreflightError(f"{path} cannot be read: {error}") from error
    return settings, load_job(directory / JOB_FILE, environ={})


def check_values(job: JobSpec, parameters: tuple[Parameter, ...], title: str, base_dir: Path) -> None:
    """Checks both ends of each range and each choice against the job file. title: names the job in messages. base_dir:
    of relative paths. Raises ConfigError with every problem."""
    problems: list[str] = []
    for parameter in parameters:
        for text in parameter.extremes():
            try:
                with_overrides(job, (parameter.override(text),), OPTION, title, base_dir)
            except ConfigError as error:
                problems += error.problems
                break
    if problems:
        raise ConfigError(
            f"{title}: the search would try values that are not allowed",
            problems=tuple(problems),
            hint="`elastichost config schema` prints every setting and what it means",
        )


def job_of_trial(job: JobSpec, settings: SearchSettings, texts: tuple[str, ...], name: str) -> JobSpec:
    """The job with the values of a trial and this name. Raises ConfigError if the values are not allowed together."""
    changes = [one.override(text) for one, text in zip(settings.parameters, texts, strict=True)]
    return with_overrides(job, (*changes, f'job.name="{name}"'), OPTION, name, Path(settings.job_directory))
