"""`elastichost serve` and `export` on the command line, as far as they need no server that runs."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from elastichost.cli import results
from tests.cli.conftest import Elastichost


def test_a_directory_without_an_export_is_refused(elastichost: Elastichost, tmp_path: Path) -> None:
    outcome = elastichost("serve", str(tmp_path), "--port", "0")
    assert outcome.code == 2
    assert f"{tmp_path} is not an export" in outcome.stderr.replace("\n", "")
    assert "elastichost export RUN DIR" in outcome.stderr


def test_an_export_of_another_version_is_refused(elastichost: Elastichost, tmp_path: Path) -> None:
    (tmp_path / "preprocess.json").write_text('{"schema": "elastichost/export/v1"}')
    outcome = elastichost("serve", str(tmp_path), "--port", "0")
    assert outcome.code == 2
    assert "export the run again" in outcome.stderr


def test_a_port_in_use_is_named(elastichost: Elastichost, tmp_path: Path) -> None:
    (tmp_path / "preprocess.json").write_text('{"schema": "elastichost/export/v2"}')
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        outcome = elastichost("serve", str(tmp_path), "--port", str(port))
    assert outcome.code == 3
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in outcome.stderr
    assert "--port 0" in outcome.stderr


def test_a_missing_extra_says_how_to_install_it(
    elastichost: Elastichost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "find_spec", lambda name: None if name == "uvicorn" else object())
    outcome = elastichost("serve", str(tmp_path))
    assert outcome.code == 3
    assert "uvicorn is not installed" in outcome.stderr
    assert "pip install 'elastichost[serve]'" in outcome.stderr


def test_an_unknown_format_of_an_export_is_refused(elastichost: Elastichost, tmp_path: Path) -> None:
    outcome = elastichost("export", str(tmp_path), str(tmp_path / "model"), "--format", "onnx")
    assert outcome.code == 2
    assert "onnx" in outcome.stderr


@pytest.mark.parametrize(("max_body_mib", "buffered_mib"), [(8, 256), (512, 1024)])
def test_a_body_of_the_largest_size_has_room(
    elastichost: Elastichost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_body_mib: int, buffered_mib: int
) -> None:
    """One that is alone on the server would be refused, because too many bodies are being received."""
    from elastichost.serving import server
    from elastichost.serving.settings import MIB, ServeSettings

    given: list[ServeSettings] = []
    monkeypatch.setattr(server, "serve", lambda settings, announce: given.append(settings))
    assert elastichost("serve", str(tmp_path), "--max-body-mib", str(max_body_mib)).code == 0
    [settings] = given
    assert (settings.max_body_bytes, settings.buffered_bytes) == (max_body_mib * MIB, buffered_mib * MIB)
