"""`plan JOB --for`: the text follows the job file and the options."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elastichost.cli.train.cluster_plan import _warn_of_unmounted
from elastichost.config.job import load_job
from tests.cli.conftest import Elastichost
from tests.cli.train.clusters.slow_job import SlowJob
from tests.cli.train.clusters.test_manifest import documents

MIB = 1 << 20


def test_a_node_may_be_larger_than_this_machine(elastichost: Elastichost, tmp_path: Path) -> None:
    job = SlowJob(tmp_path, resources="gpus = 2\n[job]\nname = 'Shop'")
    words = ["--for", "kubernetes", "--image", "registry/eh:1", "--cores", "64", "--notice", "33"]
    outcome = elastichost("plan", str(job.path), *words)
    assert outcome.code == 0, outcome.stderr
    found = documents(outcome.stdout)
    pod = found["Job"]["spec"]["template"]["spec"]
    asked = pod["containers"][0]["resources"]["requests"]
    assert (asked["cpu"], asked["nvidia.com/gpu"], pod["terminationGracePeriodSeconds"]) == ("64", "2", 33)
    there = tomllib.loads(found["ConfigMap"]["data"]["job.toml"])
    assert there["model"]["build"] == "source/slow.py:build" and there["job"]["name"] == "Shop"
    assert there["resources"]["cores"] == 64 and there["resources"]["gpus"] == 2
    assert there["resources"]["memory"] < int(asked["memory"].removesuffix("Mi")) * MIB
    assert "1 node with 64 cores" in outcome.stderr


@pytest.mark.parametrize(("setting", "amount"), [("'1GiB'", 1 << 30), ("'90%'", None)])
def test_memory_and_output_to_a_file(
    elastichost: Elastichost, tmp_path: Path, setting: str, amount: int | None
) -> None:
    job = SlowJob(tmp_path, resources=f"memory = {setting}")
    words = ["--set", "train.epochs=3", "--for", "slurm", "--output", "job.sbatch"]
    outcome = elastichost("plan", str(job.path), *words)
    assert outcome.code == 0 and not outcome.stdout, outcome.stderr
    text = (tmp_path / "job.sbatch").read_text()
    [budget] = [word.removeprefix("resources.memory=") for word in text.split() if word.startswith("resources.memory=")]
    [asked] = [line.removeprefix("#SBATCH --mem=").removesuffix("M") for line in text.splitlines() if "--mem=" in line]
    assert int(budget) == amount or amount is None
    assert 1.05 * int(budget) < int(asked) * MIB < 1.2 * int(budget)
    assert f"--run-dir {tmp_path}/runs/slow --continue" in text
    assert "--set train.epochs=3 --set resources.cores=" in text


def test_refusals(elastichost: Elastichost, tmp_path: Path) -> None:
    job = SlowJob(tmp_path)
    kubernetes = ["--for", "kubernetes", "--image", "x"]
    for words, message in (
        ([*kubernetes, "--run-dir", "runs/x"], "a pod needs an absolute path"),
        ([*kubernetes, "--gpus", "1"], "--gpus: the job asks for none"),
        (["--for", "ray", "--set", 'resources.gpus="auto"'], "add --gpus N"),
    ):
        outcome = elastichost("plan", str(job.path), *words)
        assert outcome.code == 2 and message in outcome.stderr, outcome.stderr


PARQUET = """
[model]
build = "elastichost.models:dlrm"
args = { bottom = [4], top = [4, 1] }
[data]
train = ["clicks.parquet"]
label = "clicked"
dense = ["price"]
categorical = ["item"]
[tables.default]
dim = 4
"""


def test_data_without_a_volume_is_warned_of(elastichost: Elastichost, tmp_path: Path) -> None:
    table = {"clicked": [0, 1] * 500, "price": [0.5] * 1000, "item": list(range(1000))}
    pq.write_table(pa.table(table), tmp_path / "clicks.parquet")
    (tmp_path / "clicks.toml").write_text(PARQUET)
    words = ["--for", "kubernetes", "--image", "x"]
    without = elastichost("plan", "clicks.toml", *words)
    assert f"{tmp_path}/clicks.parquet: no --mount CLAIM:PATH contains it" in without.stderr
    mounted = elastichost("plan", "clicks.toml", *words, "--mount", f"clicks:{tmp_path}")
    assert mounted.code == 0 and "no --mount" not in mounted.stderr
    there = tomllib.loads(documents(mounted.stdout)["ConfigMap"]["data"]["job.toml"])
    assert there["data"]["train"] == [f"{tmp_path}/clicks.parquet"]


def test_an_address_needs_no_volume(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = PARQUET.replace('"clicks.parquet"', '"s3://bucket/clicks.parquet"').replace(
        "label =", 'test = ["/data/t.parquet"]\nlabel ='
    )
    (tmp_path / "clicks.toml").write_text(settings)
    job = load_job(tmp_path / "clicks.toml", environ={})
    _warn_of_unmounted(job, [])
    said = capsys.readouterr().err
    assert "/data/t.parquet: no --mount" in said and "s3://" not in said
    _warn_of_unmounted(job, ["/data"])
    assert not capsys.readouterr().err


def test_own_metrics_and_a_source_in_latin_1_are_in_the_config_map(elastichost: Elastichost, tmp_path: Path) -> None:
    job = SlowJob(tmp_path)
    metrics = tmp_path / "my metrics"
    metrics.mkdir()
    body = "import words_of_metric\n\n\ndef f(scores, labels, weights):\n    return float(len(words_of_metric.WORD))\n"
    (metrics / "my_metric.py").write_text(body)
    (metrics / "words_of_metric.py").write_text("# coding: latin-1\nWORD = '\u00e9'\n", encoding="latin-1")
    function = f"{metrics}/my_metric.py:f"
    words = ["--set", f'evaluate.metrics=["auc", "{function}"]', "--set", f'evaluate.better."{function}"="higher"']
    outcome = elastichost("plan", str(job.path), *words, "--for", "kubernetes", "--image", "x")
    assert outcome.code == 0, outcome.stderr
    found = documents(outcome.stdout)
    data = found["ConfigMap"]["data"]
    volumes = found["Job"]["spec"]["template"]["spec"]["volumes"]
    [items] = [volume["configMap"]["items"] for volume in volumes if "configMap" in volume]
    texts = {item["path"]: data[item["key"]] for item in items}
    there = tomllib.loads(data["job.toml"])["evaluate"]
    files = [text.rpartition(":")[0] for text in there["metrics"] if ":" in text]
    assert [texts[file] for file in files] == [body]
    assert there["better"] == {f"{files[0]}:f": "higher"}
    [helper] = [path for path in texts if path.endswith("words_of_metric.py")]
    assert Path(helper).parent == Path(files[0]).parent
    names: dict[str, str] = {}
    exec(compile(texts[helper].encode(), helper, "exec"), names)
    assert names["WORD"] == "\u00e9"
