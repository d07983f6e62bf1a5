"""Options of `plan JOB --for`, as the verb declares them and as one value."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import msgspec
import typer

from elastichost.errors import ConfigError

__all__ = [
    "AccountOption",
    "ClaimOption",
    "ClusterName",
    "ClusterOptions",
    "CoresOption",
    "ForOption",
    "GpusOption",
    "ImageOption",
    "MountOption",
    "NamespaceOption",
    "NodesOption",
    "NoticeOption",
    "OutputOption",
    "PartitionOption",
    "ProgramOption",
    "RayAddress",
    "RunDirOption",
    "TimeOption",
    "check_options",
    "options_of",
]


class ClusterName(StrEnum):
    """A system that starts jobs on a cluster."""

    KUBERNETES = "kubernetes"
    SLURM = "slurm"
    RAY = "ray"


ForOption = Annotated[
    ClusterName | None,
    typer.Option("--for", help="Write what starts the job on a cluster: manifests, a batch script, a submission."),
]
OutputOption = Annotated[str, typer.Option("--output", metavar="FILE|-", help="With --for: where it is written.")]
RunDirOption = Annotated[
    str,
    typer.Option(
        "--run-dir",
        metavar="DIR",
        help="With --for: the run directory, on storage that every node reaches. Default: runs/JOB here; "
        "kubernetes: /runs/JOB.",
    ),
]
CoresOption = Annotated[
    int, typer.Option("--cores", min=0, help="With --for: cores of a node for the job. 0: as many as the plan uses.")
]
GpusOption = Annotated[
    int, typer.Option("--gpus", min=0, help="With --for and a job with GPUs: GPUs of a node. 0: as the job file asks.")
]
NodesOption = Annotated[
    int, typer.Option("--nodes", min=1, max=16, help="With --for: nodes; more than 1 need elastichost[ray] there.")
]
TimeOption = Annotated[
    str,
    typer.Option("--time", metavar="TIME", help="With --for slurm: the time limit. Default: predicted, if it can be."),
]
NoticeOption = Annotated[
    int,
    typer.Option(
        "--notice",
        metavar="SECONDS",
        min=0,
        help="With --for: time for a checkpoint before the end. 0: by size.",
    ),
]
ImageOption = Annotated[
    str, typer.Option("--image", help="With --for kubernetes: the image, which contains elastichost.")
]
NamespaceOption = Annotated[str, typer.Option("--namespace", help="With --for kubernetes: the namespace.")]
ClaimOption = Annotated[
    str,
    typer.Option(
        "--run-claim",
        metavar="CLAIM",
        help="With --for kubernetes: the PersistentVolumeClaim of the run directory. Default: a new one.",
    ),
]
MountOption = Annotated[
    list[str],
    typer.Option(
        "--mount",
        metavar="CLAIM:PATH",
        help="With --for kubernetes: mount a PersistentVolumeClaim with data at this path; repeatable.",
    ),
]
PartitionOption = Annotated[str, typer.Option("--partition", help="With --for slurm: the partition.")]
AccountOption = Annotated[str, typer.Option("--account", help="With --for slurm: the account.")]
ProgramOption = Annotated[
    str,
    typer.Option(
        "--program",
        metavar="COMMAND",
        help="With --for: how elastichost is called there. Default: the Python of this environment; kubernetes: "
        "elastichost.",
    ),
]
RayAddress = Annotated[
    str,
    typer.Option("--ray-address", metavar="ADDRESS", help="With --for ray: the job server, http://HEAD:8265."),
]


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The values of the options; see their help."""

    output: str = "-"
    run_dir: str = ""
    cores: int = 0
    gpus: int = 0
    nodes: int = 1
    time: str = ""
    notice: int = 0
    image: str = ""
    namespace: str = ""
    run_claim: str = ""
    mount: list[str] = []
    partition: str = ""
    account: str = ""
    program: str = ""
    ray_address: str = ""


ONLY_FOR = {
    "time": ClusterName.SLURM,
    "partition": ClusterName.SLURM,
    "account": ClusterName.SLURM,
    "image": ClusterName.KUBERNETES,
    "namespace": ClusterName.KUBERNETES,
    "run_claim": ClusterName.KUBERNETES,
    "mount": ClusterName.KUBERNETES,
    "ray_address": ClusterName.RAY,
}


def options_of(parameters: Mapping[str, object]) -> ClusterOptions:
    """The values in the parameters of the verb."""
    given = {name: parameters[name] for name in ClusterOptions.__struct_fields__}
    return msgspec.convert(given, ClusterOptions)


def check_options(cluster: ClusterName | None, options: ClusterOptions, *, as_json: bool) -> None:
    """Raises ConfigError for options that the cluster has no use for, and for a missing one."""
    default = ClusterOptions()
    given = [name for name in options.__struct_fields__ if getattr(options, name) != getattr(default, name)]
    if cluster is None:
        if given:
            raise ConfigError(f"{_shown(given[0])} needs --for", hint="add --for kubernetes, slurm or ray")
        return
    if as_json:
        raise ConfigError("--json and --for exclude each other", hint="use only one of these options")
    try:
        shlex.split(options.program)
    except ValueError as error:
        raise ConfigError(f"--program {options.program!r} is no command ({error})", hint="close its quotes") from None
    if wrong := [name for name in given if ONLY_FOR.get(name, cluster) != cluster]:
        raise ConfigError(
            f"{_shown(wrong[0])} is an option for {ONLY_FOR[wrong[0]].value}, not for {cluster.value}",
            hint="leave it out",
        )
    if cluster is ClusterName.KUBERNETES and not options.image:
        raise ConfigError(
            "--for kubernetes needs --image", hint="docs/how-to/clusters.md says how to build an image with elastichost"
        )


def _shown(name: str) -> str:
    return "--" + name.replace("_", "-")
