"""The texts are valid for the cluster that reads them: Kubernetes' own schema, bash, Python."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from elastichost.cli.train.clusters.destination import DataVolume, Destination, name_for_kubernetes, parse_mount
from elastichost.cli.train.clusters.manifest import MOST_CONFIG_MAP_BYTES, Cluster, manifest
from elastichost.cli.train.clusters.request import NodeRequest
from elastichost.errors import ConfigError

SCHEMA = json.loads((Path(__file__).parent / "kubernetes.schema.json").read_text(encoding="utf-8"))
MIB = 1 << 20
REQUEST = NodeRequest(
    nodes=1, cores=4, gpus=0, memory_bytes=2048 * MIB, budget_bytes=1800 * MIB, arena_bytes=512 * MIB,
    disk_bytes=5 << 30, notice_s=90, time_s=7200,
)  # fmt: skip
GPUS_ON_NODES = NodeRequest(
    nodes=3, cores=8, gpus=2, memory_bytes=2048 * MIB, budget_bytes=1800 * MIB, arena_bytes=512 * MIB,
    disk_bytes=5 << 30, notice_s=90,
)  # fmt: skip
DESTINATION = Destination(
    run_dir="/runs/shop", working_directory="/home/me", program="elastichost", image="registry/elastichost:1"
)
FILES = {"job.toml": '[model]\nbuild = "source/model.py:build"\n', "source/model.py": "\n  # indented\nx = '\u00e4'\n"}
JOB = "/elastichost/job/job.toml"


def made(cluster: Cluster, request: NodeRequest = REQUEST, destination: Destination = DESTINATION, **more: Any) -> str:
    facts = {"name": "shop", "words": [JOB], "files": FILES, "remark": "a\nremark", **more}
    return manifest(cluster, request=request, destination=destination, **facts)


def documents(text: str) -> dict[str, Any]:
    """The documents of a manifest by kind, each checked against Kubernetes' schema."""
    found = {one["kind"]: one for one in yaml.safe_load_all(text)}
    for kind, document in found.items():
        jsonschema.validate(document, {**SCHEMA, **SCHEMA["kinds"][kind]}, jsonschema.Draft202012Validator)
    return found


def pod_of(text: str) -> Any:
    return documents(text)["Job"]["spec"]["template"]["spec"]


def test_the_schema_refuses_an_unknown_field() -> None:
    with pytest.raises(jsonschema.ValidationError, match="restartPolice"):
        documents(made("kubernetes").replace("restartPolicy", "restartPolice"))


def test_exit_code_75_starts_a_new_pod_and_uses_up_no_try() -> None:
    spec = documents(made("kubernetes"))["Job"]["spec"]
    rules = [(rule["action"], rule.get("onExitCodes", {}).get("values")) for rule in spec["podFailurePolicy"]["rules"]]
    assert rules == [("FailJob", [2]), ("Ignore", [75, 143]), ("Ignore", None)]
    assert spec["podFailurePolicy"]["rules"][2]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"  # Kubernetes demands it beside a podFailurePolicy
    assert spec["podReplacementPolicy"] == "Failed" and spec["backoffLimit"] > 0
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 90
    names = [container["name"] for container in spec["template"]["spec"]["containers"]]
    assert names == [rule["onExitCodes"]["containerName"] for rule in spec["podFailurePolicy"]["rules"][:1]]


def test_the_arena_is_in_memory_and_counted_into_the_request() -> None:
    pod = pod_of(made("kubernetes"))
    [arena] = [volume["emptyDir"] for volume in pod["volumes"] if "emptyDir" in volume]
    assert arena == {"medium": "Memory", "sizeLimit": "512Mi"}
    [container] = pod["containers"]
    assert container["resources"]["limits"] == container["resources"]["requests"] == {"cpu": "4", "memory": "2048Mi"}
    assert {"name": "arena", "mountPath": "/dev/shm"} in container["volumeMounts"]
    assert container["command"][:4] == ["elastichost", "run", JOB, "--run-dir"] and "--continue" in container["command"]


