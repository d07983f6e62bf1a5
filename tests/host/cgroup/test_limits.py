"""The limits of a process' own cgroup and of those around it, in a file tree that stands for the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.host.cgroup.limits import CgroupLimits, cgroup_limits

GIB = 1 << 30


class Tree:
    """A mount of version 2 with the groups /a and /a/b, and a process in /a/b."""

    def __init__(self, at: Path, own: str = "/a/b") -> None:
        self.root, self.proc, self.usual = at / "root", at / "proc", at / "version_1"
        (self.root / "a" / "b").mkdir(parents=True)
        self.proc.mkdir()
        self.usual.mkdir()
        (self.proc / "cgroup").write_text(f"0::{own}\n")
        (self.proc / "mountinfo").write_text(f"42 31 0:39 / {self.root} rw - cgroup2 cgroup2 rw\n")

    def has(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def limits(self) -> CgroupLimits:
        return cgroup_limits(self.proc, self.usual)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_limit_of_the_group_around_the_own_one_holds(tree: Tree) -> None:
    tree.has("a/memory.max", str(8 * GIB))
    tree.has("a/b/memory.max", "max")
    tree.has("a/cpu.max", "350000 100000")
    tree.has("a/b/cpu.max", "max 100000")
    assert tree.limits() == CgroupLimits(8 * GIB, 3)


def test_the_least_limit_holds(tree: Tree) -> None:
    for name, memory, quota in (("", 16, 800000), ("a/", 4, 400000), ("a/b/", 8, 50000)):
        tree.has(f"{name}memory.max", str(memory * GIB))
        tree.has(f"{name}cpu.max", f"{quota} 100000")
    assert tree.limits() == CgroupLimits(4 * GIB, 0)


def test_limits_of_other_groups_do_not_hold(tree: Tree) -> None:
    tree.has("other/memory.max", "1000")
    tree.has("a/b/below/memory.max", "1000")
    assert tree.limits() == CgroupLimits()


def test_version_1_is_read_at_its_usual_place(tree: Tree) -> None:
    (tree.usual / "memory").mkdir()
    (tree.usual / "cpu").mkdir()
    (tree.usual / "memory" / "memory.limit_in_bytes").write_text(f"{2 * GIB}\n")
    (tree.usual / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    (tree.usual / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert tree.limits() == CgroupLimits(2 * GIB)
    (tree.usual / "cpu" / "cpu.cfs_quota_us").write_text("200000\n")
    assert tree.limits() == CgroupLimits(2 * GIB, 2)
    (tree.usual / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")  # no limit, as version 1 says
    assert tree.limits() == CgroupLimits(None, 2)


def test_version_2_is_read_at_its_usual_place_where_proc_tells_none(tree: Tree) -> None:
    (tree.proc / "mountinfo").unlink()
    (tree.usual / "memory.max").write_text(f"{GIB}\n")
    assert tree.limits() == CgroupLimits(GIB)
