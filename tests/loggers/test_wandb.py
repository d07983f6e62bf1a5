"""A run has one record at Weights & Biases, also when its logger has to be opened more than once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from elastichost.checkpoint.places import RUN_FILE, new_identity
from elastichost.config.job import make_job
from elastichost.loggers.logger import Opened
from elastichost.loggers.wandb import WandBLogger

Open = Callable[[str], WandBLogger]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids for which a record was asked. The first request arrives, and its answer is lost."""
    ids: list[str] = []

    def init(*, id: str, **_: object) -> SimpleNamespace:  # noqa: A002 - the name of the library
        ids.append(id)
        if len(ids) == 1:
            raise ConnectionError("the server went away")
        return SimpleNamespace(define_metric=lambda *_, **__: None)

    module = SimpleNamespace(init=init, Settings=lambda **_: None)
    monkeypatch.setitem(sys.modules, "wandb", module)
    return ids


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    (tmp_path / RUN_FILE).write_bytes(msgspec.json.encode(new_identity("shop", "00000000000000ab")))
    job = make_job({"model": {"build": "a:b"}, "data": {"format": "synthetic"}}, tmp_path, "j", environ={})
    return lambda key: WandBLogger(Opened(tmp_path, "run", job, key))


def test_a_start_that_failed_is_tried_again_with_the_same_id(asked: list[str], opened: Open) -> None:
    with pytest.raises(ConnectionError):
        opened("")
    assert opened("").key == "00000000000000ab"
    assert asked == ["00000000000000ab"] * 2


def test_a_resumed_run_continues_its_record(asked: list[str], opened: Open) -> None:
    asked.append("an earlier start")
    assert opened("chosen-before").key == "chosen-before"
