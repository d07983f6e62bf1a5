"""Renders what starts a job on a cluster, from the templates in `templates/`. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import PurePosixPath
from typing import Literal

from jinja2 import Environment, PackageLoader, StrictUndefined

from elastichost.cli.train.clusters.destination import Destination, name_for_kubernetes, short_hash
from elastichost.cli.train.clusters.request import NodeRequest
from elastichost.errors import ConfigError, ExitCode

__all__ = ["Cluster", "manifest"]

Cluster = Literal["kubernetes", "slurm", "ray"]
TEMPLATES: Mapping[Cluster, str] = {
    "kubernetes": "kubernetes.yaml.jinja",
    "slurm": "slurm.sh.jinja",
    "ray": "ray.py.jinja",
}
MOST_CONFIG_MAP_BYTES = 1_000_000  # Kubernetes allows 1 MiB with its own fields
MOST_KEY = 200  # Kubernetes allows 253 characters
RETRIES = 3  # starts after an end for which the job may not be at fault


def manifest(
    cluster: Cluster,
    name: str,
    words: Sequence[str],
    request: NodeRequest,
    destination: Destination,
    files: Mapping[str, str],
    remark: str,
) -> str:
    """Returns the text. name: of the job. words: what follows `elastichost run`: the job file and settings. files: path
    -> text of the files that the job needs there; empty for Slurm, where nodes see this machine's files. remark: one
    line about the plan. Raises ConfigError for files that do not fit into a ConfigMap."""
    size = sum(len(text.encode()) for text in files.values())
    if cluster == "kubernetes" and size > MOST_CONFIG_MAP_BYTES:
        raise ConfigError(
            f"the job file and the source of its model have {size:,} bytes, and a ConfigMap holds 1 MiB",
            hint="install the model as a package in the image: model.build = 'package.module:function'",
        )
    return (
        _environment()
        .get_template(TEMPLATES[cluster])
        .render(
            name=name_for_kubernetes(name) if cluster == "kubernetes" else name,
            command=[*_call(destination, words), *(["--on", "ray"] if request.nodes > 1 else [])],
            request=request,
            destination=destination,
            files=files,
            keys=_keys(files),
            remark=" ".join(remark.split()),
            has_source=any("/" in path for path in files),
            requeue_codes=[int(ExitCode.STOPPED_RESUMABLE), int(ExitCode.TERMINATED)],
            final_codes=[int(ExitCode.USAGE)],
            retries=RETRIES,
        )
    )


def _call(destination: Destination, words: Sequence[str]) -> list[str]:
    run = ["run", *words, "--run-dir", destination.run_dir, "--continue", "--dashboard", "no"]
    return [*shlex.split(destination.program), *run]


def _keys(paths: Iterable[str]) -> dict[str, str]:
    """Path -> its key in a ConfigMap, whose keys have only letters, digits, ".", "_" and "-". A path that would lose a
    character, or have the key of another path, gets a hash."""
    keys: dict[str, str] = {}
    for path in paths:
        plain = path.replace("/", ".")
        key = re.sub(r"[^-._a-zA-Z0-9]", "_", plain)[:MOST_KEY]
        keys[path] = key if key == plain and key not in keys.values() else f"{key}-{short_hash(path)}"
    return keys


def _block(text: str, indent: int) -> str:
    """A text as a YAML value: a block of indented lines, or a quoted text where characters need escapes."""
    is_plain = all(32 <= ord(letter) < 127 or letter in "\n\t" for letter in text)
    if not is_plain or not text.strip():
        return _quoted(text)
    keeps = "+" if text.endswith("\n") else "-"
    lines = text.removesuffix("\n").split("\n")
    return f"|2{keeps}\n" + "\n".join(" " * indent + line if line else "" for line in lines)


def _quoted(text: str) -> str:
    """A text as a quoted text of YAML."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(letter: str) -> str:
    """A character within a quoted text of YAML."""
    code = ord(letter)
    if 32 <= code < 127 and letter not in '"\\':
        return letter
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("elastichost.cli.train.clusters"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
        autoescape=False,
    )
    made.filters |= {
        "block": _block,
        "shell": shlex.quote,
        "shell_words": shlex.join,
        "python": repr,
        "parent": lambda path: str(PurePosixPath(path).parent),
        "quoted": _quoted,
    }
    return made
