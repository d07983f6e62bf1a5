"""From pydantic's errors to messages that a user can act on: which setting, which value, what is allowed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from elastichost.config.rules import cross_problems
from elastichost.human_readable import did_you_mean

__all__ = ["Sources", "explain", "setting_paths"]

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
    """One line for each problem, including the problems between sections that are valid by themselves."""
    lines: dict[str, None] = {}
    for detail in error.errors(include_url=False):
        if detail["type"] == "sections":
            lines.update(dict.fromkeys(detail["ctx"]["problems"]))
        else:
            lines[_line(detail, raw, model, sources)] = None
    lines.update(dict.fromkeys(_cross_problems_of_valid_sections(raw, model)))
    return list(lines)


def _line(detail: ErrorDetails, raw: Mapping[str, Any], model: type[BaseModel], sources: Sources) -> str:
    path = tuple(part for part in detail["loc"] if isinstance(part, str))  # the number of a list's element is left out
    dotted = ".".join(path)
    source = next((f" (from {sources[path[:n]]})" for n in range(len(path), 0, -1) if path[:n] in sources), "")
    within = next((f" (from {source})" for keys, source in sources.items() if keys[: len(path)] == path), "")
    given = f"{dotted} = {_shown(detail['input'])}" if _is_leaf(detail["input"]) else dotted
    if detail["type"] == "extra_forbidden":
        is_section = isinstance(detail["input"], dict)
        kind = "section" if is_section else "setting"
        return f"{given}{source or within}: unknown {kind}{_suggestion(path, model)}"
    if detail["type"] == "missing":
        return f"{dotted}: is missing{_purpose(_field(path, model))}"
    return f"{given}{source}: {_what(detail, path, model)}"


def _purpose(field: FieldInfo | None) -> str:
    """What a setting or section that is missing is for."""
    if field is None:
        return ""
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
        return ". " + " ".join((field.annotation.__doc__ or "").split()).rstrip(".")
    return ". " + (field.description or "").partition(". ")[0].rstrip(".")


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
    """The limits of the field, also those inside `X | None`."""
    yield from field.metadata
    for one in _types(field.annotation):
        for extra in getattr(one, "__metadata__", ()):
            yield from extra.metadata if isinstance(extra, FieldInfo) else (extra,)


def _types(annotation: object) -> Iterator[Any]:
    """The annotation, and all types inside its unions and `Annotated`."""
    yield annotation
    for one in get_args(annotation):
        yield from _types(one)


def _field(path: tuple[str, ...], model: type[BaseModel]) -> FieldInfo | None:
    """The field at the end of a path; None inside tables with free keys, and inside lists."""
    owner = _owner(path[:-1], model)
    return owner.model_fields.get(path[-1]) if owner is not None else None


def _owner(path: tuple[str, ...], model: type[BaseModel]) -> type[BaseModel] | None:
    """The section at the end of a path; None inside tables with free keys, and inside lists."""
    current: type[BaseModel] | None = model
    keys = list(path)
    while keys and current is not None:
        field = current.model_fields.get(keys.pop(0))
        sections = [one for one in _types(field.annotation) if _is_section(one)] if field is not None else []
        if field is not None and get_origin(field.annotation) is dict and keys:
            keys.pop(0)  # a name that the user chose: `tables.<name>`
        current = sections[0] if sections else None
    return current


def _is_section(candidate: object) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, BaseModel)


def _suggestion(path: tuple[str, ...], model: type[BaseModel]) -> str:
    owner = _owner(path[:-1], model)
    known = list(owner.model_fields) if owner is not None else []
    if close := did_you_mean(path[-1], known):
        return close
    elsewhere = {dotted.rpartition(".")[2]: dotted for dotted in setting_paths(model)}
    if path[-1] in elsewhere:
        return f'; did you mean "{elsewhere[path[-1]]}"?'
    return f"; allowed: {', '.join(known)}" if known else ""


def setting_paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The dotted path of every section and setting; those of a table with free keys are left out."""
    for key, field in model.model_fields.items():
        dotted = f"{prefix}{key}"
        yield dotted
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from setting_paths(field.annotation, f"{dotted}.")


def _is_leaf(value: object) -> bool:
    return isinstance(value, str | int | float | bool | list | tuple)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = f'"{value}"' if isinstance(value, str) else repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 80 else text[:77] + "..."


def _cross_problems_of_valid_sections(raw: Mapping[str, Any], model: type[BaseModel]) -> list[str]:
    """Problems between sections; sections that are not valid are left out, so that no problem is reported twice."""
    valid: dict[str, Any] = {}
    sections = ("data", "tables", "train", "evaluate", "resources", "checkpoint")
    if not set(sections) <= set(model.model_fields):
        return []  # a single section
    for name in sections:
        field = model.model_fields[name]
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        try:
            valid[name] = _adapter(field).validate_python(raw[name]) if name in raw else default
        except ValidationError:
            valid[name] = None
    return cross_problems(*(valid[name] for name in sections))


def _adapter(field: FieldInfo) -> TypeAdapter[Any]:
    annotation: Any = field.annotation  # typed as optional, but never None for the fields of a class
    return TypeAdapter(annotation)
