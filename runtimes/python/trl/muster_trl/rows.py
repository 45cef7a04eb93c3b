"""Data sets: files of the task, URLs, data sets of the hub and rows in the input itself, as rows of known columns.

Each row knows its place, so that errors can name the line of the file.
"""

import csv
import gzip
import json
import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from muster_core import Fail, log, models
from muster_core.fetch import bring, is_url

from .settings import Plan

_CLASSES_HELD_OUT = 0.1  # of the rows

Row = Dict[str, Any]
Placed = Tuple[str, Row]  # "data.jsonl, line 17" and its content

_FILES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".txt")

# Other names that data sets give to a column, in the order in which they are looked for.
_ALIASES = {
    "text": ("text",),
    "messages": ("messages", "conversations"),
    "prompt": ("prompt", "instruction", "question", "query"),
    "completion": ("completion", "response", "output", "answer"),
    "chosen": ("chosen",),
    "rejected": ("rejected",),
    "label": ("label", "labels"),
}

# The forms that each way of training takes, in the order in which they are looked for.
FORMS: "Dict[str, List[Tuple[str, ...]]]" = {
    "sft": [("messages",), ("prompt", "completion"), ("text",)],
    "classification": [("text", "label")],
    "auto": [("messages",), ("prompt", "completion"), ("text", "label"), ("text",)],
    "dpo": [("prompt", "chosen", "rejected"), ("chosen", "rejected")],
    "ppo": [("prompt",)],
}


class Rows:
    """The rows of one data set in the columns of one form."""

    def __init__(self, name: str, form: "Tuple[str, ...]", rows: "List[Row]", places: "List[str]") -> None:
        self.name, self.form, self.rows, self.places = name, form, rows, places

    def __len__(self) -> int:
        return len(self.rows)


def brought(dataset: Any, field: str) -> Any:
    """The same data set with what it downloads lying in the task's folder."""
    if isinstance(dataset, str):
        return str(bring(dataset, field)) if is_url(dataset) else dataset
    if isinstance(dataset, dict):
        jsonl = dataset.get("jsonl") or {}
        url = dataset.get("url") or jsonl.get("url") or jsonl.get("download_url")
        if url:
            rest = {k: v for k, v in dataset.items() if k not in ("url", "jsonl")}
            return {**rest, "path": str(bring(url, f"{field}.url"))}
        if jsonl.get("path"):
            rest = {k: v for k, v in dataset.items() if k != "jsonl"}
            return {**rest, "path": jsonl["path"]}
    return dataset


def parts(plan: Plan) -> "Tuple[Rows, Optional[Rows]]":
    """The rows to train with and those to evaluate with."""
    way = plan.teaches if plan.kind != "fine_tuning" or plan.task == "text" else plan.task
    train = read(plan.dataset, way)
    if plan.eval_dataset is None:
        share = plan.training.eval_split
        return held_out(train, share if share is not None else _CLASSES_HELD_OUT if "label" in train.form else 0, plan.training.seed)
    held = read(plan.eval_dataset, way, "eval_dataset")
    if held.form != train.form:
        raise Fail("bad_input", f"eval_dataset has {' and '.join(held.form)}, and dataset {' and '.join(train.form)}: they must have the same form")
    return train, held


def read(dataset: Any, way: str, field: str = "dataset") -> Rows:
    """Read a data set for a way of training: sft, classification, dpo or ppo."""
    if dataset is None:
        raise Fail("bad_input", f"{field}: required: a file in the task's folder, a URL, a name of the hub, or rows")
    options: Dict[str, Any] = dataset if isinstance(dataset, dict) else {}
    name, placed = _source(dataset, options, field)
    most = options.get("max_samples") or 0
    found: List[Placed] = []
    for one in placed:
        found.append(one)
        if most and len(found) >= most:
            break
    if not found:
        raise Fail("bad_input", f"{field}: {name} is empty")
    columns = _columns(options)
    form, names = _form(found, way, columns, name, field)
    separator = options.get("separator") or ""
    rows = [_checked(_taken(row, names, way), form, way, f"{field}: {place}", separator) for place, row in found]
    return Rows(name, form, rows, [place for place, _ in found])


def _source(dataset: Any, options: Row, field: str) -> "Tuple[str, Iterator[Placed]]":
    inline = dataset if isinstance(dataset, list) else options.get("rows") or options.get("items") or options.get("prompts")
    if inline is not None:
        if not isinstance(inline, list):
            raise Fail("bad_input", f"{field}: rows is not a list")
        return "the input", _inline(inline)
    where = dataset if isinstance(dataset, str) else options.get("path") or options.get("url") or options.get("name") or options.get("dataset_name")
    if not where:
        raise Fail("bad_input", f"{field}: path, url, name or rows is required")
    path = Path(where)
    if not is_url(where) and not path.exists() and not options.get("path") and _is_name(where):
        return where, _hub(where, options, field)
    path = bring(where, field)
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file() and _kind(p) in _FILES)
        if not files:
            raise Fail("bad_input", f"{field}: the folder {where} has no file that ends in {', '.join(_FILES)}")
        return where, (one for p in files for one in _file(p, field))
    return where, _file(path, field)


