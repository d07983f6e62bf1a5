"""Where a job runs on a cluster, as the user names it: directories, image, partition, volumes."""

from __future__ import annotations

import re
from hashlib import sha256

import msgspec

from elastichost.errors import ConfigError

__all__ = ["DataVolume", "Destination", "name_for_kubernetes", "parse_mount", "short_hash"]

MOST_NAME = 54  # Kubernetes allows 63 characters, of which it takes some for the names of pods


class DataVolume(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A volume with data: an existing PersistentVolumeClaim, and the directory where the job sees it."""

    claim: str
    path: str


class Destination(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """run_dir: absolute, on storage that every node of the cluster reaches. working_directory: from where modules of
    the model are imported. program: how elastichost is called there. programs: the
    directory with `python` and `ray`; "": they are in PATH. image, namespace, run_claim, mounts: of
    Kubernetes; run_claim "": a new claim is made. partition, account, time_limit: of Slurm; time_limit "": the
    predicted one. ray_address: of Ray's job server; "":
    that of the variable RAY_ADDRESS."""

    run_dir: str
    working_directory: str
    program: str
    programs: str = ""
    image: str = ""
    namespace: str = ""
    run_claim: str = ""
    mounts: tuple[DataVolume, ...] = ()
    partition: str = ""
    account: str = ""
    time_limit: str = ""
    ray_address: str = ""


def name_for_kubernetes(name: str) -> str:
    """The name of a job as a label of DNS: lower case letters, digits and hyphens, at most MOST_NAME of them. A name
    that is not such a label gets a hash: otherwise another job could have the same label, and `kubectl apply` would
    overwrite its objects."""
    kept = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    label = kept if kept and kept[0].isalpha() else f"job-{kept}".rstrip("-")
    if label == name and len(label) <= MOST_NAME:
        return label
    suffix = f"-{short_hash(name)}"
    return label[: MOST_NAME - len(suffix)].rstrip("-") + suffix


def short_hash(text: str) -> str:
    """The first 6 hex digits of the SHA-256 of a text: tells apart texts that are shortened or have characters
    replaced."""
    return sha256(text.encode()).hexdigest()[:6]


def parse_mount(text: str) -> DataVolume:
    """Parses CLAIM:PATH. Raises ConfigError."""
    claim, _, path = text.partition(":")
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", claim) or not path.startswith("/"):
        raise ConfigError(
            f"--mount {text}: this is not CLAIM:PATH with an absolute path", hint="for example --mount clicks:/data"
        )
    return DataVolume(claim, path.rstrip("/") or "/")
