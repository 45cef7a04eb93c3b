"""The kind embedding: texts to vectors."""

import struct
from pathlib import Path
from typing import Any, List

from muster import out_dir
from muster_core import run

from . import batches
from .backend import Backend
from .batches import Journal
from .items import given_items, places
from .loading import EMBEDDING, Wanted
from .wire import Json


def embedding(given: Json) -> Json:
    raws = given_items(given, "input", "inputs", "input_file")
    if given.get("prompt_name"):
        raws = [{**(r if isinstance(r, dict) else {"text": r}), "prompt_name": given["prompt_name"]} for r in raws]
    wanted = Wanted.of(given, task=EMBEDDING)
    backend = Backend(wanted)
    params = {k: given[k] for k in ("batch_size", "auto_batch", "on_error", "truncate", "normalize") if given.get(k) is not None}
    of = {"wanted": wanted.message(), "field": given.get("field"), "truncate": given.get("truncate"), "normalize": given.get("normalize")}
    records, figures = batches.through(backend, raws, params, of, what="text", at=places(given, "text"), field=given.get("field"))
    form = given.get("format") or "jsonl"
    dimensions = int(backend.about["dimensions"])
    if form == "npy":
        write_npy(records, dimensions, out_dir() / "embeddings.npy", len(raws))
        batches.save([{k: v for k, v in r.items() if k != "prediction"} for r in records], "items.jsonl")
    else:
        batches.save([_embedded(r) for r in records], "embeddings.jsonl")
    predictions, complete = batches.shown([_embedded(r) for r in _first(records)])
    records.close()
    return {
        "jobType": "embedding",
        "status": "success",
        "embeddings": predictions,
        "complete": complete and len(raws) <= _MOST,
        "artifact": f"embeddings.{form}",
        **batches.loaded(backend),
        **figures,
    }


_MOST = 100  # vectors in the result


def _first(records: Journal) -> List[Json]:
    return [r for r, _ in zip(records, range(_MOST))]


def _embedded(record: Json) -> Json:
    return {("embedding" if k == "prediction" else k): v for k, v in record.items()}


def write_npy(records: Any, dimensions: int, path: Path, rows: int) -> None:
    """A NumPy file of float32, a row for each record; that of an item which could not be used is NaN."""
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {dimensions}), }}"
    head += " " * (-(10 + len(head) + 1) % 64) + "\n"
    none = [float("nan")] * dimensions
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        for r in records:
            f.write(struct.pack(f"<{dimensions}f", *r.get("prediction", none)))


if __name__ == "__main__":
    run(embedding)