def _is_name(where: str) -> bool:
    return re.fullmatch(r"[\w.-]+(/[\w.-]+)?", where) is not None and not where.endswith((*_FILES, ".gz")) and not where.startswith(".")


def _kind(path: Path) -> str:
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def _inline(items: "List[Any]") -> "Iterator[Placed]":
    for n, item in enumerate(items, 1):
        yield f"row {n}", item if isinstance(item, dict) else {"text": item, "prompt": item}


def _file(path: Path, field: str) -> "Iterator[Placed]":
    kind = _kind(path)
    if kind not in _FILES:
        raise Fail("bad_input", f"{field}: {path.name} has an unsupported format: its name must end in {', '.join(_FILES)}, or one of them and .gz")
    if kind == ".parquet":
        yield from _parquet(path, field)
        return
    opened: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    line = 0
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="" if kind in (".csv", ".tsv") else None) as f:
            if kind == ".txt":
                for line, text in enumerate(f, 1):
                    if text.strip():
                        yield f"{path.name}, line {line}", {"text": text.rstrip("\n"), "prompt": text.rstrip("\n")}
            elif kind in (".csv", ".tsv"):
                table = csv.DictReader(f, delimiter="\t" if kind == ".tsv" else ",", strict=True)
                for row in table:
                    line = table.line_num
                    if None in row or any(v is None for v in row.values()):
                        raise Fail("bad_input", f"{field}: {path.name}, line {line} has another number of cells than its header ({len(table.fieldnames or [])})")
                    yield f"{path.name}, line {line}", row
            elif kind == ".json":
                whole = json.load(f)
                items = whole if isinstance(whole, list) else next((v for v in whole.values() if isinstance(v, list)), None) if isinstance(whole, dict) else None
                if items is None:
                    raise Fail("bad_input", f"{field}: {path.name} is not a list of rows")
                for n, item in enumerate(items, 1):
                    yield f"{path.name}, row {n}", _object(item, f"{field}: {path.name}, row {n}")
            else:
                for line, text in enumerate(f, 1):
                    if text.strip():
                        yield f"{path.name}, line {line}", _object(json.loads(text), f"{field}: {path.name}, line {line}")
    except json.JSONDecodeError as e:
        raise Fail("bad_input", f"{field}: {path.name}, line {max(line, e.lineno)} is not JSON: {e.msg} at column {e.colno}") from e
    except UnicodeDecodeError as e:
        raise Fail("bad_input", f"{field}: {path.name}, after line {line} is not UTF-8 text: {e.reason}") from e
    except (csv.Error, gzip.BadGzipFile, EOFError) as e:
        raise Fail("bad_input", f"{field}: {path.name}, after line {line} cannot be read: {e or 'it is truncated'}") from e


def _parquet(path: Path, field: str) -> "Iterator[Placed]":
    import pyarrow
    import pyarrow.parquet

    n = 0
    try:
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=1024):
            for row in batch.to_pylist():
                n += 1
                yield f"{path.name}, row {n}", row
    except (pyarrow.ArrowException, OSError) as e:
        if getattr(e, "errno", None):
            raise
        raise Fail("bad_input", f"{field}: {path.name}, after row {n} is not Parquet: {str(e).splitlines()[0]}") from e


def _hub(name: str, options: Row, field: str) -> "Iterator[Placed]":
    import datasets
    from datasets.naming import camelcase_to_snakecase

    owner, _, own = name.rpartition("/")
    for cached in (f"datasets--{name.replace('/', '--')}", f"{owner}___{camelcase_to_snakecase(own)}".removeprefix("___")):
        models.use(cached)  # downloads and their conversions: no cleanup removes them meanwhile
    split = options.get("split") or "train"
    try:
        found = datasets.load_dataset(name, options.get("config") or options.get("config_name"), split=split, revision=options.get("revision"))
    except Exception as e:  # noqa: BLE001 - explained, or raised again
        raise _explained(e, name, split, field) from e
    for n, row in enumerate(found, 1):
        yield f"{name}, row {n}", row


def _explained(e: Exception, name: str, split: str, field: str) -> Exception:
    names = {c.__name__ for c in type(e).__mro__}
    text = (str(e).strip().splitlines() or [type(e).__name__])[0].rstrip(".")
    if isinstance(e, (ImportError, MemoryError)) or isinstance(e, OSError) and e.errno is not None and "ConnectionError" not in names:
        return e
    if "GatedRepoError" in names:
        return Fail("bad_input", f"{field}: {name} is gated: accept its terms at https://huggingface.co/datasets/{name}, and pass a token as the job's secret HF_TOKEN")
    if "ConnectionError" in names or "OfflineModeIsEnabled" in names or "LocalEntryNotFoundError" in names:
        return Fail("dependency", f"{field}: {name} is not on this worker, and the hub cannot be reached ({text}): connect the worker to it or set HF_ENDPOINT, or add the data set as a file")
    if "DatasetNotFoundError" in names:
        return Fail("bad_input", f"{field}: there is no {name}: the task's folder has no such file, and the hub has no such data set")
    if isinstance(e, ValueError):
        return Fail("bad_input", f"{field}: {name} has nothing for split {split}: {text}")
    return e


