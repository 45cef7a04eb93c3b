"""Record batches written to a file, as they come."""

import base64
import datetime
import decimal
import gzip
import json
import math
import shutil
from pathlib import Path
from typing import Any, List, Optional

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from muster_core import Fail

from .source import nested

SUFFIX = {"csv": ".csv", "tsv": ".tsv", "jsonl": ".jsonl", "json": ".json", "parquet": ".parquet"}
_GROUP_ROWS, _GROUP_BYTES = 100_000, 32 << 20  # of a row group of Parquet, or a little more


class Sink:
    """Writes a table under a temporary name; close renames it, so that the file is complete."""

    def __init__(self, path: Path, how: str, compression: Optional[str], schema: pa.Schema) -> None:
        if how != "parquet" and compression not in (None, "none", "gzip"):
            raise Fail("bad_input", f"compression: {compression} is only available for parquet: {how} supports gzip or none")
        self.path, self.how, self.schema, self.rows = path, how, schema, 0
        # In the task's folder, not among its artifacts: a partial table is not an artifact.
        self.part = Path(f".{path.name}.part")
        self._file: Any = None
        self._held: List[pa.RecordBatch] = []
        self._flat = [pa.field(f.name, pa.string() if _deep(f.type) else f.type) for f in schema]
        if how == "parquet":
            self._table: Any = pq.ParquetWriter(self.part, schema, compression=compression or "zstd")
            return
        self._file = gzip.open(self.part, "wb", compresslevel=6) if compression == "gzip" else open(self.part, "wb")
        if how in ("csv", "tsv"):
            options = pyarrow.csv.WriteOptions(delimiter="\t" if how == "tsv" else ",")
            self._table = pyarrow.csv.CSVWriter(self._file, pa.schema(self._flat), write_options=options)
        elif how == "json":
            self._file.write(b"[")

    def write(self, batch: pa.RecordBatch) -> None:
        if self.how == "parquet":
            self._held.append(batch)
            if sum(b.num_rows for b in self._held) >= _GROUP_ROWS or sum(b.nbytes for b in self._held) >= _GROUP_BYTES:
                self._group()
        elif self.how in ("csv", "tsv"):
            columns = [pa.array([_text(v) for v in c.to_pylist()], pa.string()) if _deep(c.type) else c for c in batch.columns]
            self._table.write_batch(pa.record_batch(columns, schema=pa.schema(self._flat)))
        else:
            self._lines(batch)
        self.rows += batch.num_rows

    def _group(self) -> None:
        if self._held:
            self._table.write_table(pa.Table.from_batches(self._held, self.schema))
            self._held = []

    def _lines(self, batch: pa.RecordBatch) -> None:
        decoded = [i for i, f in enumerate(self.schema) if nested(f)]
        columns = [c.to_pylist() for c in batch.columns]
        for i in decoded:
            columns[i] = [None if v is None else json.loads(v) for v in columns[i]]
        names, out = self.schema.names, []
        for n, row in enumerate(zip(*columns)):
            comma = "" if self.how == "jsonl" else "\n" if self.rows + n == 0 else ",\n"
            end = "\n" if self.how == "jsonl" else ""
            out.append(f"{comma}{json.dumps({k: _plain(v) for k, v in zip(names, row)}, ensure_ascii=False, allow_nan=False)}{end}")
        self._file.write("".join(out).encode())

    def close(self) -> int:
        """Finish the file; returns its size."""
        if self.how == "parquet":
            self._group()
        if self.how in ("csv", "tsv", "parquet"):
            self._table.close()
        if self.how == "json":
            self._file.write(b"\n]\n" if self.rows else b"]\n")
        if self._file is not None:
            self._file.close()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(self.part, self.path)
        return self.path.stat().st_size


def _deep(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _text(value: Any) -> Optional[str]:
    if value is None:
        return None
    return base64.b64encode(value).decode() if isinstance(value, bytes) else json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """JSON's view of what a column may hold. JSON has no NaN: it becomes null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, datetime.timedelta)):
        return str(value)
    return value
