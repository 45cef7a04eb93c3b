import json

import pytest
from muster_core import Fail
from muster_transformers.embedding import embedding
from muster_transformers.passages import pieces
from muster_transformers.rag import rag

np = pytest.importorskip("numpy")


def test_what_means_alike_is_near(task, minilm):
    result = embedding({"model": minilm, "inputs": ["a cat sleeps", "the kitten is dozing", "the court ruled on tax law"], "format": "npy"})
    v = np.load(task.out / "embeddings.npy")
    assert v.shape == (3, 384) and np.allclose(np.linalg.norm(v, axis=1), 1, atol=1e-5)
    assert v[0] @ v[1] > 0.5 > 0.3 > v[0] @ v[2]
    assert result["dimensions"] == 384 and len(result["embeddings"]) == 3
    assert [r["index"] for r in task.lines("items.jsonl")] == [0, 1, 2]


def test_vectors_are_those_of_sentence_transformers(task, minilm):
    st = pytest.importorskip("sentence_transformers")
    texts = ["a", "a much longer text about the weather in spring", "word " * 600]
    embedding({"model": minilm, "inputs": texts})
    ours = np.array([r["embedding"] for r in task.lines("embeddings.jsonl")])
    assert np.abs(ours - st.SentenceTransformer(minilm, device="cpu").encode(texts)).max() < 1e-5


def test_a_text_that_cannot_be_used_has_a_row_of_its_own(task, models):
    result = embedding({"model": str(models / "bert"), "inputs": ["cat", "", "dog"], "format": "npy"})
    v = np.load(task.out / "embeddings.npy")
    assert result["failed"] == 1 and np.isnan(v[1]).all() and not np.isnan(v[[0, 2]]).any()
    with pytest.raises(Fail, match="too long|the model reads"):
        embedding({"model": str(models / "bert"), "input": "cat " * 100, "truncate": False})


DOCS = {
    "tower.txt": "The Eiffel Tower stands in Paris. It was built in 1889.",
    "bread.md": "Bread is baked from flour, water, salt and yeast.",
    "more.jsonl": json.dumps({"id": "lease", "text": "A worker renews the lease of its tasks by heartbeats."}),
}


def test_passages_are_found_and_an_index_is_used_again(task, minilm):
    (task.folder / "docs").mkdir()
    for name, text in DOCS.items():
        (task.folder / "docs" / name).write_text(text)
    queries = ["In which city is the Eiffel Tower?", "What do I need for a loaf?", "How does a lease live on?"]
    result = rag({"model": minilm, "documents": "docs", "queries": queries, "top_k": 1})
    assert [a["passages"][0]["source"] for a in result["answers"]] == ["tower.txt", "bread.md", "lease"]
    assert result["passages"] == 3 and task.lines("answers.jsonl") == result["answers"]

    (task.out / "index.safetensors").rename(task.folder / "old.safetensors")
    result = rag(
        {"model": minilm, "index": "old.safetensors", "documents": ["Cats purr when they are content."], "query": "What sound do felines make?", "top_k": 4}
    )
    scores = [p["score"] for p in result["answers"][0]["passages"]]
    assert result["passages"] == 4 and result["indexed"] == 1 and scores == sorted(scores, reverse=True)
    assert result["answers"][0]["passages"][0]["source"] == "documents.0"
    few = rag({"model": minilm, "index": "old.safetensors", "query": "quantum chromodynamics", "min_score": 0.9})
    assert few["answers"][0]["passages"] == [] and "indexed" in few

    (task.folder / "torn").write_bytes((task.folder / "old.safetensors").read_bytes()[:300])
    with pytest.raises(Fail, match="not an index of this kind, or is damaged"):
        rag({"model": minilm, "index": "torn", "query": "a"})


def test_a_generator_answers_with_what_it_can_read(task, models):
    given = {"model": str(models / "bert"), "documents": ["cat sat", "dog ran", "sun is up"], "query": "cat?", "top_k": 3, "max_new_tokens": 4}
    result = rag({**given, "generator": str(models / "gpt2"), "prompt": "{context} {question}"})
    answer = result["answers"][0]
    assert isinstance(answer["answer"], str) and len(answer["sources"]) == 3 and result["generator"]["task"] == "text-generation"
    long = ["cat sat on the mat " * 3, "cat ran " * 9, "the cat " * 9]
    result = rag({**given, "documents": long, "generator": str(models / "gpt2"), "prompt": "{context} {question}"})
    answer = result["answers"][0]
    assert 0 < answer["used"] < 3 and answer["sources"] == sorted(p["source"] for p in answer["passages"][: answer["used"]])
    given = {k: v for k, v in given.items() if k != "max_new_tokens"}
    result = rag({**given, "documents": ["cat sat on the mat and the dog ran " * 22], "generator": str(models / "gpt2"), "prompt": "{context} {question}"})
    assert result["answers"][0]["used"] == 1 and result["generation"]["tokens_out"] <= 16  # a part of the one, and a quarter of what it reads
    with pytest.raises(Fail, match="^query 0: with 16 new tokens, prompt and question leave no room for a passage in the 64 tokens"):
        rag({**given, "generator": str(models / "gpt2")})
    with pytest.raises(Fail, match="the placeholder {context} is missing"):
        rag({**given, "prompt": "{question}"})


def test_passages_cover_their_document():
    text = "\n\n".join(f"Paragraph {n}. " + "word " * (7 * n % 40) + "end." for n in range(30))
    found = pieces([{"source": "s", "text": text}], 50, 10)
    assert all(text[p["start"] : p["end"]] == p["text"] and len(p["text"].split()) <= 50 for p in found)
    covered = set()
    for p in found:
        covered.update(range(p["start"], p["end"]))
    assert all(i in covered for i, c in enumerate(text) if not c.isspace())
    assert all(b["start"] < a["end"] for a, b in zip(found, found[1:]))  # they overlap
    assert len(found) < 60
    with pytest.raises(Fail, match="chunk_overlap"):
        pieces([], 10, 10)
