import gzip
import json
import os
import random
import subprocess
import sys

import pytest

pytest.importorskip("pyarrow", reason="the runtime data needs pyarrow")
import pyarrow.parquet as pq  # noqa: E402


class Done:
    def __init__(self, folder, given):
        out = folder / "out"
        (folder / "input.json").write_text(json.dumps(given))
        env = {
            **os.environ,
            "MUSTER_TASK": "1.0",
            "MUSTER_INPUT": str(folder / "input.json"),
            "MUSTER_OUT": str(out),
            "MUSTER_EVENTS": str(folder / "events"),
            "PYTHONPATH": ":".join(sys.path),
        }
        program = "import atexit, resource, runpy\natexit.register(lambda: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))\nrunpy.run_module('muster_data.kind', run_name='__main__')"
        done = subprocess.run([sys.executable, "-c", program], cwd=folder, env=env, capture_output=True, text=True, timeout=600)
        self.said, self.status, self.peak = done.stdout + done.stderr, done.returncode, int(done.stdout.split()[-1]) << 10
        self.result = json.loads((out / "result.json").read_text()) if (out / "result.json").exists() else None
        self.failure = json.loads((out / "failure.json").read_text()) if (out / "failure.json").exists() else None
        self.out = out


TABLE = '''id,zip,price,ok,day,at,note
1,007,1.5,true,2024-01-02,2024-01-02 10:00:00,"a, ""b"""
2,123,NA,false,2024-02-03,2024-01-02 10:00:01.5,
3,999,3e2,TRUE,,,"two
lines"
3,999,-.5,,2024-02-29,,ü
'''


def test_a_profile_tells_each_column(tmp_path):
    (tmp_path / "t.csv").write_text(TABLE)
    done = Done(tmp_path, {"operation": "profile", "dataset": "t.csv"})
    assert done.status == 0, done.said
    columns = {c["name"]: c for c in done.result["columns"]}
    assert {n: c["type"] for n, c in columns.items()} == {
        "id": "int64", "zip": "string", "price": "double", "ok": "bool", "day": "date32[day]", "at": "timestamp[us]", "note": "string"
    }  # fmt: skip
    assert done.result["rows"] == 4 and done.result["duplicates"] == 0
    assert (columns["price"]["missing"], columns["price"]["min"], columns["price"]["max"]) == (1, -0.5, 300)
    assert columns["id"]["distinct"] == 3 and columns["id"]["mean"] == 2.25
    report = json.loads((done.out / "report.json").read_text())
    assert report["columns"][1]["top"][0] == {"value": "999", "count": 2}
    assert "| zip | string |" in (done.out / "report.md").read_text()


def test_figures_agree_with_those_of_all_values_at_once(tmp_path):
    import numpy as np

    values = np.random.default_rng(0).normal(1e6, 3, 50_000)
    (tmp_path / "t.csv").write_text("x\n" + "\n".join(map(repr, values.tolist())) + "\n")
    x = Done(tmp_path, {"operation": "profile", "dataset": "t.csv", "top": 0}).result["columns"][0]
    assert x["mean"] == pytest.approx(values.mean(), rel=1e-12)
    assert x["std"] == pytest.approx(values.std(ddof=1), rel=1e-9)
    assert x["quantiles"]["0.5"] == pytest.approx(np.median(values), rel=1e-12)


@pytest.mark.parametrize(("way", "compression"), [(["csv"], "none"), (["jsonl", "csv"], "gzip"), (["tsv", "json", "csv"], "none")])
def test_a_table_that_goes_round_is_the_same(tmp_path, way, compression):
    (tmp_path / "t.csv").write_text(TABLE)
    first = None
    name = "t.csv"
    for to in ["parquet", *way, "parquet"]:
        done = Done(tmp_path, {"operation": "convert", "dataset": name, "to": to, "compression": compression})
        assert done.status == 0, done.said
        name = done.result["output"]
        (tmp_path / name).write_bytes((done.out / name).read_bytes())
        if to == "parquet" and first is None:
            first = pq.read_table(tmp_path / name)
    last = pq.read_table(tmp_path / name)
    # JSON has no dates: its texts become dates again in a format without types.
    assert last.schema.names == first.schema.names
    assert [{k: str(v) for k, v in row.items()} for row in last.to_pylist()] == [{k: str(v) for k, v in row.items()} for row in first.to_pylist()]
    if "jsonl" not in way and "json" not in way:
        assert last.schema.types == first.schema.types


