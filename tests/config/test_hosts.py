"""`hosts.toml`: its settings, the errors for wrong ones, and the resources of a job on several machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.config.hosts import hosts_of_addresses, load_hosts, read_hosts, with_hosts
from elastichost.config.job import load_job
from elastichost.errors import ConfigError

JOB = """
[job]
name = "small"
[model]
build = "elastichost.models:dlrm"
[data]
format = "synthetic"
synthetic = { rows = 1000, tables = 2, table_rows = 10, dense = 1 }
"""
TWO = """
timeout_s = 20.0
[supervisor]
address = "10.0.0.1"
[[hosts]]
address = "anna@10.0.0.2"
options = ["-p", "2222"]
[[hosts]]
address = "10.0.0.3"
name = "big"
interface = "10.1.0.3"
cores = 8
"""


def written(folder: Path, text: str, name: str = "hosts.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_file_of_hosts_is_read_and_kept_with_the_run(tmp_path: Path) -> None:
    hosts = load_hosts(written(tmp_path, TWO))
    assert [host.shown for host in hosts.hosts] == ["10.0.0.2", "big"]
    assert (hosts.supervisor.address, hosts.timeout_s, hosts.hosts[0].options) == ("10.0.0.1", 20.0, ("-p", "2222"))
    assert read_hosts(written(tmp_path, hosts.model_dump_json(), "hosts.json")) == hosts


def test_addresses_of_the_command_line_are_hosts() -> None:
    assert [host.address for host in hosts_of_addresses(("anna@a", "b")).hosts] == ["anna@a", "b"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "hosts: Field required"),
        ('[[hosts]]\nname = "a"', "address is missing"),
        ('[[hosts]]\naddress = "-oProxyCommand=true"', "is not the address of a host"),
        ('[[hosts]]\naddress = "a b"', "is not the address of a host"),
        ('[[hosts]]\naddress = "a"\n[[hosts]]\naddress = "x@a"', "several hosts have the name a"),
        ('[[hosts]]\naddress = "a"\ncolour = "red"', "colour"),
        ('[[hosts]]\naddress = "a"\ncores = "8"', "cores"),
        ("[[hosts", "is not valid TOML"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_hosts(written(tmp_path, text))
    assert problem in str(caught.value) and "hosts.toml" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml cannot be read"):
        load_hosts(tmp_path / "none.toml")


def test_an_emulated_job_stays_on_its_machine(tmp_path: Path) -> None:
    job = load_job(written(tmp_path, JOB + "[emulate]\nenabled = true\n", "job.toml"), environ={})
    with pytest.raises(ConfigError, match="runs on one machine"):
        with_hosts(job, hosts_of_addresses(("a",)))


@pytest.mark.parametrize(("setting", "servers"), [("", 3), ("[resources]\nservers = 1\n", 1)])
def test_a_job_has_a_ps_on_each_machine_unless_it_names_a_number(tmp_path: Path, setting: str, servers: int) -> None:
    job = load_job(written(tmp_path, JOB + setting, "job.toml"), environ={})
    spread = with_hosts(job, hosts_of_addresses(("a", "b")))
    assert (spread.resources.hosts, spread.resources.servers) == (3, servers)
