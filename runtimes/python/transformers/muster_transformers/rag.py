"""The kind rag: documents are cut into passages and indexed, questions are answered with those nearest to them."""

from typing import Any, List, Optional

from muster import out_dir
from muster_core import Fail, log, report, run

from . import batches
from .backend import Backend
from .loading import EMBEDDING, GENERATION, Wanted
from .passages import Index, documents, pieces
from .wire import Json

_PROMPT = """Answer the question with what the passages say, and name the numbers of those you used, such as [1]. If they do not tell, say so.

{context}

Question: {question}
Answer:"""

_NEW = 256  # tokens of an answer, or a quarter of what the generator reads


def rag(given: Json) -> Json:
    queries = [given["query"]] if given.get("query") else []
    queries += given.get("queries") or []
    prompt = given.get("prompt") or _PROMPT
    for name in ("{question}", "{context}"):
        if name not in prompt:
            raise Fail("bad_input", f"prompt: the placeholder {name} is missing")
    if given.get("generator") and not queries:
        raise Fail("bad_input", "query: a generator needs questions: set query or queries")
    passages = (
        pieces(documents(given["documents"], given.get("field")), int(given.get("chunk_size") or 200), int(given.get("chunk_overlap", 40)))
        if given.get("documents")
        else []
    )
    if given.get("documents") and not passages:
        raise Fail("bad_input", "documents: they have no text")
    wanted = Wanted.of({k: v for k, v in given.items() if k != "task"}, task=EMBEDDING)
    index, embedder, figures = _indexed(given, wanted, passages)
    if passages:
        index.write(out_dir() / "index.safetensors")
    result: Json = {
        "jobType": "rag",
        "status": "success",
        "passages": len(index.passages),
        "indexed": len(passages),
        "model": batches.loaded(embedder),
        **({"index": "index.safetensors", **figures} if passages else {}),
    }
    if not queries:
        return result
    found = index.nearest(_vectors(embedder, queries, {}, "query", given), int(given.get("top_k") or 5), given.get("min_score"))
    answers: List[Json] = [{"query": q, "passages": p} for q, p in zip(queries, found)]
    if given.get("generator"):
        del embedder  # its memory may be needed
        report(step="answering")
        result["generator"], generated = _answered(given, prompt, answers)
        result["generation"] = generated
    batches.save(answers, "answers.jsonl")
    result["answers"], result["complete"] = batches.shown(answers)
    return result


def _indexed(given: Json, wanted: Wanted, passages: List[Json]) -> "tuple[Index, Backend, Json]":
    import numpy as np

    old = Index.read(given["index"], wanted.model) if given.get("index") else None
    embedder = Backend(wanted)
    figures: Json = {}
    vectors: Any = np.zeros((0, int(embedder.about["dimensions"])), dtype=np.float32)
    if passages:
        params = {"normalize": True, "truncate": True, **{k: given[k] for k in ("batch_size", "auto_batch") if given.get(k) is not None}}
        records, figures = batches.through(embedder, [p["text"] for p in passages], params, {"rag": wanted.message()}, what="passage", name="passages")
        vectors = np.asarray([r["prediction"] for r in records if "error" not in r], dtype=np.float32)
        passages = [p for p, r in zip(passages, records) if "error" not in r]
        records.close()
    if old is not None:
        if old.dimensions != vectors.shape[1]:
            raise Fail(
                "bad_input", f"index: its vectors have {old.dimensions} numbers, and those of {wanted.model} {vectors.shape[1]}: it is of another revision"
            )
        passages, vectors = old.passages + passages, np.concatenate([old.vectors, vectors])
    return Index(passages, np.ascontiguousarray(vectors), wanted.model, vectors.shape[1]), embedder, figures


def _vectors(embedder: Backend, texts: List[str], params: Json, prompt_name: Optional[str], given: Json) -> Any:
    import numpy as np

    records = embedder.run([{"text": t, "prompt_name": prompt_name} for t in texts], {"normalize": True, "truncate": True, **params}, lambda event: None)
    for n, r in enumerate(records):
        if "error" in r:
            raise Fail("bad_input", f"queries[{n}]: {r['error']}")
    return np.asarray([r["prediction"] for r in records], dtype=np.float32)


def _answered(given: Json, prompt: str, answers: List[Json]) -> "tuple[Json, Json]":
    """Have the generator answer each question, with the sources that it was shown."""
    wanted = Wanted.of(
        {k: given[k] for k in ("device", "dtype", "trust_remote_code") if given.get(k) is not None},
        model=given["generator"],
        revision=given.get("generator_revision"),
        task=GENERATION,
    )
    generator = Backend(wanted)
    most = int(generator.about.get("max_tokens") or 0)

    def asked(a: Json, passages: List[str]) -> Json:
        context = "\n\n".join(f"[{n}] {text}" for n, text in enumerate(passages, 1)) or "(no passage was found)"
        text = prompt.replace("{context}", context).replace("{question}", a["query"])
        return {"messages": [{"role": "user", "content": text}]} if generator.about.get("chat") else {"text": text}

    params = {k: given[k] for k in ("max_new_tokens", "temperature", "seed", "batch_size", "auto_batch") if given.get(k) is not None}
    params.setdefault("max_new_tokens", min(_NEW, max(1, most // 4)) if most else _NEW)
    too_long = (
        f"with {params['max_new_tokens']} new tokens, prompt and question leave no room for a passage in the {most} tokens that generator {given['generator']} reads: "
        "write a smaller max_new_tokens or a shorter question, or take a generator that reads more"
    )
    choices = [_shown([p["text"] for p in a["passages"]]) for a in answers]
    raws = [
        {**asked(a, whole), "shorter": [asked(a, texts) for texts in rest], "too_long": too_long} if whole else asked(a, [])
        for a, (whole, *rest) in zip(answers, choices)
    ]
    of = {"generator": wanted.message(), **{k: v for k, v in params.items() if k not in ("batch_size", "auto_batch")}}
    records, figures = batches.through(generator, raws, params, of, what="query", name="answers")
    for a, r, texts in zip(answers, records, choices):
        if "error" in r:
            a["error"] = r["error"]
            continue
        used = texts[r.get("shortened", 0)]
        a["answer"], a["used"] = r["prediction"], len(used)
        a["sources"] = sorted({p["source"] for p in a["passages"][: len(used)]})
        if len(used) < len(a["passages"]) or used != texts[0][: len(used)]:
            cut = " and that one only in part" if used != texts[0][: len(used)] else ""
            log(f"query {r['index']}: the generator reads {most} tokens: it was shown {len(used)} of {len(a['passages'])} passages{cut}")
    records.close()
    return batches.loaded(generator), figures


def _shown(texts: List[str]) -> List[List[str]]:
    """What of the passages a generator may be shown: all, then without the weakest, at last the beginning of the best one."""
    words = texts[0].split(" ") if texts else []
    parts = [[" ".join(words[: len(words) // n])] for n in (2, 4, 8) if len(words) >= n]
    return [texts, *(texts[:n] for n in range(len(texts) - 1, 0, -1)), *parts]


if __name__ == "__main__":
    run(rag)