def test_volumes() -> None:
    found = documents(made("kubernetes"))
    assert found["PersistentVolumeClaim"]["metadata"]["name"] == "shop-run"
    assert found["PersistentVolumeClaim"]["spec"]["resources"]["requests"]["storage"] == "5Gi"
    destination = Destination(
        run_dir="/checkpoints/shop", working_directory="/", program="elastichost", image="x", namespace="ads",
        run_claim="kept", mounts=(DataVolume("clicks", "/data"),),
    )  # fmt: skip
    found = documents(made("kubernetes", destination=destination))
    assert "PersistentVolumeClaim" not in found
    assert {document["metadata"]["namespace"] for document in found.values()} == {"ads"}
    pod = found["Job"]["spec"]["template"]["spec"]
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"][2:]]
    assert claims == ["kept", "clicks"]
    assert [mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"][2:]] == ["/checkpoints", "/data"]


@pytest.mark.parametrize(
    "text", ["a\n", "a", "\n\n  two\n\n", " \n", "", "\ttab\n", "\u00e4\r\n", "a: |\n  b\n---\n", "x\n\n\n", "a\x7fb"]
)
def test_a_config_map_holds_each_text_as_it_is(text: str) -> None:
    found = documents(made("kubernetes", files={"job.toml": text}))
    assert found["ConfigMap"]["data"] == {"job.toml": text}


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_a_config_map_holds_any_text(text: str) -> None:
    [config_map, *_] = yaml.safe_load_all(made("kubernetes", files={"job.toml": text}))
    assert config_map["data"] == {"job.toml": text}


def test_the_source_of_the_model_lies_where_its_job_file_says() -> None:
    found = documents(made("kubernetes"))
    pod = found["Job"]["spec"]["template"]["spec"]
    [items] = [volume["configMap"]["items"] for volume in pod["volumes"] if "configMap" in volume]
    assert {item["path"]: found["ConfigMap"]["data"][item["key"]] for item in items} == FILES
    assert pod["containers"][0]["workingDir"] == "/elastichost/job/source"
    with pytest.raises(ConfigError, match="ConfigMap holds 1 MiB"):
        made("kubernetes", files={"job.toml": "x" * (MOST_CONFIG_MAP_BYTES + 1)})


def test_gpus_and_several_nodes() -> None:
    found = documents(made("kubernetes", GPUS_ON_NODES))
    spec = found["Job"]["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    assert spec["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    assert found["Service"]["metadata"]["name"] == spec["template"]["spec"]["subdomain"] == "shop"
    assert found["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteMany"]
    [container] = spec["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert "--on ray" in container["command"][2]
    assert_bash(container["command"][2])


def assert_bash(text: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr


@pytest.mark.parametrize("request_", [REQUEST, GPUS_ON_NODES], ids=["one", "nodes"])
def test_a_script_for_slurm(request_: NodeRequest) -> None:
    destination = Destination(
        run_dir="/home/me/my runs/shop", working_directory="/home/me/it's", program="/opt/py/bin/python -m elastichost",
        programs="/opt/py/bin", partition="long", account="ads",
    )  # fmt: skip
    text = made("slurm", request_, destination, words=["/home/me/a b.toml", "--set", "job.name=x"], files={})
    assert_bash(text)
    options = [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]
    assert {"--mem=2048M", f"--cpus-per-task={request_.cores}", f"--nodes={request_.nodes}"} <= set(options)
    assert {"--requeue", "--signal=B:TERM@90", "--partition=long", "--account=ads"} <= set(options)
    assert ("--gpus-per-node=2" in options) == (request_.gpus == 2)
    assert ("--time=120" in options) == (request_.minutes > 0)
    [line] = [line for line in text.splitlines() if " --run-dir " in line]
    assert shlex.split(line)[:8] == [
        "/opt/py/bin/python", "-m", "elastichost", "run", "/home/me/a b.toml", "--set", "job.name=x", "--run-dir"
    ]  # fmt: skip
    text = made("slurm", destination=Destination(run_dir="/r", working_directory="/", program="e", time_limit="1-0"))
    assert "#SBATCH --time=1-0\n" in text and "--time=120" not in text


def test_a_script_for_ray_is_python_that_holds_the_files() -> None:
    text = made("ray", GPUS_ON_NODES, words=["../job.toml"])
    values: dict[str, Any] = {"__name__": "read"}
    body = "\n".join(line for line in text.splitlines() if not line.startswith("from ray"))
    exec(body.replace(": JobSubmissionClient", ""), values)
    assert values["FILES"] == FILES and values["STOPPED"] == [75, 143]
    assert values["RESOURCES"] == {
        "entrypoint_num_cpus": 8, "entrypoint_num_gpus": 2, "entrypoint_memory": 2048 * MIB
    }  # fmt: skip
    assert values["COMMAND"].startswith("cd source && elastichost run ../job.toml") and "--on ray" in values["COMMAND"]


def test_names_and_mounts() -> None:
    assert name_for_kubernetes("my-shop-v2") == "my-shop-v2"
    assert name_for_kubernetes("My_Shop.v2").startswith("my-shop-v2-")
    assert name_for_kubernetes("7up-" + "x" * 80).startswith("job-7up-" + "x" * 39 + "-")
    assert parse_mount("clicks:/data/") == DataVolume("clicks", "/data")
    for wrong in ("clicks", "clicks:data", ":/data", "Clicks:/data"):
        with pytest.raises(ConfigError, match="CLAIM:PATH"):
            parse_mount(wrong)


NAMES = ["clicks-2026-sweep-of-learning-rates-and-dimensions-lr-0.001", "clicks_v1", "7", "x" * 54, "x" * 55, "a-"]
OTHERS = ["clicks-2026-sweep-of-learning-rates-and-dimensions-lr-0.010", "Clicks.v1", "job-7", "x" * 64, "x" * 56, "a"]


def test_different_jobs_have_different_names_in_kubernetes() -> None:
    """Otherwise `kubectl apply` of the second job would overwrite the objects of the first one."""
    names = [name_for_kubernetes(name) for name in (*NAMES, *OTHERS)]
    assert len(set(names)) == len(names)
    for name in names:
        assert len(name) <= 54 and re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name), name


def test_keys_of_a_config_map_are_valid_and_differ() -> None:
    paths = ["job.toml", "source/my model.py", "source/my_model.py", "source/my+model.py", "source/\u00e4\U0001f600.py",
             "source/a/b.py", "source/a.b.py", "source/" + "x" * 240 + ".py"]  # fmt: skip
    files = {path: f"# {path}\n" for path in paths}
    found = documents(made("kubernetes", files=files))
    data = found["ConfigMap"]["data"]
    assert all(re.fullmatch(r"[-._a-zA-Z0-9]{1,253}", key) for key in data), list(data)
    volumes = found["Job"]["spec"]["template"]["spec"]["volumes"]
    [items] = [volume["configMap"]["items"] for volume in volumes if "configMap" in volume]
    assert {item["path"]: data[item["key"]] for item in items} == files
