"""Answers to good and to bad requests, by a server that is a process of its own."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from elastichost.results.reader import Scorer
from elastichost.serving.arrow_rows import CONTENT_TYPE
from elastichost.serving.request_error import RequestError
from tests.results.conftest import HandMadeRun
from tests.serving.server_process import ServerProcess

Rows = list[dict[str, Any]]


def stream_of(table: pa.Table, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def post_arrow(server: ServerProcess, body: bytes) -> httpx.Response:
    return server.client.post("/predict", content=body, headers={"content-type": CONTENT_TYPE})


def wanted_scores(program: Path, table: pa.Table) -> Any:
    scorer = Scorer(program)
    return scorer.scores(scorer.preprocessor.prepare(table))


def changed(rows: Rows, number: int, **values: object) -> Rows:
    return [{**row, **(values if index == number else {})} for index, row in enumerate(rows)]


def test_json_and_arrow_have_the_scores_of_the_export(
    server: ServerProcess, program: Path, trained: HandMadeRun, rows: Rows
) -> None:
    wanted = wanted_scores(program, trained.table)
    answer = server.predict(rows)
    assert answer.status_code == 200
    np.testing.assert_allclose(answer.json()["scores"], wanted, rtol=0, atol=1e-6)
    answer = post_arrow(server, stream_of(trained.table))
    assert (answer.status_code, answer.headers["content-type"]) == (200, CONTENT_TYPE)
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.schema == pa.schema([("score", pa.float32())])
    np.testing.assert_allclose(table.column("score").to_numpy(), wanted, rtol=0, atol=1e-6)


def test_no_rows_have_no_scores(server: ServerProcess, trained: HandMadeRun) -> None:
    assert server.predict([]).json() == {"scores": []}
    answer = post_arrow(server, stream_of(trained.table.slice(0, 0)))
    assert pa.ipc.open_stream(answer.content).read_all().num_rows == 0


def test_health_names_the_export(server: ServerProcess, program: Path) -> None:
    about = json.loads((program / "preprocess.json").read_text())
    health = server.health()
    assert health["status"] == "ready"
    assert health["export"]["id"] == server.export == about["id"]
    assert health["export"]["directory"] == str(program)
    assert (health["reloads"], health["reload_problem"]) == (0, None)


def test_metrics_count(server: ServerProcess, rows: Rows) -> None:
    before = {name: server.metric(name) for name in ('requests_total{status="200"}', "rows_total", "batches_total")}
    server.predict(rows)
    after = {name: server.metric(name) for name in before}
    assert [after[name] - before[name] for name in before] == [1, 6, 1]
    assert server.metric("in_flight") == server.metric("buffered_bytes") == 0


WRONG_VALUES = [
    (1, "user", "7", "an integer id"),
    (1, "user", 7.0, "an integer id"),
    (2, "user", True, "an integer id"),
    (2, "user", [7], "an integer id"),
    (3, "user", 2**64, "an integer id"),
    (0, "code", 17, "a text id"),
    (0, "word", ["tee"], "a text id"),
    (4, "recent", 7, "a list of integer ids"),
    (4, "recent", ["7"], "a list of integer ids"),
    (4, "recent", [[7]], "a list of integer ids"),
    (5, "price", "1.5", "a number"),
    (5, "price", [1.5], "a number"),
    (5, "price", 10**400, "a number"),
    (5, "price", 1e300, "a number"),
]


@pytest.mark.parametrize(("number", "column", "value", "expected"), WRONG_VALUES)
def test_a_wrong_value_is_named(
    server: ServerProcess, rows: Rows, number: int, column: str, value: object, expected: str
) -> None:
    answer = server.predict(changed(rows, number, **{column: value}))
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert (error["code"], error["row"], error["column"], error["expected"]) == (
        "wrong_value",
        number,
        column,
        expected,
    )
    assert "value" in error
    assert column in error["message"]


@pytest.mark.parametrize("value", [2**63, 2**64 - 1, -(2**63)])
def test_integers_of_64_bits_are_ids(server: ServerProcess, rows: Rows, value: int) -> None:
    assert server.predict(changed(rows, 0, user=value)).status_code == 200
    assert server.predict(changed(rows, 0, recent=[value, None])).status_code == 200


def test_a_missing_column_is_named(server: ServerProcess, rows: Rows, trained: HandMadeRun) -> None:
    without = [dict(row) for row in rows]
    del without[3]["word"]
    error = server.predict(without).json()["error"]
    assert (error["code"], error["row"], error["column"], error["expected"]) == (
        "missing_column",
        3,
        "word",
        "a text id",
    )
    answer = post_arrow(server, stream_of(trained.table.drop_columns(["word"])))
    assert answer.status_code == 422
    assert answer.json()["error"]["column"] == "word"


def test_a_column_of_another_kind_in_arrow_is_named(server: ServerProcess, trained: HandMadeRun) -> None:
    table = trained.table.set_column(trained.table.column_names.index("code"), "code", pa.array([1] * 6))
    answer = post_arrow(server, stream_of(table))
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert (error["code"], error["column"], error["row"], error["value"]) == ("wrong_value", "code", 0, 1)


def test_a_list_of_many_nulls_is_refused_and_not_listed(server: ServerProcess, trained: HandMadeRun) -> None:
    """It takes a few bytes of the body."""
    nulls = pa.ListArray.from_arrays(pa.array([0, 500_000], pa.int32()), pa.nulls(500_000))
    place = trained.table.column_names.index("price")
    body = stream_of(trained.table.slice(0, 1).set_column(place, "price", nulls))
    assert len(body) < 10_000
    answer = post_arrow(server, body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["column"], error["row"]) == (422, "wrong_value", "price", 0)
    assert error["value"] == "[None, None, None, None, None, '...']"


@pytest.mark.parametrize("kind", ["list<bool>", "list<null>", "dictionary<bool>"])
def test_more_ids_than_json_could_hold_are_refused(server: ServerProcess, trained: HandMadeRun, kind: str) -> None:
    """An id takes a bit of the body or none, and eight bytes several times while it is prepared."""
    many = pa.nulls(7_000_000) if "null" in kind else pa.array(np.ones(7_000_000, dtype=np.bool_))
    if kind.startswith("list"):
        ids, column = pa.ListArray.from_arrays(pa.array([0, len(many)], pa.int32()), many), "recent"
    else:
        ids, column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), many), "user"
    place = trained.table.column_names.index(column)
    body = stream_of(trained.table.slice(0, 1).set_column(place, column, ids))
    assert len(body) < 1 << 20
    answer = post_arrow(server, body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


def test_columns_that_the_model_does_not_use_may_have_any_type(server: ServerProcess, trained: HandMadeRun) -> None:
    more = trained.table.append_column("at", pa.array(range(6), pa.timestamp("us")))
    more = more.append_column("page", pa.array([{"path": "/"}] * 6)).append_column("page", pa.array(["a"] * 6))
    answer = post_arrow(server, stream_of(more))
    assert answer.status_code == 200, answer.text
    assert answer.content == post_arrow(server, stream_of(trained.table)).content
    place = trained.table.column_names.index("code")
    view = trained.table.column("code").cast(pa.string_view())
    error = post_arrow(server, stream_of(trained.table.set_column(place, "code", view))).json()["error"]
    assert (error["code"], error["column"]) == ("wrong_value", "code") and "cast it to string" in error["message"]
    assert post_arrow(server, stream_of(pa.table({"other": [1]}))).json()["error"]["code"] == "missing_column"


def test_a_row_that_is_nested_as_deep_as_json_can_be_is_refused(server: ServerProcess) -> None:
    """Its value cannot be shown where the stack of the decoder just sufficed."""
    for depth in range(880, 1010, 2):
        body = b'{"rows": [' + b"[" * depth + b"]" * depth + b"]}"
        answer = server.client.post("/predict", content=body, headers={"content-type": "application/json"})
        assert answer.status_code in (400, 422), depth
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert b'"value":"list"' in RequestError(422, "wrong_value", "row 0 is not an object", value=deep).body()


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"{}", b'{"rows": 1}', b'{"rows": [NaN]}', b'{"rows": {"a": 1}}', b"\xff\xfe", b"[" * 500_000],
)
def test_a_body_that_is_not_the_right_json_is_refused(server: ServerProcess, body: bytes) -> None:
    answer = server.client.post("/predict", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_body")


def test_a_row_that_is_no_object_is_named(server: ServerProcess, rows: Rows) -> None:
    error = server.predict([rows[0], 7]).json()["error"]
    assert (error["code"], error["row"], error["value"]) == ("wrong_value", 1, 7)


def test_bytes_that_are_no_arrow_stream_are_refused(server: ServerProcess, trained: HandMadeRun) -> None:
    whole = stream_of(trained.table)
    generator = np.random.default_rng(5)
    bodies = [b"", b"ARROW1\0\0", b"\xff" * 200, whole[: len(whole) // 2], whole[: len(whole) // 3]]
    for _ in range(60):
        damaged = bytearray(whole)
        for place in generator.integers(0, len(whole), 4):
            damaged[place] = int(generator.integers(0, 256))
        bodies.append(bytes(damaged))
    answers = [post_arrow(server, body) for body in bodies]
    assert {answer.status_code for answer in answers[:4]} == {400}
    assert {answer.status_code for answer in answers} <= {200, 400, 413, 415, 422}
    assert server.process.poll() is None


def test_names_of_columns_must_be_different_and_utf8(server: ServerProcess, trained: HandMadeRun) -> None:
    twice = trained.table.append_column("price", pa.array([1.0] * 6))
    answer = post_arrow(server, stream_of(twice))
    assert (answer.status_code, answer.json()["error"]["column"]) == (422, "price")
    damaged = stream_of(trained.table).replace(b"word", b"wo\xffd")
    assert damaged != stream_of(trained.table)
    answer = post_arrow(server, damaged)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_body")


def test_a_compressed_arrow_stream_is_refused(server: ServerProcess, trained: HandMadeRun) -> None:
    """Few compressed bytes can become many."""
    table = pa.table({"user": pa.array(np.zeros(1_000_000, dtype=np.int64))})
    body = stream_of(table, pa.ipc.IpcWriteOptions(compression="zstd"))
    assert len(body) < 100_000
    answer = post_arrow(server, body)
    assert answer.status_code == 415
    assert "compressed" in answer.json()["error"]["message"]


def test_dictionaries_that_grow_are_refused(server: ServerProcess) -> None:
    """Each batch would get a whole copy of the dictionary."""
    sink = pa.BufferOutputStream()
    words = [pa.array(["tea"]), pa.array(["tea", "milk"])]
    batches = [
        pa.record_batch([pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), one)], ["word"]) for one in words
    ]
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    answer = post_arrow(server, sink.getvalue().to_pybytes())
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unknown_content_type")
    assert "dictionary deltas" in answer.json()["error"]["message"]


def test_batches_with_other_dictionaries_are_scored(server: ServerProcess, trained: HandMadeRun) -> None:
    """As pandas writes categories: each batch with the words that it has."""
    table = trained.table.drop_columns(["label", "other"])
    place = table.column_names.index("word")
    words = table.column("word").cast(pa.string()).to_pylist()
    parts = [pa.array([word], pa.string()).dictionary_encode() for word in words]
    nulls = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array([None], pa.string()))
    column = pa.chunked_array([one if word is not None else nulls for one, word in zip(parts, words, strict=True)])
    sink = pa.BufferOutputStream()
    encoded = table.set_column(place, "word", column)
    with pa.ipc.new_stream(sink, encoded.schema) as writer:
        for number in range(len(table)):
            writer.write_table(encoded.slice(number, 1))
    answer, plain = post_arrow(server, sink.getvalue().to_pybytes()), post_arrow(server, stream_of(table))
    assert answer.status_code == 200, answer.text
    assert answer.content == plain.content


def test_too_many_rows_are_refused(server: ServerProcess, rows: Rows, trained: HandMadeRun) -> None:
    answer = server.predict(rows * 9)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_many_rows")
    assert post_arrow(server, stream_of(pa.concat_tables([trained.table] * 9))).status_code == 413


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_of_50_mb_is_refused_without_being_kept(server: ServerProcess, rows: Rows, is_chunked: bool) -> None:
    def chunks() -> Any:
        for _ in range(50):
            yield b" " * 1_000_000

    content = chunks() if is_chunked else b" " * 50_000_000
    memory = Path(f"/proc/{server.process.pid}/status")

    def peak_kib() -> int:
        return next(int(line.split()[1]) for line in memory.read_text().splitlines() if line.startswith("VmHWM"))

    before = peak_kib()
    answer = server.client.post("/predict", content=content, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert peak_kib() - before < 20_000
    assert server.predict(rows).status_code == 200
    assert server.metric("buffered_bytes") == 0


@pytest.mark.parametrize("extra_bytes", [1, 1000, 200_000])
def test_a_body_in_chunks_just_over_the_limit_is_refused(server: ServerProcess, rows: Rows, extra_bytes: int) -> None:
    def chunks() -> Any:
        yield b" " * 1_048_576
        yield b" " * extra_bytes

    answer = server.client.post("/predict", content=chunks(), headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert server.predict(rows).status_code == 200


@pytest.mark.parametrize("path", ["/healthz", "/nothing"])
def test_a_client_that_does_not_end_a_body_which_nobody_reads_is_cut_off(server: ServerProcess, path: str) -> None:
    with socket.create_connection(server.address, timeout=30) as one:
        one.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n".encode())
        assert one.recv(65_536).startswith(b"HTTP/1.1")
        one.sendall(b" ")
        with contextlib.suppress(ConnectionResetError):
            assert b"HTTP/1.1" not in whole_answer(one), "the rest of the answer, and no second one"


def test_unknown_paths_methods_and_types_are_refused(server: ServerProcess) -> None:
    client = server.client
    for answer, status, code in (
        (client.get("/predictions"), 404, "not_found"),
        (client.get("/predict"), 405, "method_not_allowed"),
        (client.post("/predict", content=b"a,b", headers={"content-type": "text/csv"}), 415, "unknown_content_type"),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def whole_answer(connection: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    return b"".join(iter(lambda: connection.recv(65_536), b""))


HEAD = b"POST /predict HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n"


@pytest.mark.parametrize(
    "begin",
    [b"", b"POST /pre", HEAD, HEAD + b"\r\n", HEAD + b'\r\n{"rows": ['],
    ids=["nothing", "line", "head", "no body", "body"],
)
def test_a_slow_client_is_cut_off_and_holds_nobody_up(server: ServerProcess, rows: Rows, begin: bytes) -> None:
    slow = [socket.create_connection(server.address, timeout=30) for _ in range(20)]
    try:
        for one in slow:
            one.sendall(begin)
        assert server.predict(rows).status_code == 200
        answers = [whole_answer(one) for one in slow]
        assert all(answer.startswith(b"HTTP/1.1 408") and b'"too_slow"' in answer for answer in answers)
    finally:
        for one in slow:
            one.close()


def test_a_client_that_sends_a_second_head_slowly_is_cut_off(server: ServerProcess) -> None:
    with socket.create_connection(server.address, timeout=30) as one:
        one.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        first = one.recv(65_536)
        assert first.startswith(b"HTTP/1.1 200")
        one.sendall(b"GET /heal")
        rest = whole_answer(one)  # it may begin with the body of the first answer
        assert b"HTTP/1.1 408" in rest and b'"too_slow"' in rest


def test_a_client_that_goes_away_harms_nobody(server: ServerProcess, rows: Rows) -> None:
    for begin in (HEAD, HEAD + b'\r\n{"rows": ['):
        with socket.create_connection(server.address) as one:
            one.sendall(begin)
    assert server.predict(rows).status_code == 200


def test_requests_at_the_same_time_get_their_own_scores(server: ServerProcess, rows: Rows) -> None:
    alone = [server.predict([row]).json()["scores"][0] for row in rows]
    found: dict[int, list[float]] = {}

    def ask(number: int) -> None:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            mine = rows[number % 6 :] + rows[: number % 6]
            found[number] = client.post("/predict", json={"rows": mine}).json()["scores"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, scores in found.items():
        np.testing.assert_allclose(scores, alone[number % 6 :] + alone[: number % 6], rtol=0, atol=1e-6)
    assert len(found) == 24
