"""The mapped arena: created once, attached anywhere, views of the right shape."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from elastichost.arena.arena import Arena
from elastichost.arena.layout import plan_layout
from elastichost.arena.tables.bucket_space import allocate_bucket
from elastichost.errors import ArenaError, ArenaFullError
from elastichost.specs import ModelSpec

MakeModel = Callable[..., ModelSpec]
MakeArena = Callable[..., Arena]


def test_attached_arenas_share_rows(make_model: MakeModel, make_arena: MakeArena) -> None:
    arena = make_arena(make_model(rows=(2000, 0), dims=(6, 1)))
    with Arena.attach(arena.directory) as other:
        assert other.layout == arena.layout
        arena.rows_view(0)[1999, 3] = 2.5
        assert other.rows_view(0)[1999, 3] == 2.5
        assert other.rows_flat[other.layout.rows_offset(0) + 1999 * 8 + 3] == 2.5


@pytest.mark.parametrize(("optimizer", "shape"), [("sgd", None), ("adagrad", (2000, 8)), ("rowwise_adagrad", (2000,))])
def test_views_have_the_optimizers_shape(
    make_model: MakeModel, make_arena: MakeArena, optimizer: str, shape: tuple[int, ...] | None
) -> None:
    arena = make_arena(make_model(rows=(2000,), dims=(6,), optimizer=optimizer))
    state = arena.state_view(0)
    assert (None if state is None else state.shape) == shape
    assert arena.rows_view(0).shape == (2000, 8)


def test_an_arena_is_sparse_and_private(make_model: MakeModel, make_arena: MakeArena) -> None:
    arena = make_arena(make_model(rows=(0, 0), dims=(64,)), memory_bytes=1 << 34)
    assert arena.layout.files.total > 1 << 33
    assert arena.touched_bytes() < 1 << 20
    for name in ("rows", "state", "ids", "seen", "index", "control", "dense", "LAYOUT.json"):
        assert (arena.directory / name).stat().st_mode & 0o777 == 0o600


def test_fixed_tables_are_allocated_ahead(make_model: MakeModel, make_arena: MakeArena) -> None:
    arena = make_arena(make_model(rows=(10_000,), dims=(16,)))
    assert arena.touched_bytes() >= 10_000 * (16 + 1) * 4
    assert arena.layout.fixed_bytes == pytest.approx(arena.touched_bytes(), rel=0.05)


def test_too_little_memory_is_reported_before_a_file_is_made(tmp_path: Path, make_model: MakeModel) -> None:
    layout = plan_layout(make_model(rows=(1 << 38,), dims=(4,)), 0, 1 << 30)
    with pytest.raises(ArenaFullError, match=f"need {layout.fixed_bytes} bytes"):
        Arena.create(tmp_path, layout)
    assert list(tmp_path.iterdir()) == []


def test_an_arena_that_begins_without_rows_needs_no_room_for_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make_model: MakeModel
) -> None:
    """As the replica of another machine's arena, which never has rows. A bucket's rows are checked when they come."""
    layout = plan_layout(make_model(rows=(1 << 20,), dims=(4,)), 0, 1 << 30)
    assert layout.bytes_without_rows < layout.fixed_bytes / 10
    monkeypatch.setattr("elastichost.arena.arena.free_bytes", lambda path: layout.bytes_without_rows - 1)
    with pytest.raises(ArenaFullError, match=f"headers and the dense part need {layout.bytes_without_rows} bytes"):
        Arena.create(tmp_path, layout, whole=False)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("elastichost.arena.arena.free_bytes", lambda path: layout.fixed_bytes - 1)
    with pytest.raises(ArenaFullError, match="the fixed tables"):
        Arena.create(tmp_path, layout)
    with Arena.create(tmp_path, layout, whole=False) as arena:
        assert arena.touched_bytes() == pytest.approx(layout.bytes_without_rows, abs=1 << 16)

        def is_full(*_: object) -> NoReturn:
            raise OSError(errno.ENOSPC, "no space")

        monkeypatch.setattr(os, "posix_fallocate", is_full)
        with pytest.raises(ArenaFullError, match="bucket 3 of table"):
            allocate_bucket(arena, 0, 3)


def test_a_layout_that_cannot_be_written_is_an_arena_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make_model: MakeModel
) -> None:
    def is_full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(Path, "write_bytes", is_full)
    with pytest.raises(ArenaError, match=f"cannot write {tmp_path}/LAYOUT.json"):
        Arena.create(tmp_path, plan_layout(make_model(), 0, 1 << 24))


def test_a_directory_without_a_valid_arena_is_refused(tmp_path: Path, make_arena: MakeArena) -> None:
    with pytest.raises(ArenaError, match="not an arena"):
        Arena.attach(tmp_path)
    arena = make_arena()
    os.truncate(arena.directory / "seen", 4096)
    with pytest.raises(ArenaError, match="the layout requires"):
        Arena.attach(arena.directory)


def test_creating_twice_is_refused(make_arena: MakeArena) -> None:
    arena = make_arena()
    with pytest.raises(ArenaError, match="cannot open"):
        Arena.create(arena.directory, arena.layout)


def test_views_outlive_close(make_model: MakeModel, make_arena: MakeArena) -> None:
    arena = make_arena(make_model(rows=(100,)))
    view = arena.rows_view(0)
    arena.close()
    del arena
    gc.collect()
    view[0, 0] = 1.0
    assert view[0, 0] == 1.0


def test_fixed_tables_have_no_index(make_model: MakeModel, make_arena: MakeArena) -> None:
    arena = make_arena(make_model(rows=(100,)))
    keys = np.zeros(1, np.int64)
    for ask in (lambda: arena.lookup(0, keys, keys), lambda: arena.ids_view(0), lambda: arena.index_place(0)):
        with pytest.raises(ArenaError, match="'table_0' has a fixed size"):
            ask()


def test_a_new_dynamic_table_has_no_keys(make_model: MakeModel, make_arena: MakeArena) -> None:
    arena = make_arena(make_model(rows=(0,)))
    out = np.zeros(3, np.int64)
    assert arena.lookup(0, np.array([1, 2, 3]), out) == 3
    assert out.tolist() == [-1, -1, -1]
    with pytest.raises(ValueError, match="2 elements for 3 keys"):
        arena.lookup(0, np.array([1, 2, 3]), out[:2])


def huge_page_ranges(path: Path) -> list[int]:
    """Sizes in bytes of the mappings of the file that ask for huge pages."""
    sizes, first = [], 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            start, stop = (int(edge, 16) for edge in words[0].split("-"))
            first = stop - start if words[-1] == str(path) else 0
        elif words[0] == "VmFlags:" and first and "hg" in words:
            sizes.append(first)
    return sizes


def test_large_fixed_tables_ask_for_huge_pages(make_model: MakeModel, make_arena: MakeArena) -> None:
    arena = make_arena(make_model(rows=(300_000, 100, 0), dims=(16,)))
    # The large table has 19.2 MB at the beginning of the file, which is nine whole huge pages. The small table and the
    # dynamic one ask for none.
    assert huge_page_ranges(arena.directory / "rows") == [9 << 21]
    assert huge_page_ranges(arena.directory / "state") == []
