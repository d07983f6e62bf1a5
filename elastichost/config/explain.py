"""From pydantic's errors to sentences a user can act on: where, what was given, what is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from elastichost.config.schema import (
    DataSection,
    EvaluateSection,
    ResourcesSection,
    TableOverrides,
    TrainSection,
    implied_columns,
)
from elastichost.config.tables import table_problems
from elastichost.wording import did_you_mean

__all__ = ["Sources", "cross_problems", "explain"]

Sources = dict[tuple[str, ...], str]
KINDS = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
}
BOUND_WORDS = {Ge: ">=", Gt: ">", Le: "<=", Lt: "<"}
NAMES_OF_TYPES = {
    str: "a string",
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    dict: "a table",
    list: "a list",
}


def explain(error: ValidationError, raw: Mapping[str, Any], model: type[BaseModel], sources: Sources) -> list[str]:
    """One line per problem; also the problems between sections of which both are right by themselves."""
    lines: dict[str, None] = {}
    for detail in error.errors(include_url=False):
        if detail["type"] == "sections":
            lines.update(dict.fromkeys(detail["ctx"]["problems"]))
        else:
            lines[_line(detail, raw, model, sources)] = None
    lines.update(dict.fromkeys(_cross_problems_of_valid_sections(raw, model)))
    return list(lines)


def _line(detail: ErrorDetails, raw: Mapping[str, Any], model: type[BaseModel], sources: Sources) -> str:
    path = tuple(str(part) for part in detail["loc"])
    dotted = ".".join(path)
    source = next((f" (from {sources[path[:n]]})" for n in range(len(path), 0, -1) if path[:n] in sources), "")
    given = f"{dotted} = {_shown(detail['input'])}" if _is_leaf(detail["input"]) else dotted
    if detail["type"] == "extra_forbidden":
        return f"{given}{source}: unknown setting{_suggestion(path, model)}"
    if detail["type"] == "missing":
        return f"{dotted}: is missing; allowed: {_allowed(detail, _field(path, model))}"
    return f"{given}{source}: {_what(detail, path, model)}"


def _what(detail: ErrorDetails, path: tuple[str, ...], model: type[BaseModel]) -> str:
    if detail["type"] in ("model_type", "model_attributes_type", "dict_type"):
        kind = NAMES_OF_TYPES.get(type(detail["input"]), "a value")
        return f"{kind} was given; allowed: a section with settings"
    allowed = _allowed(detail, _field(path, model))
    close = ""
    if detail["type"] == "literal_error" and isinstance(detail["input"], str):
        close = did_you_mean(
            detail["input"], detail["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        )
    return f"allowed: {allowed}{close}"


def _allowed(detail: ErrorDetails, field: FieldInfo | None) -> str:
    if detail["type"] == "allowed":
        return str(detail["ctx"]["allowed"])
    if detail["type"] == "literal_error":
        return str(detail["ctx"]["expected"]).replace("'", '"')
    if field is None:
        return KINDS.get(detail["type"], detail["msg"])
    return _kind(field, detail) + _bounds(field)


def _kind(field: FieldInfo, detail: ErrorDetails) -> str:
    types = list(_types(field.annotation))
    for one, name in ((int, "a whole number"), (float, "a number"), (str, "a string")):
        if one in types and detail["type"] != "string_pattern_mismatch":
            return name
    if detail["type"] == "string_pattern_mismatch":
        return "letters, digits, '.', '_' and '-' (at most 64, the first a letter or digit)"
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
        return f"a section with {', '.join(field.annotation.model_fields)}"
    return "a list of strings" if tuple in {getattr(one, "__origin__", None) for one in types} else detail["msg"]


def _bounds(field: FieldInfo) -> str:
    words: list[str] = []
    for limit in _metadata(field):
        for kind, sign in BOUND_WORDS.items():
            if isinstance(limit, kind):
                words.append(f"{sign} {getattr(limit, kind.__name__.lower())}")
        if isinstance(limit, MinLen | MaxLen) and "1 character" not in " ".join(words):
            words.append("of 1 character")
    return f" {' and '.join(words)}" if words else ""


def _metadata(field: FieldInfo) -> Iterator[object]:
    """Bounds of the field, also where they sit inside `X | None`."""
    yield from field.metadata
    for one in _types(field.annotation):
        for extra in getattr(one, "__metadata__", ()):
            yield from extra.metadata if isinstance(extra, FieldInfo) else (extra,)


def _types(annotation: object) -> Iterator[Any]:
    """The annotation and everything inside its unions and `Annotated`."""
    yield annotation
    for one in get_args(annotation):
        yield from _types(one)


def _field(path: tuple[str, ...], model: type[BaseModel]) -> FieldInfo | None:
    """The field a path ends at; None inside free tables and lists."""
    owner = _owner(path[:-1], model)
    return owner.model_fields.get(path[-1]) if owner is not None else None


def _owner(path: tuple[str, ...], model: type[BaseModel]) -> type[BaseModel] | None:
    """The section that a path leads to; None inside free tables and lists."""
    current: type[BaseModel] | None = model
    keys = list(path)
    while keys and current is not None:
        field = current.model_fields.get(keys.pop(0))
        sections = [one for one in _types(field.annotation) if _is_section(one)] if field is not None else []
        if field is not None and get_origin(field.annotation) is dict and keys:
            keys.pop(0)  # the user's own name: `tables.<name>`
        current = sections[0] if sections else None
    return current


def _is_section(candidate: object) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, BaseModel)


def _suggestion(path: tuple[str, ...], model: type[BaseModel]) -> str:
    owner = _owner(path[:-1], model)
    known = list(owner.model_fields) if owner is not None else []
    if close := did_you_mean(path[-1], known):
        return close
    elsewhere = {leaf: dotted for dotted, leaf in _settings(model)}
    if path[-1] in elsewhere:
        return f'; did you mean "{elsewhere[path[-1]]}"?'
    return f"; allowed: {', '.join(known)}" if known else ""


def _settings(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every (dotted path, last key) of the fixed sections."""
    for key, field in model.model_fields.items():
        dotted = f"{prefix}{key}"
        yield dotted, key
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _settings(field.annotation, f"{dotted}.")


