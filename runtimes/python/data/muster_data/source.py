"""Tables as streams of record batches, so that a file may be larger than the memory.

Text has no types: a first pass over all rows finds for each column the narrowest that loses nothing (007 stays a text),
a second one gives the rows with it. JSON has some: a column of lists, objects or values of several types becomes one of JSON
texts, which is written as JSON again. Errors name the line.
"""

import csv
import gzip
import io
import json
import re
import zlib
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from muster_core import Fail
from muster_core.tables import objects

FORMATS = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".parquet": "parquet", ".pq": "parquet"}
ROWS = 5_000  # of a batch
_MISSING = ["NA", "N/A", "NaN", "nan", "null", "NULL", "None"]  # in columns that are not of text; nothing at all is missing everywhere
_NESTED = {b"json": b"1"}  # a column of text that holds JSON

# What a column of texts can be, from the narrowest, and what all its texts must look like for that.
_SHAPES: "List[tuple[pa.DataType, str]]" = [
    (pa.bool_(), r"^([Tt]rue|[Ff]alse|TRUE|FALSE)$"),
    (pa.int64(), r"^(0|-?[1-9][0-9]{0,17})$"),
    (pa.float64(), r"^-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$"),
    (pa.date32(), r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$"),
    (pa.timestamp("us"), r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[ T]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?$"),
]

OnProgress = Callable[[float], None]
T = TypeVar("T")

_CHUNK = 1 << 20
_SPACE = re.compile(r"\s*")


def form(path: Path) -> Optional[str]:
    name = path.name.lower()
    return FORMATS.get(Path(name[:-3] if name.endswith(".gz") else name).suffix)


class Source:
    """A table of a file. on_progress is called with the share of the work that is done, 0 to 1."""

    def __init__(self, path: Path, how: Optional[str], separator: Optional[str], on_progress: OnProgress) -> None:
        found = how or form(path)
        if found is None:
            raise Fail("bad_input", f"dataset: unknown format of {path.name}: set format to csv, tsv, jsonl, json or parquet")
        self.path, self.how, self.on_progress = path, found, on_progress
        self.separator = separator or ("\t" if found == "tsv" else "")
        try:
            if found == "parquet":
                self._parquet = pq.ParquetFile(path)
                self.schema = self._parquet.schema_arrow
            else:
                self.schema = self._inferred()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            named = form(path)
            hint = f": format is that of the file that is read, whose name says {named}; write to: {found} for that of the output" if how and named not in (None, how) else ""
            raise Fail("bad_input", f"dataset: {path.name} is damaged or not {found}: {_first(e)}{hint}") from None
        self._once(self.schema.names)

    def _once(self, names: List[str]) -> None:
        for n in names:
            if names.count(n) > 1:
                raise Fail("bad_input", f"dataset: {self.path.name} has several columns with the name {n}")

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, in order."""
        if self.how in ("csv", "tsv"):
            for texts in self._read(0.5, self._csv):
                yield pa.record_batch([_typed(column, f) for column, f in zip(texts.columns, self.schema)], schema=self.schema)
            return
        if self.how in ("jsonl", "json"):
            for rows in self._read(0.5, self._objects):
                yield pa.record_batch([pa.array([_held(row.get(f.name), f) for row in rows], f.type) for f in self.schema], schema=self.schema)
            return
        done, total = 0, max(1, self._parquet.metadata.num_rows)
        try:
            for batch in self._parquet.iter_batches(ROWS):
                yield batch
                done += batch.num_rows
                self.on_progress(done / total)
        except (pa.ArrowException, OSError) as e:
            if isinstance(e, OSError) and e.errno:
                raise
            raise Fail("bad_input", f"dataset: {self.path.name} is damaged after row {done}: {_first(e)}") from None

    def _inferred(self) -> pa.Schema:
        if self.how in ("jsonl", "json"):
            kinds: Dict[str, Set[str]] = {}
            for rows in self._read(0, self._objects):
                for row in rows:
                    for name, value in row.items():
                        kinds.setdefault(name, set()).add(_kind(value))
            return pa.schema([_field(name, found - {"null"}) for name, found in kinds.items()])
        fits: Dict[str, List[bool]] = {}
        some: Dict[str, bool] = {}
        for texts in self._read(0, self._csv):
            for name, column in zip(texts.schema.names, texts.columns):
                could = fits.setdefault(name, [True] * len(_SHAPES))
                values = column.drop_null()
                values = values.filter(pc.invert(pc.is_in(values, pa.array(_MISSING))))
                some[name] = some.get(name, False) or len(values) > 0
                for i, (kind, shape) in enumerate(_SHAPES):
                    could[i] = could[i] and bool(pc.all(pc.match_substring_regex(values, shape), min_count=0).as_py()) and _castable(values, kind)
        # Without a value the type is unknown.
        return pa.schema(
            [pa.field(name, next((t for i, (t, _) in enumerate(_SHAPES) if could[i] and some[name]), pa.string())) for name, could in fits.items()]
        )

    def _read(self, begin: float, rows: "Callable[[io.TextIOWrapper], Iterator[T]]") -> "Iterator[T]":
        """The result of rows for the file's text; reports half of the work from begin on."""
        raw = open(self.path, "rb")
        try:
            size = max(1, self.path.stat().st_size)
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            unpacked: Any = gzip.GzipFile(fileobj=raw) if packed else raw
            for found in rows(io.TextIOWrapper(unpacked, "utf-8-sig", newline="")):
                yield found
                self.on_progress(begin + raw.tell() / size / 2)
        except UnicodeDecodeError:
            raise Fail(
                "bad_input", f"dataset: {self.path.name} line {_undecodable(self.path)} is not UTF-8 text: convert it, or set another format"
            ) from None
        except (EOFError, gzip.BadGzipFile, zlib.error) as e:
            raise Fail("bad_input", f"dataset: {self.path.name} cannot be unpacked: {_first(e)}") from None
        finally:
            raw.close()

    def _csv(self, text: io.TextIOWrapper) -> Iterator[pa.RecordBatch]:
        """Batches of texts; an empty one is missing."""
        if not self.separator:
            head = text.readline()
            self.separator = max(",;\t|", key=lambda s: len(next(csv.reader([head], delimiter=s), [])))
            text.seek(0)
        lines = csv.reader(text, delimiter=self.separator, strict=True)
        csv.field_size_limit(1 << 28)
        try:
            names = next(lines, None)
            if not names:
                raise Fail(
                    "bad_input",
                    f"dataset: {self.path.name} {'begins with an empty line' if names is not None else 'is empty'}: the first line must name the columns",
                )
            if nameless := [i for i, n in enumerate(names, 1) if not n.strip()]:
                raise Fail("bad_input", f"dataset: {self.path.name} line 1: column {nameless[0]} has no name")
            self._once(names)
            schema = pa.schema([(n, pa.string()) for n in names])
            rows: List[List[str]] = []
            for row in lines:
                if len(row) != len(names):
                    if not row:
                        continue
                    raise Fail("bad_input", f"dataset: {self.path.name} line {lines.line_num} has {len(row)} fields, and the first line names {len(names)}")
                rows.append(row)
                if len(rows) == ROWS:
                    yield _batch(rows, schema)
                    rows = []
            yield _batch(rows, schema)
        except csv.Error as e:
            raise Fail("bad_input", f"dataset: {self.path.name} line {lines.line_num}: {e}") from None

    def _objects(self, text: io.TextIOWrapper) -> "Iterator[List[Dict[str, Any]]]":
        held: List[Dict[str, Any]] = []
        for row in objects(text, self.path.name) if self.how == "jsonl" else self._json(text):
            held.append(row)
            if len(held) == ROWS:
                yield held
                held = []
        yield held

    def _json(self, text: io.TextIOWrapper) -> "Iterator[Dict[str, Any]]":
        """The objects of a list; only some are in memory at once."""
        decoder, buffer, n, ended = json.JSONDecoder(), text.read(_CHUNK).lstrip(), 0, False
        if not buffer.startswith("["):
            raise Fail("bad_input", f"dataset: {self.path.name} is not a list of objects: it begins with {buffer[:20]!r}")
        at = 1
        while True:
            at = _SPACE.match(buffer, at).end()  # type: ignore[union-attr]
            if len(buffer) - at < 2 and not ended:  # a comma and what follows it must be seen together
                more = text.read(_CHUNK)
                ended, buffer, at = not more, buffer[at:] + more, 0
                continue
            if buffer[at : at + 1] == "]":
                return
            begin = at
            if n:
                if buffer[at : at + 1] != ",":
                    what = f"comes {buffer[at : at + 20]!r}" if at < len(buffer) else "the file ends"
                    raise Fail("bad_input", f"dataset: {self.path.name}: after object {n} of the list {what}")
                begin = _SPACE.match(buffer, at + 1).end()  # type: ignore[union-attr]
            try:
                row, end = decoder.raw_decode(buffer, begin)
            except ValueError as e:
                if ended:
                    raise Fail("bad_input", f"dataset: {self.path.name}: object {n + 1} of the list is not JSON: {e}") from None
                more = text.read(max(_CHUNK, len(buffer)))
                ended, buffer, at = not more, buffer[at:] + more, 0
                continue
            n, at = n + 1, end
            if not isinstance(row, dict):
                raise Fail("bad_input", f"dataset: {self.path.name}: entry {n} of the list is not an object of columns and values")
            yield row


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return "nested"  # numbers beyond int64 stay text
    return {bool: "bool", int: "int", float: "float", str: "str"}.get(type(value), "nested")


def _field(name: str, kinds: Set[str]) -> pa.Field:
    if kinds == {"int", "float"}:
        return pa.field(name, pa.float64())
    if len(kinds) == 1 and kinds != {"nested"}:
        return pa.field(name, {"bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "str": pa.string()}[next(iter(kinds))])
    return pa.field(name, pa.string(), metadata=_NESTED if kinds else None)


def _held(value: Any, field: pa.Field) -> Any:
    if value is None:
        return None
    return json.dumps(value, ensure_ascii=False) if nested(field) else float(value) if field.type == pa.float64() else value


def _batch(rows: List[List[str]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows) if rows else [[] for _ in schema]
    return pa.record_batch([pa.array([v or None for v in column], pa.string()) for column in columns], schema=schema)


def _castable(values: pa.Array, kind: pa.DataType) -> bool:
    """Whether values that look like a type have it: the 31st of February is not a date."""
    try:
        pc.cast(pc.utf8_lower(values) if kind == pa.bool_() else values, kind)
    except pa.ArrowInvalid:
        return False
    return True


def _typed(column: pa.Array, field: pa.Field) -> pa.Array:
    if field.type == pa.string():
        return column
    values = pc.if_else(pc.is_in(column, pa.array(_MISSING)), pa.scalar(None, pa.string()), column)
    if field.type == pa.bool_():
        values = pc.utf8_lower(values)
    return pc.cast(values, field.type)


def nested(field: pa.Field) -> bool:
    """Whether a column of text holds JSON."""
    return bool(field.metadata) and field.metadata.get(b"json") == b"1"


def _undecodable(path: Path) -> int:
    with gzip.open(path) if path.name.endswith(".gz") else open(path, "rb") as f:
        for n, line in enumerate(f, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return n
    return 0


def _first(e: BaseException) -> str:
    return (str(e).strip().splitlines() or [type(e).__name__])[0][:200]