def test_what_json_can_hold_is_kept(tmp_path):
    rows = [{"a": 1, "b": [1, {"c": None}], "m": 1}, {"a": 2.5, "d": "x", "m": "1"}, {"b": None, "big": 2**70}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = Done(tmp_path, {"operation": "convert", "dataset": "t.jsonl", "to": "json"})
    assert done.status == 0, done.said
    assert json.loads((done.out / "t.json").read_text()) == [
        {"a": 1.0, "b": [1, {"c": None}], "m": 1, "d": None, "big": None},
        {"a": 2.5, "b": None, "m": "1", "d": "x", "big": None},
        {"a": None, "b": None, "m": None, "d": None, "big": 2**70},
    ]
    assert Done(tmp_path, {"operation": "convert", "dataset": "t.jsonl", "to": "parquet"}).status == 0
    assert json.loads(pq.read_table(tmp_path / "out" / "t.parquet")["b"][0].as_py()) == [1, {"c": None}]


def test_columns_and_rows_that_are_asked_for(tmp_path):
    (tmp_path / "t.csv").write_text(TABLE)
    given = {"operation": "convert", "dataset": "t.csv", "to": "csv", "select": ["zip", "id"], "rename": {"id": "number"}, "limit": 2, "output": "few.csv"}
    done = Done(tmp_path, given)
    assert (done.out / "few.csv").read_text() == '"zip","number"\n"007",1\n"123",2\n'
    assert "no column nix; there are id, zip" in Done(tmp_path, {**given, "select": ["nix"]}).failure["message"]
    assert "two columns would have the name zip" in Done(tmp_path, {**given, "rename": {"id": "zip"}}).failure["message"]


BAD = {
    "fields.csv": (b"a,b\n1,2\n3,4,5\n", "fields.csv line 3 has 3 fields, and the first line names 2"),
    "quote.csv": (b'a,b\n1,"x\n', "quote.csv line"),
    "latin.csv": (b"a,b\n1,2\n\xff,2\n", "latin.csv line 3 is not UTF-8"),
    "empty.csv": (b"", "empty.csv is empty"),
    "twice.csv": (b"a,a\n1,2\n", "several columns with the name a"),
    "short.csv.gz": (gzip.compress(b"a,b\n" + random.Random(0).randbytes(9000).hex().encode())[:-20], "short.csv.gz cannot be unpacked"),
    "no.jsonl": (b'{"a": 1}\n{"a": \n', "no.jsonl line 2 is not JSON"),
    "list.jsonl": (b'{"a": 1}\n[1]\n', "list.jsonl line 2 is not an object"),
    "no.json": (b'[{"a": 1}, {"a": }]', "object 2 of the list is not JSON"),
    "ends.json": (b'[{"a": 1}, {"a": 2}', "after object 2 of the list the file ends"),
    "object.json": (b'{"a": 1}', "is not a list of objects"),
    "no.parquet": (b"PAR1 is not enough", "no.parquet is damaged or not parquet"),
    "no.dat": (b"", "unknown format of no.dat"),
}


@pytest.mark.parametrize("name", BAD)
def test_damaged_files_are_named(tmp_path, name):
    content, want = BAD[name]
    (tmp_path / name).write_bytes(content)
    done = Done(tmp_path, {"operation": "convert", "dataset": name, "to": "jsonl"})
    assert done.status == 1, done.said
    assert done.failure["reason"] == "bad_input" and want in done.failure["message"], done.failure
    assert [p.name for p in done.out.iterdir()] == ["failure.json"]
    assert not list(tmp_path.glob(".*.part"))


def test_a_date_that_is_none_stays_a_text(tmp_path):
    (tmp_path / "t.csv").write_text("day\n2024-02-31\n2024-02-01\n")
    assert Done(tmp_path, {"operation": "profile", "dataset": "t.csv"}).result["columns"][0]["type"] == "string"


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells the peak in KiB only on Linux")
def test_memory_does_not_grow_with_the_file(tmp_path):
    line, peaks = ("x" * 1000 + ",12345\n") * 1000, []
    for lines in (50, 200):
        with open(tmp_path / "t.csv", "w") as f:
            f.write("text,n\n")
            for _ in range(lines):
                f.write(line)
        done = Done(tmp_path, {"operation": "convert", "dataset": "t.csv", "to": "parquet"})
        assert done.status == 0, done.said[-500:]
        assert done.result["rows"] == lines * 1000
        peaks.append(done.peak)
    assert peaks[1] - peaks[0] < 50 << 20, "the file has grown by 151 MB"
