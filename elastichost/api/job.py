"""`Job`: a job as an object, made from arguments or from a job file, and written as one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_origin

import tomli_w

from elastichost.api.notebook import html_page
from elastichost.api.rows import PythonRows, Split, taken_rows
from elastichost.api.sections import Data, Settings, Table, given, plain
from elastichost.config.base import Section
from elastichost.config.job import JobSpec, load_job, make_job, to_toml
from elastichost.errors import ConfigError
from elastichost.human_readable import did_you_mean

__all__ = ["Job", "Model", "Settings"]

Model = str | Callable[..., Any]
SECTIONS = tuple(name for name in JobSpec.model_fields if name not in ("model", "data", "tables"))


@dataclass(frozen=True)
class Job:
    """A validated job. spec: all of its settings, as `job.spec.train.batch_size`. model_function: the build function,
    if it was given as a function; its source is written beside the run when the job starts. rows: training and test
    data that were given as rows; they are written beside the run, too, and until then `spec` names files that are not
    there."""

    spec: JobSpec
    model_function: Callable[..., Any] | None = None
    rows: Mapping[Split, PythonRows] = field(default_factory=dict, compare=False)

    @classmethod
    def of(
        cls,
        model: Model,
        data: Data | Settings,
        *,
        model_args: Settings | None = None,
        tables: Mapping[str, Table | Settings] | None = None,
        **sections: Settings,
    ) -> Job:
        """A job from its parts. model: "file.py:function", "package.module:function", or the function. data, tables,
        sections: objects, or mappings with the keys of the job file; a section is `train={"epochs": 2}`. Paths are
        relative to the working directory. Raises ConfigError with every problem."""
        _check_names(sections)
        raw: dict[str, Any] = {name: _plain(name, section) for name, section in sections.items()}
        raw["data"], rows = _data_of(data)
        raw["tables"] = {name: _plain(f"tables[{name!r}]", table) for name, table in _by_name(tables).items()}
        described = raw.setdefault("model", {})
        described["build"] = model if isinstance(model, str) else _name_of(model)
        if model_args is not None:
            described["args"] = _plain("model_args", model_args)
        spec = make_job(raw, Path.cwd(), "the job")
        return cls(spec, None if isinstance(model, str) else model, rows)

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Job:
        """Reads a job file, as `elastichost run` does. Raises ConfigError with every problem."""
        return cls(load_job(path))

    def with_settings(self, **sections: Settings) -> Job:
        """The job with some settings changed one by one, as `--set` changes them:
        `job.with_settings(train={"optimizer_rows": {"lr": 0.1}})` keeps the name of the optimizer. `model.args`,
        `data.csv.types` and `evaluate.better`, whose keys are your own, are replaced. Raises ConfigError."""
        _check_names(sections, *JobSpec.model_fields)
        raw = given(self.spec)
        rows = dict(self.rows)
        for name, section in sections.items():
            changed, more = _data_of(section) if name == "data" else (_plain(name, section), {})
            rows = {split: one for split, one in rows.items() if name != "data" or split not in changed} | more
            raw[name] = _with_changes(raw.get(name, {}), changed, JobSpec.model_fields[name].annotation)
        return Job(make_job(raw, Path.cwd(), "the job", environ={}), self.model_function, rows)

    def to_toml(self) -> str:
        """The whole job as a job file, with every default."""
        return to_toml(self.spec)

    def __repr__(self) -> str:
        data = self.spec.data
        columns = f"{len(data.dense)} dense and {len(data.categorical)} categorical columns"
        return f"<Job {self.spec.job.name}: {self.spec.model.build}, {data.format}, {columns}>"

    def _repr_html_(self) -> str:
        return html_page(repr(self)[1:-1], {}, tomli_w.dumps(given(self.spec)))


def _with_changes(before: Any, change: Any, kind: Any) -> Any:
    """A value with a change. kind: its type. A section changes setting by setting, and a mapping of sections (`tables`)
    section by section. Any other value is replaced, also a mapping with keys of the user's own (`model.args`)."""
    kinds = (kind, *get_args(kind))
    section = next((one for one in kinds if isinstance(one, type) and issubclass(one, Section)), None)
    if section is None or not isinstance(before, Mapping) or not isinstance(change, Mapping):
        return change
    after = dict(before)
    fields = {key: one.annotation for key, one in section.model_fields.items()}
    for key, value in change.items():
        within = section if get_origin(kind) is dict else fields.get(key)
        after[key] = _with_changes(before.get(key), value, within)
    return after


def _data_of(data: Any) -> tuple[dict[str, Any], dict[Split, PythonRows]]:
    """The section [data], and the rows that it was given in place of files."""
    if isinstance(data, Data):
        return plain(data), data.rows
    if not isinstance(data, Mapping):
        return _plain("data", data), {}
    named, rows = taken_rows(data, "data")
    return plain(named), rows


def _plain(name: str, section: Any) -> dict[str, Any]:
    if isinstance(section, Section | Mapping):
        written: dict[str, Any] = plain(section)
        return written
    hint = 'give a mapping with its settings, for example train={"epochs": 2}'
    if hasattr(section, "columns"):  # a data frame or an Arrow table
        hint = 'name its columns: data=eh.Data(train=table, label="clicked", categorical=["item"])'
    raise ConfigError(f"{name} is a {type(section).__name__}, not a section of a job", hint=hint)


def _by_name(tables: Any) -> Mapping[str, Any]:
    if tables is not None and not isinstance(tables, Mapping):
        raise ConfigError(
            f"tables is a {type(tables).__name__}, not a mapping",
            hint='write tables={"default": eh.Table(...)} for all tables, or a name of your own with its features',
        )
    return tables or {}


def _check_names(sections: Mapping[str, object], *more: str) -> None:
    for name in sections:
        if name in (*SECTIONS, "model", *more):
            continue
        owner = next((one for one in SECTIONS if name in _settings_of(one)), None)
        if owner is not None:
            raise ConfigError(
                f"{name!r} is a setting of the section {owner}", hint=f'write {owner}={{"{name}": {sections[name]!r}}}'
            )
        raise ConfigError(
            f"{name!r} is not a section of a job{did_you_mean(name, SECTIONS)}",
            hint=f"the sections are {', '.join(SECTIONS)}",
        )


def _settings_of(section: str) -> Mapping[str, object]:
    kind = JobSpec.model_fields[section].annotation
    return kind.model_fields if isinstance(kind, type) and issubclass(kind, Section) else {}


def _name_of(function: Callable[..., Any]) -> str:
    """A valid `model.build` for a function; the real one is known when its source is written."""
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        kind = "a function without a name" if callable(function) and name else f"a {type(function).__name__}"
        raise ConfigError(
            f"model is {kind}, not a function that builds one",
            hint="define it with `def build(tables, num_dense):`, and give model=build",
        )
    return f"model.py:{name}"
