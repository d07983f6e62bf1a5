"""Criteo's text format: label, I1..I13 and C1..C26 separated by tabs, without a header; an empty field is null."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from elastichost.datasets.bad_rows import BadRowLog
from elastichost.datasets.decoded import DecodedUnit, single_valued
from elastichost.datasets.settings import CRITEO_CATEGORICAL, CRITEO_DENSE, CRITEO_LABEL, DataSettings
from elastichost.datasets.sources.connections import SourceConnections
from elastichost.datasets.sources.single_requests import BEFORE_RUN, RequestPolicy
from elastichost.datasets.tabular import finish_dense
from elastichost.datasets.text import criteo_kernel as kernel
from elastichost.datasets.text.reader import TextDecoder
from elastichost.human_readable import did_you_mean
from elastichost.specs import KeyKind

__all__ = ["CriteoLines", "criteo_decoder"]

FIELDS = 1 + len(CRITEO_DENSE) + len(CRITEO_CATEGORICAL)


def criteo_decoder(
    settings: DataSettings,
    environ: Mapping[str, str],
    connections: SourceConnections | None = None,
    waiting: RequestPolicy = BEFORE_RUN,
) -> TextDecoder:
    return TextDecoder(settings, CriteoLines(settings), environ, connections, waiting)


class CriteoLines:
    """The `LineFormat` of criteo_tsv. Categories are strings, and their bytes are hashed. An empty category is a null
    id, an empty integer is a null value."""

    name = "criteo_tsv"
    header_lines = 0

    def __init__(self, settings: DataSettings) -> None:
        self._settings = settings
        self._unlabelled: set[str] = set()

    def key_kinds(self) -> dict[str, KeyKind]:
        return dict.fromkeys(self._settings.categorical, "string")

    def multi_valued(self) -> tuple[str, ...]:
        return ()

    def check_first_line(self, path: str, line: bytes) -> tuple[str, ...]:
        """Checks that the job's columns are Criteo's. Where labels are not required, a file may have one field less: it
        has no labels then."""
        if not self._settings.labels_required and line.count(b"\t") == FIELDS - 2:
            self._unlabelled.add(path)
        settings = self._settings
        wanted = (
            (settings.labels, (CRITEO_LABEL,)),
            (settings.dense, CRITEO_DENSE),
            (settings.categorical, CRITEO_CATEGORICAL),
        )
        problems = [
            f"{path}: no column {name!r} in criteo_tsv{did_you_mean(name, known)}"
            for names, known in wanted
            for name in names
            if name not in known
        ]
        if settings.weight:
            problems.append(f"{path}: no column {settings.weight!r}: criteo_tsv has no weights")
        return tuple(problems)

    def parse(self, path: str, data: npt.NDArray[np.uint8], lines: int, first_line: int, log: BadRowLog) -> DecodedUnit:
        has_label = path not in self._unlabelled
        labels = np.full(lines, np.nan, dtype=np.float32)
        integers = np.full((lines, kernel.NUM_INTEGERS), np.nan, dtype=np.float32)
        keys = np.zeros((kernel.NUM_CATEGORICAL, lines), dtype=np.int64)
        valid = np.zeros((kernel.NUM_CATEGORICAL, lines), dtype=np.bool_)
        status = np.empty(lines, dtype=np.int8)
        detail = np.zeros(lines, dtype=np.int32)
        starts = np.empty(lines + 1, dtype=np.int64)
        kernel.parse_lines(data, has_label, labels, integers, keys, valid, status, detail, starts)
        self._log_bad_rows(path, data, first_line, log, status, detail, starts, has_label)
        dense_columns = [CRITEO_DENSE.index(name) for name in self._settings.dense]
        every_column = self._settings.dense == CRITEO_DENSE
        dense = finish_dense(
            integers if every_column else np.ascontiguousarray(integers[:, dense_columns]),
            self._settings,
            log,
            lambda row, column: f"{path}: line {first_line + row}, column {self._settings.dense[column]!r}",
        )
        categories = [CRITEO_CATEGORICAL.index(name) for name in self._settings.categorical]
        return DecodedUnit(
            samples=lines,
            dense=dense,
            labels=labels.reshape(lines, 1),
            ids=tuple(single_valued(keys[column], valid[column]) for column in categories),
        )

    def _log_bad_rows(
        self,
        path: str,
        data: npt.NDArray[np.uint8],
        first_line: int,
        log: BadRowLog,
        status: npt.NDArray[np.int8],
        detail: npt.NDArray[np.int32],
        starts: npt.NDArray[np.int64],
        has_label: bool,
    ) -> None:
        expected = FIELDS if has_label else FIELDS - 1
        bad = status != kernel.OK

        def text_of(row: int) -> bytes:
            return data[starts[row] : starts[row + 1]].tobytes().rstrip(b"\r\n")

        # Bytes above 127 are allowed in UTF-8 text. Such lines are rare in this format, so they are checked here.
        for row in np.flatnonzero(status == kernel.NOT_ASCII):
            bad[row] = not _is_utf8(text_of(int(row)))

        def describe(row: int) -> str:
            where = f"{path}: line {first_line + row}"
            fields = text_of(row).split(b"\t")
            match int(status[row]):
                case kernel.RAGGED:
                    return f"{where}: {detail[row]} fields where criteo_tsv has {expected}"
                case kernel.BAD_LABEL:
                    return f"{where}, column {CRITEO_LABEL!r}: label is {_shown(fields[0])}, not 0 or 1"
                case kernel.BAD_INTEGER:
                    column = int(detail[row])
                    value = _shown(fields[column + int(has_label)])
                    return f"{where}, column {CRITEO_DENSE[column]!r}: {value} is not an integer"
                case _:
                    return f"{where}: not UTF-8 text"

        log.add(bad, describe)


def _shown(field: bytes) -> str:
    return repr(field[:40].decode(errors="replace")) if field else "empty"


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
