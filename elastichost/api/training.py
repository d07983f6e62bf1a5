"""`train`, `start` and `resume`."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elastichost.api.callbacks import Callback
from elastichost.api.handle import RunHandle
from elastichost.api.interrupts import run_to_end
from elastichost.api.job import Job, Model, Settings
from elastichost.api.launch import StartMsg
from elastichost.api.model_source import build_spec
from elastichost.api.progress import ShownProgress, progress_of
from elastichost.api.run import Run
from elastichost.api.sections import Data, Table, given
from elastichost.config.base import Section
from elastichost.config.job import load_job, to_toml
from elastichost.config.resume import check_same_job
from elastichost.config.sections.loggers import CSV, MLflow, TensorBoard, WandB
from elastichost.errors import ConfigError, ElastichostError
from elastichost.run_files import JOURNAL_FILE, RESOLVED_JOB_FILE
from elastichost.runs.directory import is_before_run, new_run_path

__all__ = ["resume", "start", "train"]

Size = int | str | tuple[int, int] | None
LOGGER_OF: dict[type, str] = {CSV: "csv", MLflow: "mlflow", TensorBoard: "tensorboard", WandB: "wandb"}


def train(
    job: Job | str | os.PathLike[str] | None = None,
    *,
    model: Model | None = None,
    model_args: Settings | None = None,
    data: Data | Settings | None = None,
    tables: Mapping[str, Table | Settings] | None = None,
    name: str | None = None,
    seed: int | None = None,
    workers: Size = None,
    servers: Size = None,
    loggers: Sequence[str | Section] = (),
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    dir: str | os.PathLike[str] | None = None,
    start_from: Run | str | os.PathLike[str] | None = None,
    **sections: Settings,
) -> Run:
    """Trains a job to its end and returns its results.

        run = eh.train(model="elastichost.models:dlrm", data=eh.Data(train="clicks/*.parquet", ...))
        run = eh.train("job.toml")

    job: a Job, or the path of a job file; or its parts instead: `model` and `data`, with `model_args` and `tables`
    (`Job.of`). name, seed: of the job. workers, servers: "auto", a number, or (least, most). loggers: names or settings
    of experiment loggers, as ["tensorboard", eh.loggers.MLflow(experiment="ctr")]. callbacks: called with what happens.
    progress: whether to show it; None: on a terminal and in a notebook. dir: the directory of the run; default:
    `runs/<name>-<UTC>-<id>`. start_from: a run or checkpoint whose rows and weights the run begins with. sections:
    further settings, as `train={"epochs": 2}`; with `job` they change its settings one by one (`Job.with_settings`).

    Sections: job, train, evaluate, resources, checkpoint, supervision, logging, tuner, emulate; their settings are
    those of the job file (`docs/reference/job-file.md`, or `elastichost config schema`).

    Ctrl-C, or the notebook's stop button, stops the run so that `eh.resume` continues it; KeyboardInterrupt follows.
    Raises the typed error that the job failed with (`elastichost.errors`).
    """
    parts = {"model": model, "model_args": model_args, "data": data, "tables": tables}
    settings = _settings(sections, {"name": name, "seed": seed}, {"workers": workers, "servers": servers}, loggers)
    shown = progress_of(progress)
    told = (*shown, *_checked(callbacks))
    message = _prepared(job, parts, settings, dir, start_from, shown)
    return run_to_end(lambda: RunHandle(message, told), shown)


def start(
    job: Job | str | os.PathLike[str] | None = None,
    *,
    model: Model | None = None,
    model_args: Settings | None = None,
    data: Data | Settings | None = None,
    tables: Mapping[str, Table | Settings] | None = None,
    name: str | None = None,
    seed: int | None = None,
    workers: Size = None,
    servers: Size = None,
    loggers: Sequence[str | Section] = (),
    callbacks: Sequence[Callback] = (),
    dir: str | os.PathLike[str] | None = None,
    start_from: Run | str | os.PathLike[str] | None = None,
    **sections: Settings,
) -> RunHandle:
    """Starts a job as `train` does, and returns at once; rows of `eh.from_iterable` are read before. Raises ConfigError
    and ModelError for what is wrong with the job itself, and DataError for such rows; `RunHandle.wait` raises what goes
    wrong later."""
    parts = {"model": model, "model_args": model_args, "data": data, "tables": tables}
    settings = _settings(sections, {"name": name, "seed": seed}, {"workers": workers, "servers": servers}, loggers)
    told = _checked(callbacks)
    return RunHandle(_prepared(job, parts, settings, dir, start_from), told)


def resume(
    run: Run | str | os.PathLike[str],
    *,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    **sections: Settings,
) -> Run:
    """Continues a run that was stopped or has died, and returns its results. sections: settings that change, such as
    `resources={"workers": 3}`; a run keeps its model, data and order. Raises as `train` does."""
    found = run if isinstance(run, Run) else Run(run)
    job = Job(load_job(found.dir / RESOLVED_JOB_FILE, environ={}))
    if sections:
        changed = job.with_settings(**sections)
        check_same_job(job.spec, changed.spec)
        job = changed
    message = StartMsg(to_toml(job.spec), str(found.dir), is_resumed=True)
    shown = progress_of(progress)
    return run_to_end(lambda: RunHandle(message, (*shown, *_checked(callbacks))), shown)


def _settings(
    sections: Mapping[str, Settings],
    job: Mapping[str, Any],
    resources: Mapping[str, Size],
    loggers: Sequence[str | Section],
) -> dict[str, Settings]:
    """The sections with the arguments that stand for some of their keys; None: not given."""
    settings = dict(sections)
    for section, keys in (("job", job), ("resources", resources)):
        if given_keys := {key: value for key, value in keys.items() if value is not None}:
            settings[section] = {**settings.get(section, {}), **given_keys}
    if loggers:
        names = {one if isinstance(one, str) else _logger_name(one): one for one in _listed("loggers", loggers)}
        own = {name: given(one) for name, one in names.items() if not isinstance(one, str)}
        settings["logging"] = {**settings.get("logging", {}), "to": list(names), **own}
    return settings


def _logger_name(logger: Section) -> str:
    if type(logger) not in LOGGER_OF:
        raise ConfigError(
            f"{logger!r} is not an experiment logger",
            hint=f"the loggers are {', '.join(LOGGER_OF.values())}; eh.loggers has their settings",
        )
    return LOGGER_OF[type(logger)]


def _listed(name: str, several: Any) -> Sequence[Any]:
    if not isinstance(several, list | tuple):
        raise ConfigError(f"{name} is a {type(several).__name__}, not a list", hint=f"write {name}=[...]")
    return several


def _checked(callbacks: Sequence[Callback]) -> Sequence[Callback]:
    for one in _listed("callbacks", callbacks):
        if not isinstance(one, Callback):
            raise ConfigError(
                f"a callback is a {type(one).__name__}: {one!r}",
                hint="derive a class from eh.Callback and give an object",
            )
    return callbacks


def _prepared(
    job: Job | str | os.PathLike[str] | None,
    parts: dict[str, Any],
    settings: dict[str, Settings],
    dir: str | os.PathLike[str] | None,
    start_from: Run | str | os.PathLike[str] | None,
    shown: Sequence[ShownProgress] = (),
) -> StartMsg:
    """What the supervisor is told, once all is written that must be there before the run."""
    whole = _job(job, parts, settings)
    name, source = whole.spec.job.name, _source_of(start_from)
    run_dir = Path(dir).resolve() if dir is not None else new_run_path(Path.cwd(), name, secrets.token_hex(8))
    if (run_dir / JOURNAL_FILE).exists():
        raise ConfigError(
            f"{run_dir} already holds a run", hint="choose another dir, or continue the run with eh.resume(dir)"
        )
    if run_dir.exists() and not is_before_run(run_dir):
        raise ConfigError(
            f"{run_dir} holds other files, and a run needs a directory of its own", hint="choose another dir"
        )
    if whole.model_function is not None:
        run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        whole = whole.with_settings(model={"build": build_spec(whole.model_function, run_dir)})
    if whole.rows:
        whole = _with_rows(whole, run_dir, shown)
    return StartMsg(to_toml(whole.spec), str(run_dir), start_from=source)


def _source_of(start_from: Run | str | os.PathLike[str] | None) -> str:
    """The path that a run starts from; "": it starts anew."""
    if start_from is None:
        return ""
    return str(start_from.dir if isinstance(start_from, Run) else Path(start_from).resolve())


def _with_rows(job: Job, run_dir: Path, shown: Sequence[ShownProgress]) -> Job:
    """The job with the files that its rows are in now. An interrupt ends it, and leaves no file."""

    def tell(line: str) -> None:
        for one in shown:
            one.on_rows(line)

    data = job.spec.data
    needed = tuple(dict.fromkeys((*data.labels, *filter(None, (data.weight,)), *data.dense, *data.categorical)))
    try:
        files: dict[str, str] = {
            split: str(rows.write(split, run_dir, needed, tell)) for split, rows in job.rows.items()
        }
    except ElastichostError as error:
        for one in shown:
            one.on_failure(error)
        raise
    return job.with_settings(data=files)


def _job(job: Job | str | os.PathLike[str] | None, parts: dict[str, Any], settings: dict[str, Settings]) -> Job:
    """The job from its parts, or with these settings changed. Raises ConfigError."""
    beside = [name for name, part in parts.items() if part is not None]
    if job is None:
        if parts["model"] is None or parts["data"] is None:
            raise ConfigError(
                "a job needs a model and data", hint="give model=... and data=eh.Data(...), or the path of a job file"
            )
        more = {"model_args": parts["model_args"], "tables": parts["tables"]}
        return Job.of(parts["model"], parts["data"], **more, **settings)
    if not isinstance(job, Job | str | os.PathLike):
        raise ConfigError(
            f"the job is a {type(job).__name__}, not an eh.Job or the path of a job file",
            hint="data and model are given by name: eh.train(model=..., data=eh.Data(...))",
        )
    if beside:
        raise ConfigError(
            f"{', '.join(beside)}: given beside a whole job", hint="change the job with Job.with_settings(...)"
        )
    whole = job if isinstance(job, Job) else Job.from_toml(job)
    return whole.with_settings(**settings) if settings else whole
