"""Tables: how they are read, and how their columns become numbers."""

import csv
import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Optional

import numpy as np
import pandas as pd
from muster_core import Fail, log
from muster_core.tables import objects

Json = Dict[str, Any]

FORMATS = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".parquet": "parquet", ".pq": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json"}

_CATEGORIES = 50  # distinct values of a column; the rest is "another"
_VOCABULARY = 4000


def form(path: Path) -> Optional[str]:
    """The format by a file's name, without .gz."""
    name = path.name.lower()
    return FORMATS.get(Path(name[:-3] if name.endswith(".gz") else name).suffix)


def read(path: Path, how: Optional[str] = None) -> pd.DataFrame:
    """A table of a file; raises Fail with file and line where it is damaged."""
    how = how or form(path)
    try:
        if how in ("csv", "tsv"):
            table = pd.read_csv(path, sep="\t" if how == "tsv" else _separator(path), encoding="utf-8-sig", low_memory=False)
        elif how == "parquet":
            table = pd.read_parquet(path)
        elif how == "jsonl":
            table = pd.DataFrame(_lines(path))
        elif how == "json":
            table = pd.DataFrame(_list(path))
        else:
            raise Fail("bad_input", f"dataset: unknown format of {path.name}: set format to csv, tsv, parquet, jsonl or json")
    except UnicodeDecodeError:
        raise Fail("bad_input", f"dataset: {path.name} is not UTF-8 text{_undecodable(path)}: convert it, or set another format") from None
    except (EOFError, gzip.BadGzipFile) as e:
        raise Fail("bad_input", f"dataset: {path.name} cannot be unpacked: {e}") from None
    except pd.errors.EmptyDataError:
        raise Fail("bad_input", f"dataset: {path.name} is empty") from None
    except (ValueError, OSError) as e:
        if isinstance(e, OSError) and e.errno or isinstance(e, MemoryError):
            raise
        found = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(e))
        what = f"line {found[2]} has {found[3]} fields, not {found[1]}" if found else str(e).strip().splitlines()[0]
        raise Fail("bad_input", f"dataset: {path.name} is damaged: {what}") from None
    if len(table) == 0:
        raise Fail("bad_input", f"dataset: {path.name} has no rows")
    table.columns = [str(c) for c in table.columns]
    if twice := [c for c, n in Counter(table.columns).items() if n > 1]:
        raise Fail("bad_input", f"dataset: {path.name} has several columns with the name {twice[0]}")
    return table


def _open(path: Path) -> Any:
    return gzip.open(path, "rt", encoding="utf-8-sig") if path.name.endswith(".gz") else open(path, encoding="utf-8-sig")


def _separator(path: Path) -> str:
    with _open(path) as f:
        head = f.readline()
    counts = {s: len(next(csv.reader([head], delimiter=s), [])) for s in ",;\t|"}
    return max(counts, key=lambda s: counts[s])


