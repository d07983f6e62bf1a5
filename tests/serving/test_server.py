"""A server under load: a full queue, newer exports, broken ones, SIGTERM."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from elastichost.results.export import export
from elastichost.results.reader import Scorer
from elastichost.serving import server
from tests.results.conftest import HandMadeRun, make_run
from tests.results.test_results_export import OWN_LAYERS, OWN_MODEL
from tests.serving.server_process import ServerProcess, served, wait_for

Rows = list[dict[str, Any]]


class Clients:
    """Threads that ask one after another without a pause. answers: (status, scores) of every request."""

    def __init__(self, server: ServerProcess, rows: Rows, count: int) -> None:
        self.answers: list[tuple[int, tuple[float, ...]]] = []
        self.failures: list[Exception] = []
        self._server, self._rows = server, rows
        self._end = threading.Event()
        self.threads = [threading.Thread(target=self._ask) for _ in range(count)]

    def _ask(self) -> None:
        with httpx.Client(base_url=self._server.url, timeout=60) as client:
            while not self._end.is_set():
                try:
                    answer = client.post("/predict", json={"rows": self._rows})
                    self.answers.append((answer.status_code, tuple(answer.json().get("scores", ()))))
                except (httpx.HTTPError, ValueError) as error:
                    self.failures.append(error)

    def end(self) -> None:
        self._end.set()
        for thread in self.threads:
            thread.join()


@contextmanager
def asking(server: ServerProcess, rows: Rows, count: int = 4) -> Iterator[Clients]:
    clients = Clients(server, rows, count)
    for thread in clients.threads:
        thread.start()
    try:
        yield clients
    finally:
        clients.end()


def ask_together(server: ServerProcess, rows: Rows, count: int) -> tuple[list[threading.Thread], list[httpx.Response]]:
    """Sends requests from threads of their own. Returns the threads and the list that the answers are added to."""
    answers: list[httpx.Response] = []

    def ask() -> None:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            answers.append(client.post("/predict", json={"rows": rows}))

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads, answers


def switch(link: Path, target: Path) -> None:
    """Lets the link lead to another export, in one step."""
    fresh = link.with_name(f"{link.name}.new")
    fresh.symlink_to(target)
    fresh.rename(link)


def scores_of(directory: Path, run: HandMadeRun) -> Any:
    scorer = Scorer(directory)
    return scorer.scores(scorer.preprocessor.prepare(run.table))


def test_a_full_queue_answers_503(program: Path, tmp_path: Path, rows: Rows) -> None:
    with served(program, tmp_path, {"queue": 3, "max-delay-ms": 4000}) as server:
        threads, answers = ask_together(server, rows, 3)
        wait_for(lambda: server.metric("in_flight") == 3, "three requests wait")
        refused = server.predict(rows)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy")
        assert refused.headers["retry-after"] == "1"
        for thread in threads:
            thread.join()
        assert [answer.status_code for answer in answers] == [200] * 3
        assert server.metric("batches_total") == 1
        assert server.metric("in_flight") == 0


def test_sigterm_finishes_the_requests_that_wait(
    program: Path, tmp_path: Path, rows: Rows, trained: HandMadeRun
) -> None:
    with served(program, tmp_path, {"max-delay-ms": 3000}) as server:
        threads, answers = ask_together(server, rows, 5)
        wait_for(lambda: server.metric("in_flight") == 5, "five requests wait")
        server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert server.process.wait(60) == -signal.SIGTERM
    assert [answer.status_code for answer in answers] == [200] * 5
    wanted = scores_of(program, trained)
    for answer in answers:
        np.testing.assert_allclose(answer.json()["scores"], wanted, rtol=0, atol=1e-6)


def test_sigterm_ends_an_idle_server_although_a_client_is_connected(program: Path, tmp_path: Path) -> None:
    with served(program, tmp_path) as server:
        server.health()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == -signal.SIGTERM


def test_a_link_is_followed_under_load_without_a_failed_request(
    program: Path, other_program: Path, tmp_path: Path, rows: Rows, trained: HandMadeRun
) -> None:
    link = tmp_path / "current"
    link.symlink_to(program)
    ids = [json.loads((one / "preprocess.json").read_text())["id"] for one in (program, other_program)]
    with served(link, tmp_path) as server:
        with asking(server, rows) as clients:
            for number, target in enumerate((other_program, program, other_program), start=1):
                before = len(clients.answers)
                switch(link, target)
                wait_for(lambda number=number: server.health()["reloads"] == number, "the newer export answers")
                assert server.health()["export"]["id"] == ids[number % 2]
                assert server.health()["export"]["directory"] == str(target)
                wait_for(lambda before=before: len(clients.answers) > before + 8, "answers after the reload")
        assert server.metric("reloads_total") == 3
        assert server.health()["reload_problem"] is None
    assert not clients.failures
    assert {status for status, _ in clients.answers} == {200}
    known = [scores_of(one, trained) for one in (program, other_program)]
    which = {int(np.argmin([np.abs(scores - one).max() for one in known])) for _, scores in clients.answers}
    worst = max(min(float(np.abs(scores - one).max()) for one in known) for _, scores in clients.answers)
    assert which == {0, 1}
    assert worst < 1e-6


def test_a_directory_that_is_replaced_is_loaded(program: Path, other_program: Path, tmp_path: Path) -> None:
    shutil.copytree(program, tmp_path / "model")
    shutil.copytree(other_program, tmp_path / "next")
    with served(tmp_path / "model", tmp_path) as server:
        (tmp_path / "model").rename(tmp_path / "old")
        (tmp_path / "next").rename(tmp_path / "model")
        wait_for(lambda: server.health()["reloads"] == 1, "the newer export answers")
        assert server.health()["export"]["id"] != server.export


def broken_exports(program: Path, folder: Path) -> Iterator[tuple[Path, str]]:
    """(an export that is broken in some way, what is said about it)."""
    for name, file, problem in (
        ("torn", "model.pt2", "cannot be loaded"),
        ("without_ids", "ids.safetensors", "cannot be loaded"),
        ("unreadable", "preprocess.json", "cannot be loaded"),
    ):
        broken = shutil.copytree(program, folder / name)
        content = (broken / file).read_bytes()
        (broken / file).write_bytes(content[: len(content) // 2])
        yield broken, problem
    old = shutil.copytree(program, folder / "old")
    (old / "preprocess.json").write_text((old / "preprocess.json").read_text().replace("export/v2", "export/v1"))
    yield old, "export the run again"
    (folder / "empty").mkdir()
    yield folder / "empty", "there is no export at"


def test_a_broken_export_is_reported_and_the_old_one_goes_on(
    program: Path, other_program: Path, tmp_path: Path, rows: Rows
) -> None:
    link = tmp_path / "current"
    link.symlink_to(program)
    with served(link, tmp_path) as server, asking(server, rows, count=2) as clients:
        for broken, problem in broken_exports(program, tmp_path):
            switch(link, broken)
            wait_for(lambda problem=problem: problem in (server.health()["reload_problem"] or ""), problem)
            health = server.health()
            assert (health["status"], health["export"]["id"], health["reloads"]) == ("ready", server.export, 0)
            assert server.predict(rows).status_code == 200
            switch(link, program)
            wait_for(lambda: server.health()["reload_problem"] is None, "the good export is back")
        switch(link, other_program)
        wait_for(lambda: server.health()["reloads"] == 1, "a good newer export answers")
        assert server.metric("failed_reloads_total") == 5
        assert "cannot be loaded" in server.errors.read_text()
    assert not clients.failures
    assert {status for status, _ in clients.answers} == {200}


def test_code_beside_a_model_is_not_mixed_with_that_of_another_export(tmp_path: Path, rows: Rows) -> None:
    """Both exports have a module `own_layers`, with different code."""
    directories = []
    for name, factor in (("first", "1.0"), ("second", "-1.0")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.py").write_text(OWN_MODEL, encoding="utf-8")
        layers = OWN_LAYERS.replace("x.sum(dim=1)", f"x.sum(dim=1) * {factor}")
        (tmp_path / name / "own_layers.py").write_text(layers, encoding="utf-8")
        run = make_run(tmp_path / name / "run", build=f"{tmp_path}/{name}/own.py:build", args="{}")
        directories.append(export(run.directory, tmp_path / name / "model").directory)
    link = tmp_path / "current"
    link.symlink_to(directories[0])
    with served(link, tmp_path) as server:
        first = server.predict(rows).json()["scores"]
        switch(link, directories[1])
        wait_for(lambda: server.health()["reloads"] == 1, "the newer export answers")
        second = server.predict(rows).json()["scores"]
    np.testing.assert_allclose(first, scores_of(directories[0], run), rtol=0, atol=1e-6)
    np.testing.assert_allclose(second, scores_of(directories[1], run), rtol=0, atol=1e-6)
    assert np.abs(np.subtract(first, second)).max() > 1e-3


TOUCHY = """\
import torch
from torchrec import EmbeddingBagCollection

