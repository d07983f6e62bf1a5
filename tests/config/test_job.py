"""The job file: how it is read, which source of a setting wins, and the messages for refused settings."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elastichost.config.job import JobSpec, json_schema, load_job, to_toml
from elastichost.errors import ConfigError, ExitCode
from elastichost.specs import MAX_SERVERS, MAX_WORKERS
from tests.effort import examples

ROOT = Path(__file__).parents[2]
SMALLEST = """
[model]
build = "model.py:build"
[data]
train = ["train/*.parquet"]
label = "label"
dense = ["price"]
categorical = ["customer", "item", "recent_items"]
"""


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.toml"
    path.write_text(SMALLEST)
    return path


def problems_of(path: Path, *overrides: str, environ: dict[str, str] | None = None) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        load_job(path, overrides, environ or {})
    assert caught.value.exit_code is ExitCode.USAGE
    return caught.value.problems


def test_the_smallest_job_gets_every_default(job_file: Path) -> None:
    job = load_job(job_file, environ={})
    assert job.job.name == "shop"
    assert job.train.batch_size == 512
    assert job.train.optimizer_dense.name == "adam"
    assert (job.resources.restarts, job.resources.restart_window_s, job.resources.gpu_memory) == (3, 60.0, "90%")
    supervision = job.supervision
    assert (supervision.hang_timeout_s, supervision.start_timeout_s, supervision.keep_arena_s) == (10.0, 120.0, 4.0)
    assert (job.checkpoint.every_s, job.checkpoint.keep, job.checkpoint.directory) == (60.0, 2, "")


def test_paths_are_relative_to_the_file(job_file: Path) -> None:
    job = load_job(job_file, ['data.test="../test.parquet"', "checkpoint.directory=kept"], {})
    base = job_file.parent
    assert job.data.train == (str(base / "train/*.parquet"),)
    assert job.data.test == (str(base.parent / "test.parquet"),)
    assert job.model.build == f"{base / 'model.py'}:build"
    assert job.checkpoint.directory == str(base / "kept")


def test_command_line_wins_over_environment_over_file(job_file: Path) -> None:
    job_file.write_text(SMALLEST + "[train]\nepochs = 2\nbatch_size = 2\nstaleness = 2\n")
    environ = {"ELASTICHOST_TRAIN__BATCH_SIZE": "3", "ELASTICHOST_TRAIN__STALENESS": "3", "ELASTICHOST_DEBUG": "1"}
    train = load_job(job_file, ["train.staleness=4"], environ).train
    assert (train.epochs, train.batch_size, train.staleness) == (2, 3, 4)


@pytest.mark.parametrize("setting", ["resources.workers=[2,4]", "resources.cores=[1,2]", 'data.label=["l","m"]'])
@pytest.mark.filterwarnings("error")
def test_pairs_and_lists_are_written_to_json_without_a_warning(job_file: Path, setting: str) -> None:
    job = load_job(job_file, [setting], {})
    assert JobSpec.model_validate_json(job.model_dump_json()) == job


@pytest.mark.parametrize("text", ["train.mode=bounded", 'train.mode="bounded"', "train.mode = bounded"])
def test_strings_of_overrides_need_no_quotes(job_file: Path, text: str) -> None:
    assert load_job(job_file, [text], {}).train.mode == "bounded"


def test_overrides_take_toml_values_and_quoted_keys(job_file: Path) -> None:
    overrides = ["resources.workers=[1, 4]", 'tables."item".dim=8', "model.args={top=[8,1]}", "model.args.deep=true"]
    job = load_job(job_file, overrides, {})
    assert job.resources.workers == (1, 4)
    assert job.tables["item"].dim == 8
    assert job.model.args == {"top": [8, 1], "deep": True}


def test_environment_finds_table_names_in_any_case(job_file: Path) -> None:
    job_file.write_text(SMALLEST.replace('"item"', '"Item"'))
    environ = {"ELASTICHOST_TABLES__ITEM__DIM": "4", "ELASTICHOST_TABLES__DEFAULT__DIM": "8"}
    tables = load_job(job_file, environ=environ).tables
    assert {name: table.dim for name, table in tables.items()} == {"Item": 4, "default": 8}


def test_all_problems_are_reported_at_once(job_file: Path) -> None:
    problems = problems_of(
        job_file,
        "train.batch_sise=3",
        "train.batch_size=many",
        "resources.epochs=3",
        "tables.itm.dim=4",
        "resources.workers=[3, 1]",
        "a b",
        environ={"ELASTICHOST_TABLES__ITEM__DIM": "0"},
    )
    assert problems == (
        "--set 'a b': allowed: section.key=value, for example train.batch_size=1024",
        "tables.item.dim = 0 (from ELASTICHOST_TABLES__ITEM__DIM): allowed: a whole number >= 1 and <= 4096",
        'train.batch_size = "many" (from --set train.batch_size): allowed: a whole number >= 1 and <= 1048576',
        'train.batch_sise = 3 (from --set train.batch_sise): unknown setting; did you mean "batch_size"?',
        "resources.workers = [3, 1] (from --set resources.workers): "
        'allowed: "auto", a whole number >= 1 and <= 256, or [min, max] with 1 <= min <= max <= 256',
        'resources.epochs = 3 (from --set resources.epochs): unknown setting; did you mean "train.epochs"?',
    )


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.access=direct", 'train.access = "direct": with mode = "sync" rows are served'),
        ("train.micro_batches=128", "train.micro_batches = 128: a step has train.batch_size = 64 samples"),
        ("tables.default.admit_after=2", "tables.default.admit_after: with mode"),
        ("tables.default.evict_after_samples=100", "tables.default.evict_after_samples: with mode"),
        ("tables.default.precision=bfloat16", "only tables with a fixed number of rows may use it"),
    ],
)
def test_sync_refuses_settings_with_which_bits_depend_on_the_order_of_workers(
    job_file: Path, override: str, expected: str
) -> None:
    problems = problems_of(job_file, "train.mode=sync", "train.batch_size=64", override)
    assert any(expected in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.optimizer_rows.name=adamw", 'allowed: "sgd", "adagrad", "rowwise_adagrad" or "adam"'),
        ("tables.item.optimizer={name='lamb'}", 'allowed: "sgd", "adagrad", "rowwise_adagrad" or "adam"'),
        ("logging.to=['tensorbord']", 'logging.to = "tensorbord" (from --set logging.to): allowed: "csv", "mlflow"'),
        ("train.access=drect", 'did you mean "direct"?'),
        ("train.optimizer_dense.lr=nan", "allowed: a number > 0"),
        ("train.batch_size='8'", "allowed: a whole number"),
        ("train.epochs=true", "allowed: a whole number"),
        ("job.name=a/b", "allowed: letters, digits"),
        ("model.build=build", '"package.module:function" or "file.py:function"'),
        ("model.args.when=2024-01-01", "finite numbers, booleans, lists and tables; when is 2024-01-01"),
        ("model.args.x=nan", "model.args: allowed: strings, finite numbers, booleans, lists and tables; x is nan"),
        ("model.args.x=[1.0, {y=[0.0, -inf]}]", "lists and tables; x[1].y[1] is -inf"),
        ("data.format=parket", '"parquet", "csv", "criteo_tsv", "synthetic", or'),
        ("data.csv.types={itm='int'}", 'did you mean "item"?'),
        ("data.csv.types={item='integer'}", 'did you mean "int"?'),
        ("data.csv.decimal=,", 'data.csv: allowed: a decimal that differs from the delimiter: both are ","; set data.'),
        ("data.csv.delimiter=.", 'a decimal that differs from the delimiter: both are "."'),
        ("data.csv.delimiter=\u00a7", "an ASCII character as delimiter"),
        ("data.csv.delimiter='\"'", "no quote and no line end"),
        ("data.csv.decimal=;", 'allowed: "." or ","'),
        ("data.label=[]", "a column name, or a list of them"),
        ("data.weight=label", "column 'label' is already named in data.label"),
        ("data.categorical=['item','item']", "column 'item' is named twice"),
        ("data.synthetic.multi_valued=27", "multi_valued from 0 to tables (26)"),
        ("data.train=[]", "data.train: is missing"),
        ("resources.memory=200%", 'a share like "80%"'),
        ("resources.cores=0", '"all", a whole number >= 1'),
        ("resources.hosts=0", "a whole number >= 1 and <= 16"),
        ("resources.servers=65", "a whole number >= 1 and <= 64, or [min, max] with 1 <= min <= max <= 64"),
        ("resources.servers=[1, 65]", "1 <= min <= max <= 64"),
        ("resources.workers=257", '"auto", a whole number >= 1 and <= 256'),
        ("resources.workers=[2, 257]", "1 <= min <= max <= 256"),
        ("tables.default.rows=0", '"dynamic", or a whole number'),
        ("tables.default.init=normal(0)", '"uniform(low, high)"'),
        ("tables.default.init=constant(1e999)", "numbers from -3.38e+38 to 3.38e+38"),
        ("tables.default.init='uniform(-1e999, 1e999)'", "numbers from -3.38e+38 to 3.38e+38"),
        ("tables.default.init='uniform(0, 1e39)'", "numbers from -3.38e+38 to 3.38e+38"),
        ("tables.default.init=constant(-1e39)", "numbers from -3.38e+38 to 3.38e+38"),
        ("tables.default.features=['item']", "[tables.default] applies to every table"),
        ("tables.items.features=['item','recent']", 'did you mean "recent_items"?'),
        ("evaluate.every_samples=10", "there is no test data"),
        ("train.schedule={warmup_samples=9, total_samples=9}", "the warm-up alone has 9 samples"),
        ("train.schedule.final_factor=1.0", "train.schedule.final_factor"),
        ("train.schedule.name=step", '"warmup_stable_decay"'),
        ("data.test_fraction=1.0", "data.test_fraction"),
        ("data.test_fraction=-0.1", "data.test_fraction"),
        ("checkpoint=3", "allowed: a section with settings"),
        ("chekpoint.keep=3", '(from --set chekpoint.keep): unknown section; did you mean "checkpoint"?'),
        ("batch_size=3", 'unknown setting; did you mean "train.batch_size"?'),
        ("train.epochs.x=1", "train.epochs"),
    ],
)
def test_a_refused_value_is_reported_with_the_allowed_ones(job_file: Path, override: str, expected: str) -> None:
    problems = problems_of(job_file, override)
    assert len(problems) == 1
    assert expected in problems[0]


def test_a_decimal_comma_needs_another_delimiter(job_file: Path) -> None:
    csv = load_job(job_file, ["data.csv.decimal=,", "data.csv.delimiter=;", "data.csv.list_delimiter=,"], {}).data.csv
    assert (csv.decimal, csv.delimiter) == (",", ";"), "lists hold no numbers with fractions"


def test_the_largest_numbers_of_processes_and_initial_values_are_allowed(job_file: Path) -> None:
    overrides = ["resources.workers=256", "resources.servers=[64, 64]", "tables.item.init='uniform(-3.38e38, 3.38e38)'"]
    job = load_job(job_file, overrides, {})
    assert (job.resources.workers, job.resources.servers) == (MAX_WORKERS, (MAX_SERVERS, MAX_SERVERS))
    assert job.tables["item"].init == "uniform(-3.38e38, 3.38e38)"


def test_missing_settings_are_named(tmp_path: Path) -> None:
    path = tmp_path / "empty.toml"
    path.write_text("")
    assert [problem.split(":")[0] for problem in problems_of(path)] == ["model", "data"]
    path.write_text("[model]\n[data]\n")
    named = [problem.split(":")[0] for problem in problems_of(path)]
    assert named == ["model.build", "data.label", "data.categorical", "data.train"]


def test_broken_files_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text("[job]\nname = \n")
    with pytest.raises(ConfigError, match=r"line 2, column 8") as caught:
        load_job(path, environ={})
    assert caught.value.problems == ("line 2: name =",)
    path.write_bytes(b'[job]\nname = "\xff"\n')
    with pytest.raises(ConfigError, match="not UTF-8 at byte 14"):
        load_job(path, environ={})
    with pytest.raises(ConfigError, match=r'jbo.toml: no such job file; did you mean "job.toml"\?'):
        load_job(tmp_path / "jbo.toml", environ={})
    with pytest.raises(ConfigError, match="Is a directory"):
        load_job(tmp_path, environ={})


def test_criteo_and_synthetic_have_fixed_columns(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text('[model]\nbuild = "m:b"\n[data]\ntrain = "day_0.tsv"\nformat = "criteo_tsv"\n')
    data = load_job(path, environ={}).data
    assert (data.label, data.dense[0], data.dense[-1], data.categorical[-1]) == ("label", "I1", "I13", "C26")
    overrides = ["data.format=synthetic", "data.train=[]", "data.synthetic.tables=3", "data.synthetic.dense=0"]
    data = load_job(path, overrides, {}).data
    assert (data.label, data.dense, data.categorical) == ("label", (), ("c0", "c1", "c2"))
    assert problems_of(path, "data.dense=['I1']") == (
        'data.dense: the columns of format "criteo_tsv" are fixed; remove this setting',
    )
    assert problems_of(path, *overrides[:1]) == ('data.train: format "synthetic" reads no files; remove this setting',)


def test_a_job_is_frozen(job_file: Path) -> None:
    job = load_job(job_file, environ={})
    with pytest.raises(ValueError, match="frozen"):
        job.train.epochs = 2  # type: ignore[misc]  # the test sets a frozen attribute on purpose


plain_values = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
column_names = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4, unique=True)


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    categorical = draw(column_names)
    tables: dict[str, Any] = {"default": {"dim": draw(st.integers(1, 64))}}
    for column in draw(st.lists(st.sampled_from(categorical), unique=True)):
        if column != "default":
            rate = draw(st.floats(1e-9, 1e9))
            tables[column] = {"rows": draw(st.sampled_from(["dynamic", 1, 2**40])), "optimizer": {"lr": rate}}
    return {
        "job": {"name": draw(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)), "seed": 2**63 - 1},
        "model": {"build": "m:b", "args": draw(st.dictionaries(st.text(), plain_values, max_size=3))},
        "data": {"train": ["/a/*.parquet"], "label": "\x00label", "categorical": categorical},
        "tables": tables,
        "train": {"optimizer_dense": {"lr": draw(st.floats(1e-300, 1e300)), "eps": 0}},
        "resources": {"workers": draw(st.sampled_from(["auto", 1, [1, 2]])), "memory": "7.5GiB"},
    }


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=jobs())
def test_the_resolved_toml_is_the_same_job(tmp_path: Path, raw: dict[str, Any]) -> None:
    if set(raw["data"]["categorical"]) & {"\x00label"}:
        raw["data"]["label"] = "another"
    job = JobSpec.model_validate(raw)
    path = tmp_path / "job.resolved.toml"
    path.write_text(to_toml(job), encoding="utf-8", newline="")
    assert load_job(path, environ={}) == job


def test_a_resolved_job_file_has_its_sections_in_the_order_of_the_schema(job_file: Path) -> None:
    job = load_job(job_file, ["tables.item.dim=8", "tables.default.dim=4"], {})
    headers = [line.strip("[]") for line in to_toml(job).splitlines() if line.startswith("[")]
    sections = list(dict.fromkeys(header.partition(".")[0] for header in headers))
    assert sections == list(JobSpec.model_fields)
    assert {"tables.item", "tables.default"} <= set(headers)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.text(max_size=12), value=st.text(max_size=12))
def test_a_wrong_override_raises_config_error_only(job_file: Path, key: str, value: str) -> None:
    for text in (f"{key}={value}", f"train.{key}={value}", f"train.batch_size={value}", key):
        with suppress(ConfigError):
            load_job(job_file, [text], {})


def test_the_committed_schema_is_current() -> None:
    committed = json.loads((ROOT / "elastichost" / "job.schema.json").read_text())
    assert committed == json_schema(), "run: elastichost config schema > elastichost/job.schema.json"


@pytest.mark.parametrize("name", ["synthetic", "retail", "own_model"])
def test_examples_are_valid(name: str) -> None:
    assert load_job(ROOT / "examples" / f"{name}.toml", environ={}).model.build


def test_with_several_hosts_direct_access_is_refused(job_file: Path) -> None:
    assert load_job(job_file, ["resources.hosts=2"], environ={}).train.access == "auto"
    path, overrides = job_file, ["resources.hosts=2", "train.access=direct"]
    with pytest.raises(ConfigError) as caught:
        load_job(path, overrides, environ={})
    (problem,) = caught.value.problems
    assert problem.startswith('train.access = "direct": with resources.hosts = 2 rows of other hosts are served')


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("resources.gpus=0", "the job has no GPU"),
        ("train.mode=sync", 'with train.mode = "sync"'),
        ("train.access=served", 'with train.access = "served"'),
        ("train.clip_norm=1.0", "does not clip gradients (train.clip_norm = 1)"),
        ("resources.hosts=2", "with resources.hosts = 2"),
    ],
)
def test_what_a_model_in_memory_of_a_gpu_cannot_have(job_file: Path, override: str, said: str) -> None:
    asked = ["resources.model_memory=gpu", "resources.gpus=1"]
    assert load_job(job_file, asked, environ={}).resources.model_memory == "gpu"
    (problem,) = problems_of(job_file, *asked, override)
    assert problem.startswith('resources.model_memory = "gpu": ') and said in problem


def test_the_path_of_a_job_file_is_a_string_or_a_path(job_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job_file.parent)
    assert load_job(job_file.name, environ={}) == load_job(str(job_file), environ={}) == load_job(job_file, environ={})
    with pytest.raises(ConfigError, match="shpo.toml: no such job file.*shop.toml"):
        load_job("shpo.toml", environ={})


def test_a_url_is_not_made_absolute(job_file: Path) -> None:
    job = load_job(job_file, ['data.train=["https://example.org/y.parquet", "train.parquet"]'], {})
    assert job.data.train == ("https://example.org/y.parquet", str(job_file.parent / "train.parquet"))


def test_what_is_missing_is_named_with_its_purpose(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("[model]\n")
    build, data = problems_of(tmp_path / "job.toml")
    assert build.startswith("model.build: is missing. The function that returns the torch.nn.Module")
    assert data.startswith("data: is missing. `[data]`: the files of training and test data")


def test_toml_that_cannot_be_read_gets_its_line_and_a_hint(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("[model]\nbuild = elastichost\n")
    with pytest.raises(ConfigError, match="not valid TOML") as raised:
        load_job(tmp_path / "job.toml", environ={})
    assert raised.value.problems == ("line 2: build = elastichost",)
    assert "strings are in quotes" in raised.value.hint


def test_one_logger_needs_no_list(job_file: Path) -> None:
    assert load_job(job_file, ["logging.to=csv"], {}).logging.to == ("csv",)


def test_a_file_that_is_no_job_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1\xff")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 4") as raised:
        load_job(tmp_path / "a.parquet", environ={})
    assert raised.value.hint == "a job file is TOML in UTF-8"
    with pytest.raises(ConfigError, match="Is a directory") as raised:
        load_job(tmp_path, environ={})
    assert raised.value.hint == "name a job file (TOML)"


@pytest.mark.parametrize("mirror", ["s3://bucket/mirror", "person@host:mirror"])
def test_a_mirror_that_cannot_be_written_is_refused(job_file: Path, mirror: str) -> None:
    with pytest.raises(ConfigError, match=r"checkpoint"):
        load_job(job_file, [f"checkpoint.mirror={mirror}"], {})


def test_a_mirror_is_relative_to_the_job_file(job_file: Path) -> None:
    """A resumed run may be started in another directory."""
    job = load_job(job_file, ["checkpoint.mirror=mirror"], {})
    assert job.checkpoint.mirror == str(job_file.parent / "mirror")
