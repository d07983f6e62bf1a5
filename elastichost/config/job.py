"""TOML, environment and command line -> one validated `JobSpec`; every problem is reported at once.

Precedence: command line (`--set section.key=value`) > `ELASTICHOST_SECTION__KEY` > job file > defaults.
Paths are relative to the job file, also those from the command line and the environment.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from elastichost.config.base import Section
from elastichost.config.explain import Sources, explain
from elastichost.config.rules import cross_problems
from elastichost.config.sections.data import DataSection
from elastichost.config.sections.emulate import EmulateSection, emulate_problems
from elastichost.config.sections.loggers import LoggingSection
from elastichost.config.sections.schema import (
    EvaluateSection,
    JobSection,
    ModelSection,
    ResourcesSection,
    TableOverrides,
    TrainSection,
)
from elastichost.config.sections.supervision import CheckpointSection, SupervisionSection
from elastichost.config.sections.tuner import TunerSection
from elastichost.errors import ConfigError
from elastichost.human_readable import did_you_mean

__all__ = ["JobSpec", "json_schema", "load_job", "make_job", "to_toml", "with_overrides"]

ENVIRONMENT_PREFIX = "ELASTICHOST_"


class JobSpec(Section):
    """A job file of elastichost. Only [model] and [data] are required; all other settings have defaults."""

    job: JobSection = JobSection()
    model: ModelSection
    data: DataSection
    tables: dict[str, TableOverrides] = Field(
        default_factory=dict,
        description="`[tables.default]` holds settings for every table, `[tables.<name>]` those of one table. Every "
        "categorical column has its own table unless `features` of a table names it.",
    )
    train: TrainSection = TrainSection()
    evaluate: EvaluateSection = EvaluateSection()
    resources: ResourcesSection = ResourcesSection()
    checkpoint: CheckpointSection = CheckpointSection()
    supervision: SupervisionSection = SupervisionSection()
    logging: LoggingSection = LoggingSection()
    tuner: TunerSection = TunerSection()
    emulate: EmulateSection = EmulateSection()

    @model_validator(mode="after")
    def _sections_fit_together(self) -> JobSpec:
        problems = cross_problems(self.data, self.tables, self.train, self.evaluate, self.resources, self.checkpoint)
        if problems := problems + emulate_problems(self.emulate, self.train, self.resources):
            raise PydanticCustomError("sections", "{text}", {"text": "; ".join(problems), "problems": problems})
        return self


def load_job(
    path: str | os.PathLike[str], overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> JobSpec:
    """Reads and validates a job file. `overrides` are `section.key=value` texts with TOML values; a value that is not
    TOML is a string, so strings need no quotes. `environ` (default: os.environ) may hold `ELASTICHOST_SECTION__KEY`.

    Raises ConfigError with every problem found.
    """
    path = Path(path)
    raw = _read(path)
    sources: Sources = {}
    problems = _apply_environment(raw, os.environ if environ is None else environ, sources)
    problems += _apply_overrides(raw, overrides, sources)
    _fill_name(raw, path.stem)
    return _validated(raw, path.resolve().parent, str(path), sources, problems)


def make_job(raw: dict[str, Any], base_dir: Path, title: str, environ: Mapping[str, str] | None = None) -> JobSpec:
    """Validates the sections of a job that come from Python instead of a file. Relative paths are relative to
    `base_dir`. title: names the job in messages. environ: sets what `raw` does not: what a program states counts more,
    as `--set` does. Changes `raw`.

    Raises ConfigError with every problem found.
    """
    sources: Sources = {}
    problems = _apply_environment(raw, os.environ if environ is None else environ, sources, keeps=True)
    _fill_name(raw, "job")
    return _validated(raw, base_dir, title, sources, problems)


def with_overrides(job: JobSpec, overrides: Sequence[str], option: str, title: str, base_dir: Path) -> JobSpec:
    """The job with some settings changed by `section.key=value` texts, as `load_job` takes them. option: the option of
    the command line that they come from. title: names the job in messages. Relative paths are relative to `base_dir`.
    Raises ConfigError with every problem."""
    raw = tomllib.loads(to_toml(job))
    sources: Sources = {}
    problems = _apply_overrides(raw, overrides, sources, option)
    return _validated(raw, base_dir, title, sources, problems)


def _validated(raw: dict[str, Any], base_dir: Path, title: str, sources: Sources, problems: list[str]) -> JobSpec:
    _make_paths_absolute(raw, base_dir)
    try:
        job = JobSpec.model_validate(raw)
    except ValidationError as error:
        problems += explain(error, raw, JobSpec, sources)
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise ConfigError(
            f"{title}: {count}",
            problems=tuple(problems),
            hint="`elastichost config schema` prints every setting and what it means",
        )
    return job


def to_toml(job: JobSpec) -> str:
    """The whole job as TOML, defaults included; `load_job` of it returns an equal JobSpec."""
    values = job.model_dump(exclude_none=True)
    return "# every setting of this job, defaults included\n" + tomli_w.dumps(values)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the job file, for editors; committed as `elastichost/job.schema.json`."""
    schema = JobSpec.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "elastichost job file"}


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes().decode("utf-8")
        return tomllib.loads(text)
    except FileNotFoundError:
        near = [one.name for one in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        raise ConfigError(f"{path}: no such job file{did_you_mean(path.name, near)}") from None
    except OSError as error:
        hint = "name a job file (TOML)" if path.is_dir() else "check that you may read it"
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", hint=hint) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}", hint="a job file is TOML in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{path}: not valid TOML: {error}",
            problems=_offending_line(text, str(error)),
            hint="in TOML, strings are in quotes, lists in [ ], and true and false are lower case",
        ) from None


