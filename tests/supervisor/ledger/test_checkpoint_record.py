"""The checkpoint that a run starts from is whole, also when the user names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastichost.checkpoint.places import named_source
from elastichost.errors import CheckpointError
from elastichost.supervisor.ledger.checkpoint_record import find_checkpoint
from tests.checkpoint.test_checkpoint_format import flip, write_checkpoint


def test_a_named_checkpoint_with_a_flipped_bit_is_refused_and_newer_ones_keep_their_names(tmp_path: Path) -> None:
    older, newer = (write_checkpoint(tmp_path, samples) for samples in (100, 200))
    assert find_checkpoint(named_source(older)).directory == older
    flip(older / "server-0.bin", 0)
    with pytest.raises(CheckpointError, match=r"server-0\.bin"):
        find_checkpoint(named_source(older))
    assert find_checkpoint(named_source(older), verify=False).directory == older, "only the manifest is read then"
    assert newer.is_dir()
    assert find_checkpoint(named_source(tmp_path)).directory == newer