def _is_leaf(value: object) -> bool:
    return isinstance(value, str | int | float | bool | list | tuple)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = f'"{value}"' if isinstance(value, str) else repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 80 else text[:77] + "..."


def _cross_problems_of_valid_sections(raw: Mapping[str, Any], model: type[BaseModel]) -> list[str]:
    """Sections that are wrong by themselves are left out, so that nothing is reported twice."""
    valid: dict[str, Any] = {}
    for name in ("data", "tables", "train", "evaluate", "resources"):
        field = model.model_fields[name]
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        try:
            valid[name] = _adapter(field).validate_python(raw[name]) if name in raw else default
        except ValidationError:
            valid[name] = None
    return cross_problems(valid["data"], valid["tables"], valid["train"], valid["evaluate"], valid["resources"])


def _adapter(field: FieldInfo) -> TypeAdapter[Any]:
    annotation: Any = field.annotation  # pydantic says it may be None, but not for the fields of a class
    return TypeAdapter(annotation)


def cross_problems(
    data: DataSection | None,
    tables: Mapping[str, TableOverrides] | None,
    train: TrainSection | None,
    evaluate: EvaluateSection | None,
    resources: ResourcesSection | None,
) -> list[str]:
    """Problems between settings that are right one by one; None stands for a section that is not."""
    problems: list[str] = []
    if data is not None:
        problems += _column_problems(data) + _source_problems(data)
        if tables is not None:
            problems += table_problems(data.categorical, tables)
    if train is not None:
        if train.mode == "sync":
            problems += _sync_problems(train, tables or {})
        elif train.access == "direct" and resources is not None and resources.hosts > 1:
            problems.append(
                f'train.access = "direct": with resources.hosts = {resources.hosts} rows of other hosts are served; '
                'allowed: "auto", "served"'
            )
    if data is not None and evaluate is not None and not data.test and data.format != "synthetic":
        if evaluate.every_samples:
            problems.append(f"evaluate.every_samples = {evaluate.every_samples}: there is no data.test to evaluate on")
        if evaluate.early_stop.patience:
            problems.append(f"evaluate.early_stop.patience = {evaluate.early_stop.patience}: there is no data.test")
    return problems