def _offending_line(text: str, message: str) -> tuple[str, ...]:
    """The line that tomllib refuses: its message ends with "(at line 3, column 5)"."""
    _, found, rest = message.partition("(at line ")
    lines = text.splitlines()
    number = int(rest.split(",")[0]) if found and rest.split(",")[0].isdigit() else 0
    return (f"line {number}: {lines[number - 1].strip()}",) if 1 <= number <= len(lines) else ()


def _apply_environment(
    raw: dict[str, Any], environ: Mapping[str, str], sources: Sources, *, keeps: bool = False
) -> list[str]:
    """keeps: what `raw` has already stays."""
    problems: list[str] = []
    for name in sorted(environ):
        if name.startswith(ENVIRONMENT_PREFIX) and "__" in name[len(ENVIRONMENT_PREFIX) :]:
            parts = name.removeprefix(ENVIRONMENT_PREFIX).split("__")
            keys = tuple(
                _table_name(part, raw) if _is_table_name(parts, i) else part.lower() for i, part in enumerate(parts)
            )
            problems += _put(raw, keys, _value(environ[name]), name, sources, keeps=keeps)
    return problems


def _is_table_name(parts: list[str], position: int) -> bool:
    return position == 1 and parts[0].lower() == "tables"


def _table_name(part: str, raw: Mapping[str, Any]) -> str:
    """The table whose name equals `part` when case is ignored: names of variables are upper case, names of tables
    not."""
    data, tables = raw.get("data"), raw.get("tables")
    columns = data.get("categorical", ()) if isinstance(data, dict) else ()
    known = ["default", *(tables if isinstance(tables, dict) else ()), *(columns if isinstance(columns, list) else ())]
    return next((name for name in known if str(name).lower() == part.lower()), part.lower())


def _apply_overrides(
    raw: dict[str, Any], overrides: Sequence[str], sources: Sources, option: str = "--set"
) -> list[str]:
    problems: list[str] = []
    for text in overrides:
        name, equals, value = text.partition("=")
        try:
            parsed = tomllib.loads(f"{name} = 0")
        except tomllib.TOMLDecodeError:
            parsed = {}
        keys = _single_path(parsed)
        if not equals or not keys or "\n" in name:
            problems.append(f"{option} {text!r}: allowed: section.key=value, for example train.batch_size=1024")
            continue
        problems += _put(raw, keys, _value(value), f"{option} {name.strip()}", sources)
    return problems