def _object(item: Any, place: str) -> Row:
    if not isinstance(item, dict):
        raise Fail("bad_input", f"{place} is not an object of columns and values")
    return item


def _columns(options: Row) -> "Dict[str, str]":
    """Our names of columns to the data set's."""
    columns = dict(options.get("columns") or {})
    for ours, theirs in (("prompt", "prompt_column"), ("completion", "response_column"), ("text", "text_field"), ("text", "column"), ("label", "label_column")):
        if options.get(theirs):
            columns.setdefault(ours, options[theirs])
    return columns


def _form(found: "List[Placed]", way: str, columns: "Dict[str, str]", name: str, field: str) -> "Tuple[Tuple[str, ...], Dict[str, str]]":
    """The form that a data set has by its first row, and which of its columns are those of the form."""
    there = list(found[0][1])
    for ours, theirs in columns.items():
        if theirs not in there:
            raise Fail("bad_input", f"{field}: {name} has no column {theirs} (for {ours}); it has {', '.join(map(str, there)) or 'none'}")
    for form in FORMS[way]:
        taken = {ours: next((c for c in ((columns[ours],) if ours in columns else _ALIASES[ours]) if c in there), "") for ours in form}
        if all(taken.values()):
            return form, taken
    forms = ", or ".join(" and ".join(f) for f in FORMS[way])
    raise Fail("bad_input", f"{field}: {name} has the columns {', '.join(map(str, there)) or 'none'}, and {forms} {'is' if len(FORMS[way]) == 1 else 'are'} needed: map the columns with {field}.columns")


def _taken(row: Row, names: "Dict[str, str]", way: str) -> Row:
    took = {ours: row.get(theirs) for ours, theirs in names.items()}
    if names.get("prompt") == "instruction" and isinstance(row.get("input"), str) and row["input"].strip():
        took["prompt"] = f"{row['instruction']}\n\n{row['input']}"
    if way == "ppo":  # a reward may look at the rest
        took.update({k: v for k, v in row.items() if k not in names.values()})
    return took


def _checked(row: Row, form: "Tuple[str, ...]", way: str, place: str, separator: str) -> Row:
    for name in form:
        value = row.get(name)
        if name == "label":
            if value is None or isinstance(value, (dict, list)) or value == "":
                raise Fail("bad_input", f"{place}: label is {'missing' if value in (None, '') else 'neither a word nor a number'}")
        elif name == "messages" or isinstance(value, list) and name in ("prompt", "completion", "chosen", "rejected"):
            row[name] = _messages(value, f"{place}: {name}")
        elif not isinstance(value, str):
            raise Fail("bad_input", f"{place}: {name} is {'missing' if value is None else 'not a text'}")
        elif not value.strip() and name != "completion":
            raise Fail("bad_input", f"{place}: {name} is empty")
    if way in ("sft", "dpo") and len({isinstance(row[name], list) for name in form}) > 1:
        raise Fail("bad_input", f"{place}: {' and '.join(form)} must be all texts, or all lists of messages")
    if way == "dpo" and row["chosen"] == row["rejected"]:
        raise Fail("bad_input", f"{place}: chosen and rejected are the same: one of them must be better")
    if separator and isinstance(row.get("prompt"), str) and "completion" in row:
        row["prompt"] += separator
    return row


def _messages(value: Any, place: str) -> "List[Row]":
    if not isinstance(value, list) or not value:
        raise Fail("bad_input", f"{place} is not a list of messages, each with role and content")
    took = []
    for message in value:
        if isinstance(message, dict) and "from" in message and "value" in message:  # ShareGPT's
            who = {"human": "user", "gpt": "assistant"}.get(message["from"], message["from"])
            message = {"role": who, "content": message["value"]}
        if not isinstance(message, dict) or not isinstance(message.get("role"), str) or not isinstance(message.get("content"), str):
            raise Fail("bad_input", f"{place} has a message without role or content")
        took.append({"role": message["role"], "content": message["content"]})
    return took


def held_out(rows: Rows, share: float, seed: int) -> "Tuple[Rows, Optional[Rows]]":
    """Split off a share for evaluation, the same for the same seed; at least one row stays on each side."""
    if not share:
        return rows, None
    if len(rows) < 2:
        raise Fail("bad_input", f"training.eval_split: {rows.name} has a single row, so none can be held out")
    import random

    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)
    n = min(max(1, round(share * len(rows))), len(rows) - 1)

    def part(indices: "List[int]") -> Rows:
        return Rows(rows.name, rows.form, [rows.rows[i] for i in indices], [rows.places[i] for i in indices])

    log(f"{n} of {len(rows)} rows are held out for evaluation")
    return part(sorted(order[n:])), part(sorted(order[:n]))
