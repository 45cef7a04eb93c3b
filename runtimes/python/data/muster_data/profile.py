"""What is in a table, column by column, from one pass over its rows."""

import math
import random
from collections import Counter
from typing import Any, Dict, List, Optional

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .source import nested

Json = Dict[str, Any]

_EXACT = 100_000  # different values that are counted; beyond, only that there are more
_SAMPLE = 100_000  # values that quantiles are taken of
_HASHES = 20_000_000  # rows that are compared for being the same
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


class Column:
    def __init__(self, field: pa.Field, top: int) -> None:
        self.name, self.type, self.nested, self.top = field.name, field.type, nested(field), top
        self.rows = self.missing = self.seen = 0
        self.least: Any = None
        self.most: Any = None
        self.mean = self.squares = 0.0
        self.infinite = 0
        self.counts: "Optional[Counter[Any]]" = Counter()
        self.sample: List[float] = []
        self.random = random.Random(0)

    def add(self, column: pa.Array) -> None:
        self.rows += len(column)
        self.missing += column.null_count
        values = column.drop_null()
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if len(values) == 0:
            return
        number = pa.types.is_integer(self.type) or pa.types.is_floating(self.type)
        if number:
            v = values.to_numpy(zero_copy_only=False).astype(float)
            nans = int(np.isnan(v).sum())
            self.missing += nans  # NaN counts as missing
            self.infinite += int(np.isinf(v).sum())
            if nans:
                values = values.filter(pc.invert(pc.is_nan(values)))
            self._numbers(v[np.isfinite(v)])
        if not pa.types.is_nested(self.type):
            self._count(values)
            if number or pa.types.is_temporal(self.type):
                self._range(pc.min_max(values).as_py())
            elif pa.types.is_string(self.type) or pa.types.is_large_string(self.type):
                lengths = pc.utf8_length(values)
                self._range(pc.min_max(lengths).as_py())
                self._numbers(lengths.to_numpy(zero_copy_only=False).astype(float))

    def _range(self, found: Json) -> None:
        if found["min"] is not None:
            self.least = found["min"] if self.least is None else min(self.least, found["min"])
            self.most = found["max"] if self.most is None else max(self.most, found["max"])

    def _numbers(self, v: np.ndarray) -> None:
        if len(v) == 0:
            return
        # Chan's formula for means and squares of two parts.
        n, mean = len(v), float(v.mean())
        apart = mean - self.mean
        whole = self.seen + n
        self.squares += float(((v - mean) ** 2).sum()) + apart * apart * self.seen * n / whole
        self.mean += apart * n / whole
        room = _SAMPLE - len(self.sample)
        self.sample.extend(v[:room].tolist())
        for i, value in enumerate(v[max(room, 0) :].tolist(), self.seen + max(min(room, n), 0)):
            if (at := self.random.randrange(i + 1)) < _SAMPLE:
                self.sample[at] = value
        self.seen = whole

    def _count(self, values: pa.Array) -> None:
        if self.counts is None:
            return
        for entry in pc.value_counts(values).to_pylist():
            self.counts[entry["values"]] += entry["counts"]
        if len(self.counts) > _EXACT:
            self.counts = None

    def record(self) -> Json:
        there = self.rows - self.missing
        out: Json = {"name": self.name, "type": "json" if self.nested else str(self.type), "count": there, "missing": self.missing}
        if not pa.types.is_nested(self.type):
            out["distinct"] = len(self.counts) if self.counts is not None else None
            if self.counts is None:
                out["distinctAtLeast"] = _EXACT
            elif self.top and there:
                common = sorted(self.counts.items(), key=lambda item: (-item[1], str(item[0])))[: self.top]
                out["top"] = [{"value": _shown(v), "count": n} for v, n in common]
        if self.least is not None:
            if pa.types.is_string(self.type) or pa.types.is_large_string(self.type):
                out["length"] = {"min": self.least, "max": self.most, "mean": self.mean}
            else:
                out["min"], out["max"] = _shown(self.least), _shown(self.most)
        if self.seen and "length" not in out:
            out["mean"], out["std"] = self.mean, math.sqrt(self.squares / (self.seen - 1)) if self.seen > 1 else 0.0
            out["quantiles"] = {str(q): float(v) for q, v in zip(_QUANTILES, np.quantile(self.sample, _QUANTILES))}
            if self.seen > _SAMPLE:
                out["quantilesOfSample"] = _SAMPLE
            if self.infinite:
                out["infinite"] = self.infinite
        return out


class Rows:
    """Counts rows, and those that are the same as one before."""

    def __init__(self) -> None:
        self.count = self.duplicates = 0
        self._hashes: "Optional[set[int]]" = set()

    def add(self, batch: pa.RecordBatch) -> None:
        self.count += batch.num_rows
        if self._hashes is None:
            return
        for row in zip(*(c.to_pylist() for c in batch.columns)):
            h = hash(repr(row))
            if h in self._hashes:
                self.duplicates += 1
            else:
                self._hashes.add(h)
        if len(self._hashes) > _HASHES:
            self._hashes = None

    def record(self) -> Json:
        return {"rows": self.count, "duplicates": self.duplicates if self._hashes is not None else None}


def markdown(title: str, rows: Json, columns: List[Json]) -> str:
    """The report for people."""
    lines = [
        f"# {title}",
        "",
        f"{rows['rows']:,} rows, {len(columns)} columns, {'' if rows['duplicates'] is None else format(rows['duplicates'], ',')} duplicates".rstrip(),
        "",
    ]
    lines += ["| column | type | missing | distinct | range | mean ± std | commonest |", "|---|---|---|---|---|---|---|"]
    for c in columns:
        distinct = c.get("distinct")
        span = f"{c['min']} to {c['max']}" if "min" in c else f"{c['length']['min']} to {c['length']['max']} characters" if "length" in c else ""
        mean = f"{c['mean']:.4g} ± {c['std']:.4g}" if "mean" in c else ""
        common = ", ".join(f"{t['value']} ({t['count']:,})" for t in c.get("top", [])[:3])
        cells = [
            c["name"],
            c["type"],
            f"{c['missing']:,}",
            f"over {c['distinctAtLeast']:,}" if "distinctAtLeast" in c else "" if distinct is None else f"{distinct:,}",
            span,
            mean,
            common,
        ]
        lines.append("| " + " | ".join(str(v).replace("|", "\\|").replace("\n", " ")[:80] for v in cells) + " |")
    return "\n".join(lines) + "\n"


def _shown(value: Any) -> Any:
    if isinstance(value, (bool, int)) or isinstance(value, float) and math.isfinite(value):
        return value
    return value[:200] if isinstance(value, str) else str(value)[:200]
