"""What a run trained, from the settings of its job. Pure.

The settings are those of the file, unchecked: an older version may have written it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from elastichost.reporting.run.facts import TableFacts, Trained

__all__ = ["flat_settings", "trained_of"]

DEFAULT = "default"


def flat_settings(content: Mapping[str, Any]) -> dict[str, str]:
    """Every setting by its dotted name, as JSON."""
    return dict(_flat(content, ""))


def _flat(content: Mapping[str, Any], before: str) -> Iterator[tuple[str, str]]:
    for name, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, json.dumps(value, default=str, ensure_ascii=False)


def trained_of(content: Mapping[str, Any]) -> Trained:
    """The model, its tables and the most important settings."""
    model, tables = _section(content, "model"), _section(content, "tables")
    args = ", ".join(f"{name} = {_plain(value)}" for name, value in _section(model, "args").items())
    return Trained(
        model=_plain(model.get("build", "")),
        args=args,
        tables=tuple(_tables(content, tables)),
        settings=tuple((name, value) for name, value in _settings(content) if value),
    )


def _section(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = content.get(name)
    return found if isinstance(found, Mapping) else {}


def _plain(value: object) -> str:
    """A value as a reader writes it: text without quotes."""
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _tables(content: Mapping[str, Any], tables: Mapping[str, Any]) -> Iterator[TableFacts]:
    """Entries that name their columns, then the default for the columns that are left over."""
    columns = _section(content, "data").get("categorical")
    left = [str(column) for column in columns] if isinstance(columns, list) else []
    default = {"optimizer": _section(content, "train").get("optimizer_rows"), **_section(tables, DEFAULT)}
    for name in tables:
        if name == DEFAULT:
            continue
        own = _section(tables, name)
        features = tuple(str(feature) for feature in own.get("features") or [name])
        left = [column for column in left if column not in features]
        yield _table(name, features, 1, {**default, **own})
    if left:
        yield _table(DEFAULT, tuple(left), len(left), default)


def _table(name: str, features: tuple[str, ...], columns: int, settings: Mapping[str, Any]) -> TableFacts:
    def told(key: str) -> str:
        return _plain(settings[key]) if key in settings else ""

    rows = settings.get("rows")
    rows_words = f"{rows:,}" if isinstance(rows, int) else told("rows")
    return TableFacts(name, features, columns, told("dim"), rows_words, _optimizer(settings.get("optimizer")))


def _optimizer(settings: object) -> str:
    """The name of an optimizer with its learning rate."""
    if not isinstance(settings, Mapping):
        return ""
    rate = f", lr {settings['lr']}" if "lr" in settings else ""
    return f"{settings.get('name', '')}{rate}".removeprefix(", ")


def _settings(content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    data, train = _section(content, "data"), _section(content, "train")
    rows = _section(data, "synthetic").get("rows") if data.get("format") == "synthetic" else None
    origin = f"{rows:,} samples" if isinstance(rows, int) else _files(data.get("train"))
    yield "data", ", ".join(part for part in (_plain(data.get("format", "")), origin) if part)
    yield "columns", _columns(data)
    for name, key in (("mode", "mode"), ("batch size", "batch_size"), ("epochs", "epochs"), ("precision", "precision")):
        yield name, _plain(train[key]) if key in train else ""
    yield "optimizer of rows", _optimizer(train.get("optimizer_rows"))
    yield "optimizer of dense parameters", _optimizer(train.get("optimizer_dense"))
    schedule = _section(train, "schedule").get("name")
    yield "learning-rate schedule", _plain(schedule) if schedule not in (None, "constant") else ""
    seed = _section(content, "job").get("seed")
    yield "seed", "" if seed is None else str(seed)


def _files(files: object) -> str:
    if not isinstance(files, list) or not files:
        return ""
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return f"{files[0]}{more}"


def _columns(data: Mapping[str, Any]) -> str:
    counted = [(data.get("dense"), "dense"), (data.get("categorical"), "categorical")]
    return ", ".join(f"{len(found)} {kind}" for found, kind in counted if isinstance(found, list) and found)
