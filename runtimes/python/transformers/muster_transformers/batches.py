"""Many items through a model: in batches, in order, and on from where an earlier attempt stopped."""

import hashlib
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

from muster import checkpoint_dir, out_dir
from muster_core import Fail, log, report

from . import items
from .backend import Backend
from .wire import Json

_MOST_SHOWN = 96 << 10  # bytes of predictions in the result; a result may have 256 KiB


class Journal:
    """What is done already: a line for each item, in their order, in the checkpoint of the task."""

    def __init__(self, of: Json, name: str = "items") -> None:
        key = hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()
        self.path = Path(checkpoint_dir()) / f"{name}.jsonl"
        self.done = 0
        good = 0  # bytes
        try:
            with open(self.path, "rb") as f:
                for n, line in enumerate(f):
                    if not line.endswith(b"\n") or n == 0 and json.loads(line) != {"of": key}:
                        break
                    if n > 0:
                        json.loads(line)
                        self.done += 1
                    good += len(line)
        except (OSError, ValueError):
            pass
        if good == 0:
            self.done = 0
        self.file = open(self.path, "r+b" if good else "wb")  # noqa: SIM115 - closed by close
        self.file.seek(good)
        self.file.truncate()
        if good == 0:
            self.file.write(json.dumps({"of": key}).encode() + b"\n")

    def add(self, records: List[Json]) -> None:
        self.file.write(b"".join(json.dumps(r, ensure_ascii=False).encode() + b"\n" for r in records))
        self.file.flush()
        os.fsync(self.file.fileno())
        self.done += len(records)

    def __iter__(self) -> Iterator[Json]:
        """The records so far."""
        self.file.flush()
        with open(self.path, encoding="utf-8") as f:
            next(f, None)
            for line in f:
                yield json.loads(line)

    def close(self) -> None:
        self.file.close()


def through(
    backend: Backend, raws: List[Any], params: Json, of: Json, *, what: str, at: "Optional[Callable[[int], str]]" = None, name: str = "items", field: Optional[str] = None, system: Optional[str] = None
) -> "tuple[Journal, Json]":
    """Process all items; returns their records and the metrics of this attempt.

    An unusable item has an error in its record; with params["on_error"] fail the first such item ends the task. The records depend
    on `of`: a journal with another value is discarded. at names an item in a failure by its index.
    """
    journal = Journal({**of, "items": _digest(raws)}, name)
    skipped, began = journal.done, time.monotonic()
    if skipped:
        log(f"{skipped} of {len(raws)} {what} were done by an earlier attempt")
    latencies: List[float] = []
    window = backend.batch_size(params)
    tokens = {"tokens_in": 0, "tokens_out": 0}
    strict = params.get("on_error") == "fail"
    modality = backend.about.get("modality", "text")
    try:
        while journal.done < len(raws):
            start = journal.done
            chunk = raws[start : start + window]
            records: List[Json] = [{} for _ in chunk]
            ready, where = [], []
            for i, raw in enumerate(chunk):
                try:
                    ready.append(items.read(raw, modality, field, system))
                    where.append(i)
                except items.BadItem as e:
                    records[i] = {"error": str(e)}

            def step(event: Json, start: int = start) -> None:
                text = event.get("text")
                figures = {k: v for k, v in event.items() if isinstance(v, (int, float))}
                said = event.get("step") or (f"{what} {start + 1}/{len(raws)}: {text}" if text else None)
                report(start / len(raws), said, **figures)

            if ready:
                seed = params.get("seed")
                here = {**params, "seed": seed + start} if seed is not None else params
                for i, record in zip(where, backend.run(ready, here, step)):
                    records[i] = record
            for i, (raw, record) in enumerate(zip(chunk, records)):
                head: Json = {"index": start + i}
                if (name := items.name_of(raw)) is not None:
                    head["id"] = name
                records[i] = {**head, **record}
            journal.add(records)
            for r in records:
                if "error" in r:
                    if strict or len(raws) == 1:
                        raise Fail("bad_input", f"{at(r['index']) if at else what + ' ' + str(r['index'])}: {r['error']}", item=r["index"])
                    log(f"{what} {r['index']}: {r['error']}")
                latencies += [r["latency_ms"]] if "latency_ms" in r else []
                for k in tokens:
                    tokens[k] += int(r.get(k, 0))
            took = max(time.monotonic() - began, 1e-9)
            figures = {"items_per_second": (journal.done - skipped) / took}
            if tokens["tokens_out"]:
                figures["tokens_per_second"] = tokens["tokens_out"] / took
            report(journal.done / len(raws), f"{what} {journal.done}/{len(raws)}", **figures)
    except BaseException:
        save(journal, "predictions.jsonl", partly=True)  # finished items stay
        journal.close()
        raise
    took = time.monotonic() - began
    failed = sum("error" in r for r in journal)
    if failed == len(raws):
        first = next(iter(journal))
        save(journal, "predictions.jsonl")
        raise Fail("bad_input", f"none of the {len(raws)} can be used; {what} 0: {first['error']}")
    return journal, {
        "items": len(raws),
        "failed": failed,
        "resumed": skipped,
        "seconds": round(took, 3),
        "items_per_second": round((len(raws) - skipped) / max(took, 1e-9), 3),
        **({k: v for k, v in tokens.items() if v}),
        **({"tokens_per_second": round(tokens["tokens_out"] / max(took, 1e-9), 2)} if tokens["tokens_out"] else {}),
        **({"latency": spread(latencies)} if latencies else {}),
    }


def loaded(backend: Backend) -> Json:
    """The model as results describe it."""
    about: Json = {k: v for k, v in backend.about.items() if k != "modality"}
    if backend.warm:
        about["load_seconds"] = round(backend.greeting, 3)
    return {**about, "warm": backend.warm}


def save(records: "Journal | List[Json]", name: str, partly: bool = False) -> None:
    """Write records as an artifact, one per line, unless there are none."""
    if partly and not next(iter(records), None):
        return
    path = out_dir() / name
    part = path.with_name(f".{name}.part")
    with open(part, "w", encoding="utf-8") as f:
        for r in records:
            f.write(json.dumps(r, ensure_ascii=False) + "\n")
    os.replace(part, path)


def shown(records: "Journal | List[Json]") -> "tuple[List[Json], bool]":
    """The first records, as many as a result can hold, and whether those are all."""
    first: List[Json] = []
    room = _MOST_SHOWN
    for r in records:
        room -= len(json.dumps(r))
        if room < 0:
            return first, False
        first.append(r)
    return first, True


def spread(values: List[float]) -> Dict[str, float]:
    ordered = sorted(values)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3)

    return {"mean_ms": round(statistics.fmean(ordered), 3), "p50_ms": at(0.5), "p95_ms": at(0.95), "p99_ms": at(0.99), "max_ms": round(ordered[-1], 3)}


def _digest(raws: List[Any]) -> str:
    h = hashlib.sha256()
    for raw in raws:
        h.update(json.dumps(raw, sort_keys=True, ensure_ascii=False).encode() + b"\n")
    return h.hexdigest()
