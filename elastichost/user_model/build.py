"""Loads the user's build function and calls it. When it fails, the error has the traceback within the user's code.

Only `table_configs`, `torchrec_names` and `build_model` import torch and torchrec, so checking the source stays fast.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import logging
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elastichost.config.tables import table_settings
from elastichost.errors import ModelError
from elastichost.human_readable import did_you_mean
from elastichost.specs import TableSpec
from elastichost.user_model.fresh_modules import fresh_modules
from elastichost.user_model.source import BuildSpec, check_build_source, import_path, parse_build_spec, source_file

if TYPE_CHECKING:
    from torch import nn
    from torchrec.modules.embedding_configs import EmbeddingBagConfig

    from elastichost.config.job import JobSpec

__all__ = ["build_model", "check_build_source", "load_build", "table_configs", "torchrec_names", "user_error"]

Build = Callable[..., Any]


def load_build(spec: str, base_dir: Path) -> Build:
    """The function that `model.build` names. A relative file is relative to `base_dir`. The code can import the modules
    in the directory of its file; code of a module, those in `base_dir`.

    Raises ModelError with the traceback from the first line of the user's code on.
    """
    parsed = parse_build_spec(spec, base_dir)
    with import_path(_home(parsed, base_dir)), fresh_modules(parsed, base_dir):
        file = source_file(parsed, base_dir)
        try:
            if parsed.file is not None:
                module = _import_file(parsed.file)
            else:
                module = importlib.import_module(parsed.module)
        except (Exception, SystemExit) as error:  # every error of the user's module is an error of the model
            raise user_error(f"model.build = {spec!r} cannot be imported", error) from error
    where = file if file is not None else parsed.module
    build = getattr(module, parsed.function, None)
    if build is None:
        public = [name for name in dir(module) if not name.startswith("_")]
        raise ModelError(f"{where} has no {parsed.function!r}{did_you_mean(parsed.function, public)}")
    if not callable(build):
        raise ModelError(f"{parsed.function!r} of {where} is a {type(build).__name__}, not a function")
    return build  # type: ignore[no-any-return]  # callable, as checked above


def table_configs(job: JobSpec, tables: Sequence[TableSpec], table_rows: Mapping[str, int]) -> list[EmbeddingBagConfig]:
    """The first argument of the build function: one config for each table, in order. `table_rows`: table name ->
    num_embeddings; for a dynamic table the caller chooses a number, such as 2**40 on the meta device. The names are
    those of `torchrec_names`."""
    from torchrec.modules.embedding_configs import EmbeddingBagConfig, PoolingType

    pooling = {"sum": PoolingType.SUM, "mean": PoolingType.MEAN}
    names = torchrec_names(tables)
    configs: list[EmbeddingBagConfig] = []
    for table in tables:
        settings = table_settings(job, table.name)
        configs.append(
            EmbeddingBagConfig(
                name=names[table.name],
                embedding_dim=settings.dim,
                num_embeddings=table_rows[table.name],
                feature_names=list(table.features),
                pooling=pooling[settings.pooling],
            )
        )
    return configs


def torchrec_names(tables: Sequence[TableSpec]) -> dict[str, str]:
    """Table name -> its name in torchrec, which is nearly always the same. A torchrec table is an attribute of a
    module, so its name cannot contain a dot, and it cannot be an attribute of every module ("type", "items"): "type"
    becomes "type_table"."""
    from torch import nn

    module = nn.ModuleDict()
    names: dict[str, str] = {}
    for table in tables:
        name = table.name.replace(".", "_")
        while hasattr(module, name) or name in names.values():
            name += "_table"
        names[table.name] = name
    return names


def build_model(
    job: JobSpec,
    tables: Sequence[TableSpec],
    table_rows: Mapping[str, int],
    num_dense: int,
    num_labels: int,
    *,
    base_dir: Path | None = None,
) -> nn.Module:
    """The model: the result of the user's `build(tables, num_dense, **args)`. With several labels, `num_labels` is
    passed too.

    `base_dir` (default: the working directory) matters only for a `model.build` with a relative path; the paths of a
    loaded job file are absolute. Raises ModelError with the traceback within the user's code.
    """
    from torch import nn

    logging.getLogger("torch.fx._symbolic_trace").addFilter(_is_for_users)
    directory = base_dir if base_dir is not None else Path.cwd()
    spec = job.model.build
    arguments: dict[str, Any] = dict(job.model.args)
    if num_labels > 1:
        arguments["num_labels"] = num_labels
    parsed = parse_build_spec(spec, directory)
    # The build function may import modules beside it while it runs.
    with import_path(_home(parsed, directory)), fresh_modules(parsed, directory):
        build = load_build(spec, directory)
        try:
            model = build(table_configs(job, tables, table_rows), num_dense, **arguments)
        except (Exception, SystemExit) as error:  # every error of the user's function is an error of the model
            raise user_error(f"{spec} failed", error, hint=_argument_hint(build, job.model.args, num_labels)) from error
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"{spec} returned a {type(model).__name__}, not a torch.nn.Module", hint="return the model from build()"
        )
    return model


def _home(parsed: BuildSpec, base_dir: Path) -> Path:
    """The directory from which the model's code imports modules of its own."""
    return parsed.file.parent if parsed.file is not None else base_dir


def _is_for_users(record: logging.LogRecord) -> bool:
    """Whether a warning of torch's tracer is for users. torchrec asks in each process whether it is traced, and torch
    then warns the authors of torchrec."""
    return "is_fx_tracing" not in record.getMessage()


def _import_file(file: Path) -> Any:
    """Imports a file as a module named after its stem, or with a prefix when another module has that name. It is in
    sys.modules, because dataclasses and pickled classes look their module up there."""
    name = file.stem
    taken = sys.modules.get(name)
    if taken is not None and getattr(taken, "__file__", None) != str(file):
        name = f"elastichost_user_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be loaded as a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _argument_hint(build: Build, args: Mapping[str, Any], num_labels: int) -> str:
    """The hint about an argument that the build function does not accept; "" when there is none."""
    try:
        parameters = inspect.signature(build).parameters
    except (TypeError, ValueError):
        return ""
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return ""
    if num_labels > 1 and "num_labels" not in parameters:
        return f"data.label names {num_labels} labels: build() must accept num_labels and return logits [B, num_labels]"
    for name in args:
        if name not in parameters:
            return f"model.args.{name} is not an argument of the build function{did_you_mean(name, parameters)}"
    return ""


def user_error(what: str, error: BaseException, *, hint: str = "") -> ModelError:
    """An error raised by the user's code as a ModelError, with the traceback within the user's code."""
    reason = "".join(traceback.format_exception_only(error)).strip().splitlines()
    return ModelError(f"{what}: {reason[-1]}", traceback_text=_user_traceback(error), hint=hint)


def _user_traceback(error: BaseException) -> str:
    """The traceback as Python prints it, without the leading frames of this file and of the import system."""
    frame = error.__traceback__
    while frame is not None and _is_ours(frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    return "".join(traceback.format_exception(type(error), error, frame))


def _is_ours(filename: str) -> bool:
    return filename == __file__ or filename.startswith("<frozen importlib") or filename == importlib.__file__
