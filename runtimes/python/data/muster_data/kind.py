"""The kind data: a table described, or in another format."""

import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import muster
import pyarrow as pa
from muster_core import Fail, fetch, out_dir, report, run, save_json

from .profile import Column, Rows, markdown
from .sink import SUFFIX, Sink
from .source import Source, form

Json = Dict[str, Any]


def work(given: Json) -> Json:
    path = fetch.bring(given["dataset"], "dataset")
    if path.is_dir():
        raise Fail("bad_input", f"dataset: {given['dataset']} is a folder: name one file of it")
    if given["operation"] == "convert":
        return _convert(path, given)
    for field in ("to", "output", "compression", "rename"):
        if field in given:
            raise Fail("bad_input", f"{field}: is of the operation convert, not of profile")
    return _profile(path, given)


def _profile(path: Path, given: Json) -> Json:
    source = Source(path, given.get("format"), given.get("separator"), _telling("profiling"))
    fields = _selected(source.schema, given)
    columns, rows = [Column(f, given.get("top", 10)) for f in fields], Rows()
    for batch in _taken(source, fields, given):
        rows.add(batch)
        for column, values in zip(columns, batch.columns):
            column.add(values)
    columns_report = [c.record() for c in columns]
    about: Json = {"operation": "profile", "dataset": given["dataset"], "format": source.how, "bytes": path.stat().st_size, **rows.record()}
    save_json("report.json", {**about, "columns": columns_report})
    muster.save("report.md", markdown(path.name, about, columns_report))
    # The result has no more than 256 KiB: values are in the report.
    return {**about, "columns": [{k: v for k, v in c.items() if k != "top"} for c in columns_report[:300]], "reportUrl": "ipfs://{report.json}"}


def _convert(path: Path, given: Json) -> Json:
    how = given.get("to") or (form(Path(given["output"])) if "output" in given else None)
    if how is None:
        raise Fail("bad_input", "to: required: the target format, csv, tsv, jsonl, json or parquet")
    source = Source(path, given.get("format"), given.get("separator"), _telling("converting"))
    fields = _selected(source.schema, given)
    names = _renamed(fields, given.get("rename", {}))
    schema = pa.schema([f.with_name(n) for f, n in zip(fields, names)])
    gz = ".gz" if how != "parquet" and given.get("compression") == "gzip" else ""
    stem = path.name[:-3] if path.name.endswith(".gz") else path.name
    output = given.get("output") or Path(stem).stem + SUFFIX[how] + gz
    sink = Sink(out_dir() / output, how, given.get("compression"), schema)
    try:
        for batch in _taken(source, fields, given):
            sink.write(pa.record_batch(batch.columns, schema=schema))
        size = sink.close()
    finally:
        sink.part.unlink(missing_ok=True)
    columns = [{"name": f.name, "type": str(f.type)} for f in schema][:1000]
    return {
        "operation": "convert",
        "dataset": given["dataset"],
        "format": how,
        "rows": sink.rows,
        "columns": columns,
        "output": output,
        "bytes": size,
        "outputUrl": f"ipfs://{{{output}}}",
    }


def _selected(schema: pa.Schema, given: Json) -> List[pa.Field]:
    if "select" not in given:
        return list(schema)
    for name in given["select"]:
        if name not in schema.names:
            raise Fail("bad_input", f"select: there is no column {name}; there are {', '.join(schema.names[:20])}")
    return [schema.field(name) for name in given["select"]]


def _renamed(fields: List[pa.Field], names: "Dict[str, str]") -> List[str]:
    there = [f.name for f in fields]
    for name in names:
        if name not in there:
            raise Fail("bad_input", f"rename: there is no column {name}; there are {', '.join(there[:20])}")
    new = [names.get(n, n) for n in there]
    for name in new:
        if new.count(name) > 1:
            raise Fail("bad_input", f"rename: two columns would have the name {name}")
    return new


def _taken(source: Source, fields: List[pa.Field], given: Json) -> Iterator[pa.RecordBatch]:
    """The columns and rows that are asked for."""
    left = given.get("limit")
    for batch in source.batches():
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        yield pa.record_batch([batch.column(f.name) for f in fields], schema=pa.schema(fields))
        if left == 0:
            return


def _telling(step: str) -> Callable[[float], None]:
    last = 0.0

    def tell(share: float) -> None:
        nonlocal last
        if time.monotonic() - last >= 1 or share >= 1:
            last = time.monotonic()
            report(min(share, 1.0), step)

    return tell


if __name__ == "__main__":
    run(work)
