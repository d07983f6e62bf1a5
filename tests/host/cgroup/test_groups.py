"""Where a cgroup is visible, and which groups are around it."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from elastichost.host.cgroup.groups import Mount, group_directory, groups_around, mounted, own_path

MOUNTS = r"""
23 1 0:21 / / rw - ext4 /dev/root rw
31 23 0:28 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs rw
41 31 0:38 / /sys/fs/cgroup/unified rw shared:3 master:1 - cgroup2 cgroup2 rw
42 31 0:39 /user.slice/a\040b /mnt/my\040groups rw - cgroup2 cgroup2 rw
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
"""


def test_mounts_are_found_by_their_type() -> None:
    assert mounted(MOUNTS, "cgroup2") == (
        Mount(PurePosixPath("/sys/fs/cgroup/unified"), "/"),
        Mount(PurePosixPath("/mnt/my groups"), "/user.slice/a b"),
    )
    assert mounted(MOUNTS, "resctrl") == ()


@pytest.mark.parametrize(
    ("root", "own", "shown"),
    [
        ("/", "/", "/m"),
        ("/", "/user.slice/x.scope", "/m/user.slice/x.scope"),
        ("/docker/1", "/docker/1", "/m"),
        ("/docker/1", "/docker/1/a", "/m/a"),
        ("/docker/1", "/docker/10", None),
        ("/docker/1", "/", None),
        ("/../..", "/a", None),
    ],
)
def test_a_group_has_a_directory_below_a_mount_of_its_hierarchy(root: str, own: str, shown: str | None) -> None:
    found = group_directory(Mount(PurePosixPath("/m"), root), own)
    assert found == (None if shown is None else PurePosixPath(shown))


def test_the_own_group_is_that_of_version_2() -> None:
    assert own_path("9:name=systemd:/\n4:memory:/a\n0::/user.slice/x.scope\n") == "/user.slice/x.scope"
    assert own_path("4:memory:/a\n") is None


def test_the_groups_around_a_group_end_at_the_point_of_the_mount() -> None:
    shown = ["/mnt/my groups/x/y", "/mnt/my groups/x", "/mnt/my groups"]
    below = "\n".join(line for line in MOUNTS.splitlines() if "my" in line)
    assert groups_around(below, "4:memory:/q\n0::/user.slice/a b/x/y\n") == tuple(map(PurePosixPath, shown))
    assert groups_around(below, "0::/user.slice/a b") == (PurePosixPath("/mnt/my groups"),)


def test_the_points_of_the_mounts_stand_for_a_group_that_is_not_visible() -> None:
    """As in a container that sees the mount of its host, and another namespace."""
    below = "42 31 0:39 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
    assert groups_around(below, "0::/") == (PurePosixPath("/sys/fs/cgroup"),)
    assert groups_around(below, "4:memory:/q") == (PurePosixPath("/sys/fs/cgroup"),)
    assert groups_around("", "0::/") == ()