class Touchy(torch.nn.Module):
    '''Fails for a price of 7 and has no finite score for one of 9. They reach it as log(1 + price).'''

    def __init__(self, tables):
        super().__init__()
        self.bags = EmbeddingBagCollection(tables=tables)

    def forward(self, dense, sparse):
        price = dense[:, 0].expm1().round()
        if (price == 7).any():
            raise ValueError("seven")
        return self.bags(sparse).values().sum(dim=1) + torch.where(price == 9, torch.nan, 0.0)

def build(tables, num_dense):
    return Touchy(tables)
"""


def test_rows_with_which_the_model_fails_harm_no_other_request_of_the_batch(tmp_path: Path, rows: Rows) -> None:
    (tmp_path / "touchy.py").write_text(TOUCHY, encoding="utf-8")
    run = make_run(tmp_path / "run", build=f"{tmp_path}/touchy.py:build", args="{}")
    directory = export(run.directory, tmp_path / "model").directory
    with served(directory, tmp_path, {"max-delay-ms": 3000}) as server:
        asked = [ask_together(server, [rows[0], {**rows[0], "price": price}], 1) for price in (1.0, 7.0, 9.0, 2.0)]
        wait_for(lambda: server.metric("in_flight") == 4, "four requests wait for each other")
        for threads, _ in asked:
            threads[0].join()
        good, failing, not_finite, also_good = (answers[0] for _, answers in asked)
        assert (good.status_code, also_good.status_code) == (200, 200)
        assert (failing.status_code, failing.json()["error"]["code"]) == (500, "model_failed")
        assert "ValueError: seven" in failing.json()["error"]["message"]
        assert (not_finite.status_code, not_finite.json()["error"]["row"]) == (500, 1)
        assert server.metric("in_flight") == 0


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_several_workers_share_a_port_and_end_together(
    program: Path, tmp_path: Path, rows: Rows, number: signal.Signals
) -> None:
    """Also if the process that started them is killed."""
    with served(program, tmp_path, {"workers": 2}) as server:
        assert server.predict(rows).status_code == 200
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
        assert len(children) >= 2
        server.process.send_signal(number)
        server.process.wait(60)
        wait_for(lambda: not any(os.path.exists(f"/proc/{child}") for child in children), "the workers are gone")


def test_nulls_are_refused_if_asked(program: Path, tmp_path: Path, rows: Rows) -> None:
    full = {**rows[0], "recent": [1], "price": 1.0}
    with served(program, tmp_path, {"refuse-nulls": True}) as server:
        assert server.predict([full]).status_code == 200
        for column, empty in (("price", None), ("user", None), ("recent", None), ("word", None), ("recent", [1, None])):
            answer = server.predict([full, {**full, column: empty}])
            error = answer.json()["error"]
            assert (answer.status_code, error["row"], error["column"]) == (422, 1, column)


def test_answers_are_sent_at_once() -> None:
    """asyncio turns Nagle's algorithm off only for sockets that name TCP; else a client waits 40 ms for each answer."""
    with server._bind("127.0.0.1", 0) as bound:
        assert bound.proto == socket.IPPROTO_TCP
