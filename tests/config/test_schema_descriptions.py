"""The JSON schema of the job file describes every section and every setting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from elastichost.config.hosts import HostsFile
from elastichost.config.job import json_schema

LEAST_WORDS = 2
LONGEST = 320  # characters: one or two sentences, with the allowed values


def settings_of(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, schema) of every property, of the file itself and of every section; a property that is a section without a
    description of its own has that of the section."""
    sections = schema["$defs"]
    for section, found in (("", schema), *sections.items()):
        for name, setting in found["properties"].items():
            named = [setting, *setting.get("anyOf", ())]
            targets = [sections[one["$ref"].rpartition("/")[2]] for one in named if "$ref" in one]
            yield f"{section}.{name}".lstrip("."), {**{k: v for one in targets for k, v in one.items()}, **setting}


@pytest.mark.parametrize("schema", [json_schema(), HostsFile.model_json_schema()], ids=["job", "hosts"])
def test_every_setting_has_a_description(schema: dict[str, Any]) -> None:
    settings = dict(settings_of(schema))
    assert len(settings) > 10
    without = [
        path for path, setting in settings.items() if len(str(setting.get("description", "")).split()) < LEAST_WORDS
    ]
    assert not without, f"add Field(description=...): {without}"


@pytest.mark.parametrize("schema", [json_schema(), HostsFile.model_json_schema()], ids=["job", "hosts"])
def test_every_section_has_a_description(schema: dict[str, Any]) -> None:
    sections = {"the file": schema, **schema["$defs"]}
    without = [name for name, section in sections.items() if not str(section.get("description", "")).strip()]
    assert not without, f"add a docstring: {without}"


def test_descriptions_are_sentences() -> None:
    """Each begins with a capital letter, a quote, or the name of a setting, ends with a full stop, and is short."""
    wrong = []
    for path, setting in settings_of(json_schema()):
        text = setting["description"]
        begins_well = text[0].isupper() or text[0] in "\"`'"
        if not begins_well or text[-1] not in '."`' or len(text) > LONGEST:
            wrong.append((path, len(text), text))
    assert not wrong, wrong
