"""Arrow IPC streams to columns, and scores to Arrow IPC streams. Pure.

A stream comes from anybody, so it is checked before it is used: every buffer lies in the body, so the table is no
larger than the body. Compressed buffers, views and dictionaries that grow from batch to batch are refused, because few
bytes of them can become many; and so are more ids than a JSON body of the same size could have. Columns that the model
does not use are not read.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from elastichost.serving.request_error import RequestError

__all__ = ["CONTENT_TYPE", "arrow_of_scores", "table_of_arrow"]

CONTENT_TYPE = "application/vnd.apache.arrow.stream"
HEADER_TYPE, HEADER = 1, 2  # fields of a Message in Arrow's Message.fbs
RECORD_BATCH, DICTIONARY_BATCH = 3, 2  # its kinds
BATCH_COMPRESSION, DICTIONARY_DATA, DICTIONARY_GROWS = 3, 1, 2  # fields of a RecordBatch and of a DictionaryBatch


def table_of_arrow(body: bytes, columns: Collection[str], max_rows: int, max_ids: int) -> pa.Table:
    """The columns of the stream that are among `columns`. max_ids: items of all lists together, and words of a
    dictionary. Raises RequestError."""
    try:
        if (refused := _refused(body)) is not None:
            raise RequestError(415, "unknown_content_type", f"{refused} are not accepted in Arrow streams")
        batches: list[pa.RecordBatch] = []
        rows = items = 0
        with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
            places = _places(stream.schema, columns)
        if not places:  # to Arrow, none of the columns means all of them
            return pa.table({})
        options = pa.ipc.IpcReadOptions(included_fields=places)
        with pa.ipc.open_stream(pa.py_buffer(body), options=options) as stream:
            for batch in stream:
                rows += batch.num_rows
                if rows > max_rows:
                    raise RequestError(413, "too_many_rows", f"more than {max_rows} rows are not allowed in a request")
                batch.validate(full=True)
                items += sum(map(_items, batch.columns))
                if max(items, *map(_words, batch.columns)) > max_ids:
                    message = f"more than {max_ids} ids are not allowed in a request: send fewer rows"
                    raise RequestError(413, "too_large", message)
                batches.append(batch)
            return pa.Table.from_batches(batches, stream.schema)
    except (pa.ArrowException, OSError, ValueError, struct.error, IndexError, MemoryError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        raise RequestError(400, "invalid_body", f"the body is not an Arrow IPC stream: {reason}") from error


def arrow_of_scores(scores: npt.NDArray[np.float32], labels: Sequence[str]) -> bytes:
    """A stream with the column `score`, or for several labels one column `score_<label>` for each; float32."""
    columns = [scores] if len(labels) == 1 else list(np.ascontiguousarray(scores.T))
    names = ["score"] if len(labels) == 1 else [f"score_{label}" for label in labels]
    table = pa.table(dict(zip(names, map(pa.array, columns), strict=True)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _places(schema: pa.Schema, columns: Collection[str]) -> list[int]:
    """The numbers of these columns. Raises RequestError; UnicodeDecodeError (a ValueError) for names that are not
    UTF-8."""
    str(schema)  # decodes all names, also those of elements of lists
    places = [place for place, name in enumerate(schema.names) if name in columns]
    for place in places:
        name = schema.names[place]
        if schema.names.count(name) > 1:
            raise RequestError(422, "wrong_value", f"there are several columns {name!r}", column=name)
        _check_type(schema.field(place))
    return places


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _items(column: pa.Array) -> int:
    """The number of items of the lists of a column; 0 for a column without lists."""
    return len(column.flatten()) if _is_list(column.type) else 0


def _words(column: pa.Array) -> int:
    """The number of words in the dictionary of a column or of its items; 0 for a column without one. All of them become
    ids, and each takes a bit of the body if they are of the type bool."""
    items = column.values if _is_list(column.type) else column
    return len(items.dictionary) if pa.types.is_dictionary(items.type) else 0


def _check_type(field: pa.Field) -> None:
    kind = field.type
    types = pa.types
    if _is_list(kind):
        kind = kind.value_type
    if types.is_dictionary(kind):
        kind = kind.value_type
    is_text = types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind)
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        raise RequestError(
            422,
            "wrong_value",
            f"column {field.name!r} has the type {field.type}: cast it to string",
            column=field.name,
            expected="text that is no view",
        )
    if not (is_text or is_number or types.is_large_binary(kind) or types.is_null(kind)):
        raise RequestError(
            422,
            "wrong_value",
            f"column {field.name!r} has the type {field.type}",
            column=field.name,
            expected="numbers, integers, text, or lists of them",
        )


def _refused(body: bytes) -> str | None:
    """What the stream has that is not accepted. Raises ArrowException, struct.error, IndexError for bytes that are no
    stream."""
    messages = pa.ipc.MessageReader.open_stream(pa.py_buffer(body))
    for message in messages:
        data = message.metadata.to_pybytes()
        table = _offset(data, 0)
        kind, header = _field(data, table, HEADER_TYPE), _field(data, table, HEADER)
        if not kind or not header or data[kind] not in (RECORD_BATCH, DICTIONARY_BATCH):
            continue
        batch = _offset(data, header)
        if data[kind] == DICTIONARY_BATCH:
            if (grows := _field(data, batch, DICTIONARY_GROWS)) and data[grows]:
                return "dictionary deltas"
            inner = _field(data, batch, DICTIONARY_DATA)
            batch = _offset(data, inner) if inner else batch
        if _field(data, batch, BATCH_COMPRESSION):
            return "compressed buffers"
    return None


def _offset(data: bytes, at: int) -> int:
    """Where the offset at this place of a flatbuffer leads."""
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """The place of a field of a table; 0 if it is absent."""
    slots = table - int(struct.unpack_from("<i", data, table)[0])
    if 4 + 2 * number >= struct.unpack_from("<H", data, slots)[0]:
        return 0
    within = int(struct.unpack_from("<H", data, slots + 4 + 2 * number)[0])
    return table + within if within else 0