def _single_path(parsed: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys of {"a": {"b": 0}}: ("a", "b"); empty unless there is exactly one key at each depth."""
    keys: list[str] = []
    node: Any = parsed
    while isinstance(node, dict):
        if len(node) != 1:
            return ()
        [(key, node)] = node.items()
        keys.append(key)
    return tuple(keys)


def _value(text: str) -> Any:
    """The TOML value of a text, or the text itself where it is not TOML."""
    try:
        parsed = tomllib.loads(f"value = {text.strip()}")
    except tomllib.TOMLDecodeError:
        return text.strip()
    return parsed["value"] if len(parsed) == 1 else text


def _put(
    raw: dict[str, Any], keys: tuple[str, ...], value: Any, source: str, sources: Sources, *, keeps: bool = False
) -> list[str]:
    node = raw
    for depth, key in enumerate(keys[:-1], start=1):
        child = node.setdefault(key, {})
        if not isinstance(child, dict):
            return [f"{source}: {'.'.join(keys[:depth])} is a value, not a section"]
        node = child
    if not keeps or keys[-1] not in node:
        node[keys[-1]] = value
        sources[keys] = source
    return []


def _fill_name(raw: dict[str, Any], default: str) -> None:
    """Gives a job without a name this one, as far as its characters are allowed in names."""
    section = raw.setdefault("job", {})
    if isinstance(section, dict) and "name" not in section:
        kept = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in default).strip("-")
        section["name"] = kept[:64] or "job"


def _make_paths_absolute(raw: dict[str, Any], base: Path) -> None:
    """Rewrites the paths in place; values of a wrong type stay as they are, and the validation reports them."""
    data, model, checkpoint = raw.get("data"), raw.get("model"), raw.get("checkpoint")
    if isinstance(data, dict):
        for split in ("train", "test"):
            value = data.get(split)
            if isinstance(value, str):
                data[split] = [_absolute(base, value)]
            elif isinstance(value, list):
                data[split] = [_absolute(base, one) if isinstance(one, str) else one for one in value]
    if isinstance(model, dict) and isinstance(build := model.get("build"), str):
        model["build"] = _function(base, build)
    if isinstance(evaluate := raw.get("evaluate"), dict):
        _make_functions_absolute(evaluate, base)
    if isinstance(checkpoint, dict) and isinstance(directory := checkpoint.get("directory"), str):
        checkpoint["directory"] = _absolute(base, directory)
    if isinstance(checkpoint, dict) and isinstance(mirror := checkpoint.get("mirror"), str):
        is_elsewhere = ":" in mirror.partition("/")[0]
        checkpoint["mirror"] = mirror if is_elsewhere else _absolute(base, mirror)


def _make_functions_absolute(evaluate: dict[str, Any], base: Path) -> None:
    """Rewrites "file.py:function" in `metrics` and `better` in place."""
    metrics, better = evaluate.get("metrics"), evaluate.get("better")
    if isinstance(metrics, str | list | tuple):
        texts = [metrics] if isinstance(metrics, str) else metrics
        evaluate["metrics"] = [_function(base, one) if isinstance(one, str) else one for one in texts]
    if isinstance(better, dict):
        evaluate["better"] = {_function(base, text): way for text, way in better.items()}


def _function(base: Path, text: str) -> str:
    """A function with the absolute path of its file; any other text stays as it is."""
    file, _, function = text.rpartition(":")
    return f"{_absolute(base, file)}:{function}" if file.endswith(".py") else text


def _absolute(base: Path, text: str) -> str:
    """`text` (a path or a glob) relative to `base`, without `.` and `..`; `~` is the home directory. A URL stays as it
    is: the reader reports what to do about it."""
    if not text or "://" in text:
        return text
    return os.path.normpath(base / os.path.expanduser(text))
