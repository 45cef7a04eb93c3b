"""Documents in pieces, and an index of their vectors: one safetensors file, searched exactly."""

import json
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional

from muster_core import Fail

from . import items
from .wire import Json

_TEXTS = (".txt", ".md", ".rst", ".text")
_LINES = (".jsonl", ".ndjson")


def documents(given: Any, field: Optional[str]) -> List[Json]:
    """All documents of an input: {"source", "text"} each."""
    if isinstance(given, str):
        path = Path(given)
        if path.is_dir():
            found = [p for p in sorted(path.rglob("*")) if p.is_file() and p.suffix.lower() in _TEXTS + _LINES]
            if not found:
                raise Fail("bad_input", f"documents: there are no {', '.join(_TEXTS + _LINES)} files in {given}")
            return [d for p in found for d in _file(p, str(p.relative_to(path)), field)]
        if not path.exists():
            raise Fail("bad_input", f"documents: there is no file or folder {given} in the task's folder; write texts as a list")
        return _file(path, path.name, field)
    return [_one(raw, f"documents.{n}", field) for n, raw in enumerate(given)]


def _file(path: Path, source: str, field: Optional[str]) -> List[Json]:
    if path.suffix.lower() in _LINES:
        return [_one(raw, f"{source}:{n}", field) for n, raw in enumerate(items.from_file(path, "documents"), 1)]
    try:
        return [{"source": source, "text": path.read_text(encoding="utf-8")}]
    except UnicodeDecodeError as e:
        raise Fail("bad_input", f"documents: {source} is not UTF-8 text ({e})") from e


def _one(raw: Any, source: str, field: Optional[str]) -> Json:
    try:
        item = items.read(raw, "text", field)
    except items.BadItem as e:
        raise Fail("bad_input", f"documents: {source}: {e}") from e
    if isinstance(raw, dict):
        source = str(raw.get("source") or raw.get("id") or source)
    return {"source": source, "text": item["text"]}


def pieces(documents: Iterable[Json], size: int, overlap: int) -> List[Json]:
    """Passages of at most `size` words, each with the last `overlap` words of the one before. They end with a paragraph or a sentence where one ends in
    their second half. The position of a passage in its document is in characters."""
    if overlap >= size:
        raise Fail("bad_input", f"chunk_overlap: {overlap} words of a passage of {size} leave nothing new: use less than chunk_size")
    found = []
    for d in documents:
        text = d["text"]
        words = _words(text)
        at = 0
        while at < len(words):
            end = min(at + size, len(words))
            if end < len(words):
                end = _ending(text, words, at + max(size // 2, overlap + 1), end)
            start, stop = words[at][0], words[end - 1][1]
            found.append({"source": d["source"], "start": start, "end": stop, "text": text[start:stop]})
            if end == len(words):
                break
            at = end - overlap
    return found


def _words(text: str) -> "List[tuple[int, int]]":
    import re

    return [m.span() for m in re.finditer(r"\S+", text)]


def _ending(text: str, words: "List[tuple[int, int]]", least: int, most: int) -> int:
    """Where a passage should end: behind the last word before a blank line, or of a sentence, between these."""
    sentence = most
    for k in range(most, least - 1, -1):
        if "\n\n" in text[words[k - 1][1] : words[k][0]]:
            return k
        if sentence == most and text[words[k - 1][1] - 1] in ".!?。！？":
            sentence = k
    return sentence


class Index:
    """Passages and their vectors, all of length 1."""

    def __init__(self, passages: List[Json], vectors: Any, model: str, dimensions: int) -> None:
        self.passages, self.vectors, self.model, self.dimensions = passages, vectors, model, dimensions

    @classmethod
    def read(cls, path: str, model: str) -> "Index":
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="np") as f:
                head: Dict[str, str] = f.metadata() or {}
                vectors = f.get_tensor("vectors")
                passages = json.loads(bytes(f.get_tensor("passages")).decode("utf-8"))
        except FileNotFoundError:
            raise Fail("bad_input", f"index: there is no file {path} in the task's folder") from None
        except (SafetensorError, ValueError, KeyError, OSError) as e:
            raise Fail("bad_input", f"index: {path} is not an index of this kind, or is damaged: {e}") from e
        if len(passages) != len(vectors):
            raise Fail("bad_input", f"index: {path} is damaged: it has {len(passages)} passages and {len(vectors)} vectors")
        if head.get("model") != model:
            raise Fail("bad_input", f"model: the index was created with {head.get('model')}, and vectors of {model} cannot be compared with it")
        return cls(passages, vectors, model, int(vectors.shape[1]))

    def write(self, path: Path) -> None:
        import numpy as np
        from safetensors.numpy import save_file

        text = np.frombuffer(json.dumps(self.passages, ensure_ascii=False).encode("utf-8"), dtype=np.uint8)
        part = path.with_name(f".{path.name}.part")
        save_file({"vectors": self.vectors, "passages": text}, str(part), metadata={"model": self.model, "format": "muster-rag-1"})
        part.replace(path)

    def nearest(self, queries: Any, top: int, least: Optional[float]) -> List[List[Json]]:
        """The passages nearest to each query, the best first: all are compared."""
        import numpy as np

        found = []
        for q in queries:
            scores = self.vectors @ q
            k = min(top, len(scores))
            best = np.argpartition(-scores, k - 1)[:k]
            best = best[np.lexsort((best, -scores[best]))]
            found.append([{**self.passages[i], "score": round(float(scores[i]), 6)} for i in best if least is None or scores[i] >= least])
        return found