def _undecodable(path: Path) -> str:
    with gzip.open(path) if path.name.endswith(".gz") else open(path, "rb") as f:
        for n, line in enumerate(f, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f" (line {n})"
    return ""


def _lines(path: Path) -> List[Json]:
    with _open(path) as f:
        return list(objects(f, path.name))


def _list(path: Path) -> List[Json]:
    with _open(path) as f:
        try:
            rows = json.load(f)
        except UnicodeDecodeError:
            raise
        except ValueError as e:
            raise Fail("bad_input", f"dataset: {path.name} is not JSON: {e}") from None
    if not isinstance(rows, list) or not all(isinstance(r, dict) for r in rows):
        raise Fail("bad_input", f"dataset: {path.name} is not a list of objects")
    return rows


def target(table: pd.DataFrame, name: Optional[str]) -> "tuple[pd.DataFrame, pd.Series, str]":
    """The rows whose target is known, their targets, and the column's name: the one that is asked for, or target, label, class or y."""
    if name is None:
        known = [c for c in table.columns if c.lower() in ("target", "label", "class", "y")]
        if len(known) != 1:
            raise Fail("bad_input", f"target: required: the column to learn; there are {listed(table.columns)}")
        name = known[0]
    elif name not in table.columns:
        raise Fail("bad_input", f"target: there is no column {name}; there are {listed(table.columns)}")
    there = table[name].notna()
    if not there.all():
        log(f"{int((~there).sum())} rows without a {name} are left out")
        table = table[there].reset_index(drop=True)
    if len(table) < 4:
        raise Fail("bad_input", f"dataset: {len(table)} rows have a {name}: at least 4 are needed")
    return table, table[name], name


def task_of(y: pd.Series) -> str:
    """classification or regression, as the values suggest."""
    if not pd.api.types.is_numeric_dtype(y) or pd.api.types.is_bool_dtype(y):
        return "classification"
    values = y.unique()
    whole = bool(np.all(np.asarray(values, float) == np.round(np.asarray(values, float))))
    return "classification" if whole and len(values) <= max(2, min(20, len(y) // 5)) else "regression"


def classes(y: pd.Series) -> "tuple[np.ndarray, List[str]]":
    """Each value's number and the values as texts, in order."""
    if pd.api.types.is_float_dtype(y) and bool((y == y.round()).all()):
        y = y.astype("int64")
    values = sorted(y.unique().tolist(), key=lambda v: (str(type(v)), v))
    if len(values) < 2:
        raise Fail("bad_input", f"target: all rows are of the one class {values[0]}: there is nothing to distinguish")
    if len(values) > 10_000 or len(values) > len(y) // 2:
        raise Fail("bad_input", f"target: {len(values)} different values in {len(y)} rows are not classes: use task: regression, or another target")
    number = {v: n for n, v in enumerate(values)}
    return np.asarray(y.map(number), np.int64), [str(v) for v in values]


def numbers(y: pd.Series) -> np.ndarray:
    """The target of a regression."""
    try:
        values: np.ndarray = np.asarray(pd.to_numeric(y), np.float64)
    except (ValueError, TypeError) as e:
        raise Fail("bad_input", f"target: not all values are numbers ({e}): use task: classification") from None
    if not np.isfinite(values).all():
        raise Fail("bad_input", f"target: row {int(np.argmin(np.isfinite(values))) + 1} is not a finite number")
    return values


def listed(names: Any) -> str:
    names = list(map(str, names))
    return ", ".join(names[:20]) + (", …" if len(names) > 20 else "")


class Columns:
    """How the columns of a table become numbers. It is learned from rows for training, and is plain JSON."""

    def __init__(self, columns: List[Json]) -> None:
        self.columns = columns

    @classmethod
    def learn(cls, table: pd.DataFrame, names: List[str]) -> "Columns":
        found = [c for name in names if (c := _column(table[name], name)) is not None]
        if not found:
            raise Fail("bad_input", f"dataset: no usable column; there are {listed(names)}")
        return cls(found)

    def apply(self, table: pd.DataFrame, keep_missing: bool = False) -> np.ndarray:
        """float32, one row for each of the table's. Missing numbers are the mean, or stay NaN."""
        parts: List[np.ndarray] = []
        for c in self.columns:
            if c["name"] not in table.columns:
                raise Fail("bad_input", f"dataset: column {c['name']}, with which the model was trained, is missing")
            values = table[c["name"]]
            if c["type"] == "number":
                v = _numeric(values, c["name"])
                missing = ~np.isfinite(v)
                v = (v - c["mean"]) / c["spread"]
                v[missing] = np.nan if keep_missing else 0
                parts.append(v[:, None])
                if c["missing"]:
                    parts.append(missing[:, None].astype(float))
            else:
                number = {v: n for n, v in enumerate(c["values"])}
                hot = np.zeros((len(values), len(number) + 1))
                at = [number.get(_text(v), len(number)) for v in values]
                hot[np.arange(len(values)), at] = 1
                parts.append(hot)
        return np.concatenate(parts, axis=1).astype(np.float32)


def _column(values: pd.Series, name: str) -> Optional[Json]:
    if pd.api.types.is_numeric_dtype(values) or pd.api.types.is_datetime64_any_dtype(values):
        v = _numeric(values, name)
        if np.isinf(v).any():
            raise Fail("bad_input", f"dataset: column {name} has an infinite value in row {int(np.argmax(np.isinf(v))) + 1}")
        there = v[np.isfinite(v)]
        if len(there) == 0:
            log(f"column {name} has no values and is left out")
            return None
        return {"name": name, "type": "number", "mean": float(there.mean()), "spread": float(there.std()) or 1.0, "missing": bool(np.isnan(v).any())}
    counts = Counter(map(_text, values[values.notna()]))
    if len(counts) > _CATEGORIES and len(counts) > len(values) // 2:
        log(f"column {name} has {len(counts)} different texts in {len(values)} rows and is left out: to learn from it, write text: {name}")
        return None
    if not counts:
        log(f"column {name} has no values and is left out")
        return None
    return {"name": name, "type": "category", "values": [v for v, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_CATEGORIES]]}


def _numeric(values: pd.Series, name: str) -> np.ndarray:
    if pd.api.types.is_datetime64_any_dtype(values):
        seconds: np.ndarray = np.asarray(values.astype("int64"), float)
        seconds[values.isna().to_numpy()] = np.nan
        return seconds
    if not pd.api.types.is_numeric_dtype(values):
        # Rows to predict may come from a smaller file, in which the column looks otherwise.
        got = pd.to_numeric(values, errors="coerce")
        if (bad := got.isna() & values.notna()).any():
            raise Fail("bad_input", f"dataset: column {name} has {values[bad].iloc[0]!r} where the model was trained with numbers")
        values = got
    return np.asarray(values.to_numpy(dtype=float, na_value=np.nan))


def _text(v: Any) -> str:
    if isinstance(v, float) and v.is_integer():
        return str(int(v))
    return str(v)


class Words:
    """How texts become numbers: which of the commonest words and pairs of words are in them."""

    def __init__(self, vocabulary: List[str]) -> None:
        self.vocabulary = vocabulary

    @classmethod
    def learn(cls, texts: "pd.Series") -> "Words":
        counts: "Counter[str]" = Counter()
        for text in texts:
            counts.update(set(_grams(text)))
        common = [w for w, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if n > 1][:_VOCABULARY]
        if not common:
            raise Fail("bad_input", "text: no word is in more than one text: there is nothing to learn")
        return cls(common)

    def apply(self, texts: "pd.Series") -> np.ndarray:
        number = {w: n for n, w in enumerate(self.vocabulary)}
        out = np.zeros((len(texts), len(number)), np.float32)
        for row, text in enumerate(texts):
            at = {number[g] for g in _grams(text) if g in number}
            if at:
                out[row, sorted(at)] = 1 / np.sqrt(len(at))
        return out


def _grams(text: Any) -> List[str]:
    words = re.findall(r"\w+", str(text).lower()) if isinstance(text, str) else []
    return words + [f"{a} {b}" for a, b in zip(words, words[1:])]
