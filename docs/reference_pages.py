"""Reference pages that are made from code: verbs of the command line, settings of the job file.

`python -m docs.reference_pages` writes them; a test compares them with the code.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
Schema = Mapping[str, Any]
MADE = "<!-- made from code by `python -m docs.reference_pages` -->\n\n"


def made_pages() -> dict[Path, str]:
    """Each page and its Markdown."""
    folder = ROOT / "docs" / "reference"
    return {folder / "cli.md": MADE + command_line_page(), folder / "job-file.md": MADE + job_file_page()}


def command_line_page() -> str:
    """Markdown that Typer makes of the verbs, their arguments and options."""
    command = [sys.executable, "-m", "typer", "elastichost.cli", "utils", "docs", "--name", "elastichost"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return made.replace("# `elastichost`", "# Command line", 1)


def job_file_page() -> str:
    """Markdown: one heading for each section of the job file, one row for each setting."""
    schema = json.loads((ROOT / "elastichost" / "job.schema.json").read_text(encoding="utf-8"))
    lines = [
        "# The job file",
        "",
        "A job is described by one TOML file. `elastichost config show JOB` prints a job with every default; "
        "`elastichost config schema` prints the JSON Schema that this page is made of, which editors understand.",
        "",
        "Precedence: `--set train.epochs=2`, then `ELASTICHOST_TRAIN__EPOCHS=2`, then the job file, then defaults.",
        "",
    ]
    top = _resolved(schema, schema)
    for name, section in top["properties"].items():
        lines += _section(name, section, schema)
    return "\n".join(lines) + "\n"


def _section(name: str, section: Schema, schema: Schema) -> Iterator[str]:
    resolved = _object_of(section, schema)
    if resolved is None:
        return
    if "properties" not in resolved:  # names that the user chooses, such as tables
        resolved = _object_of(resolved.get("additionalProperties", {}), schema) or {}
        name = f"{name}.NAME"
    yield from (f"## `[{name}]`", "")
    if resolved.get("description"):
        yield from (_sentence(resolved["description"]), "")
    yield from ("| setting | type | default | what it does |", "|---|---|---|---|")
    inner: list[tuple[str, Schema]] = []
    for key, setting in resolved.get("properties", {}).items():
        found = _object_of(setting, schema)
        if found is not None and found.get("properties"):
            inner.append((f"{name}.{key}", setting))
        described = setting.get("description") or _resolved(setting, schema).get("description", "")
        default = f"`{json.dumps(setting['default'])}`".replace("|", "\\|") if _is_plain(setting.get("default")) else ""
        yield f"| `{key}` | {_type(setting, schema)} | {default} | {_sentence(described)} |"
    yield ""
    for path, setting in inner:
        yield from _section(path, setting, schema)


def _is_plain(default: object) -> bool:
    return default is not None and not isinstance(default, Mapping)


def _sentence(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _resolved(schema: Schema, top: Schema) -> Schema:
    while "$ref" in schema:
        schema = top["$defs"][schema["$ref"].rpartition("/")[2]]
    return schema


def _object_of(setting: Schema, top: Schema) -> Schema | None:
    for option in (setting, *setting.get("anyOf", ())):
        found = _resolved(option, top)
        if found.get("type") == "object":
            return found
    return None


def _type(setting: Schema, top: Schema) -> str:
    if "anyOf" in setting:
        options = [one for one in setting["anyOf"] if one.get("type") != "null"]  # TOML has no null
        return " or ".join(dict.fromkeys(_type(option, top) for option in options))
    found = _resolved(setting, top)
    if "enum" in found:
        return ", ".join(f"`{json.dumps(value)}`" for value in found["enum"])
    if "const" in found:
        return f"`{json.dumps(found['const'])}`"
    kind = found.get("type", "any value")
    if kind == "array":
        return f"list of {_type(found.get('items', {}), top)}"
    limits = _limits(found)
    return f"{_words(kind)}{limits}"


def _limits(found: Schema) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    told = [f"{sign} {found[name]}" for name, sign in signs.items() if name in found]
    return f" {' and '.join(told)}" if told else ""


def _words(kind: str | Sequence[str]) -> str:
    names = {"integer": "integer", "number": "number", "string": "text", "boolean": "true or false", "object": "table"}
    if isinstance(kind, str):
        return names.get(kind, kind)
    return " or ".join(names.get(one, one) for one in kind)


if __name__ == "__main__":
    for page, text in made_pages().items():
        page.write_text(text, encoding="utf-8")