def _sync_problems(train: TrainSection, tables: Mapping[str, TableOverrides]) -> list[str]:
    """What would make the bits depend on who was first."""
    problems = []
    if train.access == "direct":
        problems.append('train.access = "direct": with mode = "sync" rows are served; allowed: "auto", "served"')
    if train.micro_batches > train.batch_size:
        problems.append(f"train.micro_batches = {train.micro_batches}: a step has {train.batch_size} samples")
    default = tables.get("default", TableOverrides())
    for name, table in tables.items():
        where = f"tables.{name}" if name == "default" else f"tables.{name} (or tables.default)"
        if (table.admit_after or default.admit_after or 1) > 1:
            problems.append(f'{where}.admit_after: with mode = "sync" every id is admitted at once; allowed: 1')
        if table.evict_after_samples or (table.evict_after_samples is None and default.evict_after_samples):
            problems.append(f'{where}.evict_after_samples: with mode = "sync" no row is dropped; allowed: 0')
        if (table.precision or default.precision) == "bfloat16" and (table.rows or default.rows) in ("dynamic", None):
            problems.append(f'{where}.precision = "bfloat16": with mode = "sync" only for tables with a number of rows')
    return problems


def _column_problems(data: DataSection) -> list[str]:
    implied = implied_columns(data.format, data.synthetic)
    if implied is not None:
        problems = [
            f'data.{name}: format "{data.format}" brings its own columns; leave this out'
            for name in ("label", "dense", "categorical")
            if getattr(data, name) != getattr(implied, name)
        ]
        if data.weight:
            problems.append(f'data.weight = "{data.weight}": format "{data.format}" has no weights; leave this out')
        return problems
    problems = []
    if not data.label:
        problems.append("data.label: is missing; allowed: a column name, or a list of them (multi-task)")
    if not data.categorical:
        problems.append("data.categorical: is missing; allowed: a list of at least one column name")
    problems += [f"data.{where}: an empty column name" for where, columns in _columns(data) if "" in columns]
    problems += _repeated_columns(data)
    known = [column for _, columns in _columns(data) for column in columns]
    for column in data.csv.types:
        if column not in data.categorical:
            hint = did_you_mean(column, known)
            problems.append(f"data.csv.types.{column}: {column!r} is not one of data.categorical{hint}")
    return problems


def _columns(data: DataSection) -> Iterable[tuple[str, tuple[str, ...]]]:
    weight = (data.weight,) if data.weight else ()
    labels = data.labels if data.label else ()
    return (("label", labels), ("weight", weight), ("dense", data.dense), ("categorical", data.categorical))


def _repeated_columns(data: DataSection) -> list[str]:
    problems: list[str] = []
    first: dict[str, str] = {}
    for where, columns in _columns(data):
        for column in columns:
            if column not in first:
                first[column] = where
            elif first[column] == where:
                problems.append(f"data.{where}: column {column!r} is named twice")
            elif where == "categorical" and first[column] == "dense":
                continue  # a number may be both a dense value and an id
            else:
                problems.append(f"data.{where}: column {column!r} is data.{first[column]} already")
    return problems


def _source_problems(data: DataSection) -> list[str]:
    if data.format == "synthetic":
        return [
            f'data.{split}: format "synthetic" reads no files; leave this out'
            for split in ("train", "test")
            if getattr(data, split)
        ]
    return [] if data.train else ["data.train: is missing; allowed: a list of files or globs"]
