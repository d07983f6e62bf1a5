"""The job file for a file of samples, as text that a person reads and edits. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from elastichost.datasets.inference.roles import Role
from elastichost.datasets.inference.sample import FileSample
from elastichost.human_readable import plural

__all__ = ["JobSource", "job_text"]

WIDTH = 100  # of a line with names
LARGE = 100.0


@dataclass(frozen=True, slots=True)
class JobSource:
    """What the job file says besides the columns. train, test: paths as the job file names them; test "": none.
    shared: categorical columns of lists -> the column with the same values, whose table they share."""

    name: str
    train: str
    test: str
    sample: FileSample
    shared: dict[str, str]


def job_text(facts: JobSource, roles: Sequence[Role]) -> str:
    """The job file, in TOML."""
    dense = [one.column.name for one in roles if one.use == "dense"]
    categorical = [one.column.name for one in roles if one.use == "categorical"]
    parts = [
        _head(facts, roles),
        f"[job]\nname = {_quoted(facts.name)}\n",
        _model(len(dense), len(categorical)),
        "\n".join(_data(facts, roles, dense, categorical)) + "\n",
        "[tables.default]\ndim = 16                            # numbers in the embedding of an id\n"
        'rows = "dynamic"                    # an id gets its row when it first occurs\n',
        *_shared_tables(facts.shared),
        "[train]\nbatch_size = 512\n",
    ]
    return "\n".join(parts)


def _head(facts: JobSource, roles: Sequence[Role]) -> str:
    looked = roles[0].column.rows if roles else 0
    lines = [f"# Written by `elastichost init` for {facts.train}."]
    if roles:
        lines[0] = f"# Written by `elastichost init` from {plural(looked, 'row')} of {facts.train}."
        types = " Ids that are no strings have their type in csv.types." * (facts.sample.text_types is not None)
        lines.append(f"# Move a column to another list if it is used in the wrong way.{types}")
        names = [one.column.name or '""' for one in roles]
        width = max(map(len, names))
        lines += [f"#   {name:{width}}  {one.use}: {one.reason}" for name, one in zip(names, roles, strict=True)]
    lines += ["#", "# Train:  elastichost run FILE", "# Look:   elastichost plan FILE", ""]
    return "\n".join(map(_one_line, lines))


def _one_line(comment: str) -> str:
    """The comment with escapes for line breaks and control characters, which TOML refuses there: a name or a value of
    the data may have some."""
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in comment)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape").decode()


def _model(dense: int, categorical: int) -> str:
    build, args = "wide_deep", ""
    if dense or categorical > 1:
        build, args = "dlrm", "args = { bottom = [64, 16], top = [64, 1] }\n" if dense else "args = { top = [64, 1] }\n"
    return f'[model]\nbuild = "elastichost.models:{build}"   # or your own: "model.py:build"\n{args}'


def _data(facts: JobSource, roles: Sequence[Role], dense: list[str], categorical: list[str]) -> Iterator[str]:
    sample = facts.sample
    yield "[data]"
    yield f"train = [{_quoted(facts.train)}]"
    if facts.test:
        yield f"test = [{_quoted(facts.test)}]"
    else:
        yield 'test_fraction = 0.1                 # the last rows are test data; or: test = ["FILE"]'
    yield f"format = {_quoted(sample.format)}"
    if sample.format == "criteo_tsv":
        return
    yield f"label = {_quoted(next(one.column.name for one in roles if one.use == 'label'))}"
    yield _names("dense", dense)
    yield _names("categorical", categorical)
    yield from _transform(roles)
    if sample.text_types is None:
        return
    if sample.delimiter != ",":
        yield f"csv.delimiter = {_quoted(sample.delimiter)}"
    if sample.decimal != ".":
        yield f"csv.decimal = {_quoted(sample.decimal)}"
    ids = (one.column for one in roles if one.use == "categorical")
    # A column without a type holds strings, which the words true and false of a CSV file are, too.
    typed = (one for one in ids if one.type not in ("string", "bool"))
    types = {one.name: "int" if one.type == "float" else one.type for one in typed}  # ids as 17.0 are read as 17
    if any(kind.startswith("list") for kind in types.values()) and sample.list_delimiter != "|":
        yield f"csv.list_delimiter = {_quoted(sample.list_delimiter)}"
    if types:
        yield f"csv.types = {{ {', '.join(f'{_key(name)} = {_quoted(kind)}' for name, kind in types.items())} }}"


def _transform(roles: Sequence[Role]) -> Iterator[str]:
    """A transform where a dense column has large numbers. Raw, they would drown all others."""
    bounds = [(one.column.least or 0.0, one.column.most or 0.0) for one in roles if one.use == "dense"]
    if not any(max(-least, most) > LARGE for least, most in bounds):
        return
    if all(least >= 0 for least, _ in bounds):
        yield 'dense_transform = "log1p"           # some are large: x becomes log(1 + x)'
    else:
        yield 'dense_transform = "signed_log1p"    # some are large: x becomes log(1 + |x|) with its sign'


def _names(setting: str, names: list[str]) -> str:
    line = f"{setting} = [{', '.join(map(_quoted, names))}]"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{setting} = [", *(f"    {_quoted(name)}," for name in names), "]"])


def _shared_tables(shared: dict[str, str]) -> Iterator[str]:
    owners: dict[str, list[str]] = {}
    for column, owner in shared.items():
        owners.setdefault(owner, []).append(column)
    for owner, columns in owners.items():
        header = f"[tables.{_key(owner)}]"
        features = ", ".join(map(_quoted, (owner, *columns)))
        yield "\n".join(
            [
                f"{header:35} # these columns hold the same ids, so they share a table",
                f"features = [{features}]",
                'pooling = "mean"                    # a list counts as the mean of its items',
                "",
            ]
        )


def _quoted(text: str) -> str:
    """A basic string of TOML, which JSON's strings are, but for one character that TOML has no place for."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    is_bare = bool(name) and all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in name)
    return name if is_bare else _quoted(name)
