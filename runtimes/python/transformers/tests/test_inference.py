import base64
import json
import shutil

import pytest
from muster_core import Fail
from muster_transformers.batches import Journal
from muster_transformers.inference import inference

TEXTS = ["the cat sat", "a quick brown fox jumps over the lazy dog", "workers run tasks", "the sun"]


def test_texts_are_gone_on_with_alike_in_any_batch(task, models):
    given = {"model": str(models / "gpt2"), "inputs": TEXTS, "max_new_tokens": 8}
    alone = inference({**given, "batch_size": 1})
    shutil.rmtree(task.folder / "checkpoint")
    together = inference({**given, "batch_size": 4})
    texts = [p["prediction"] for p in together["predictions"]]
    assert texts == [p["prediction"] for p in alone["predictions"]]
    assert len(set(texts)) > 1
    assert together["tokens_out"] == 32 and together["tokens_in"] > 10
    assert [p["index"] for p in together["predictions"]] == [0, 1, 2, 3]
    assert task.lines("predictions.jsonl") == together["predictions"]
    assert together["task"] == "text-generation" and together["load_seconds"] > 0 and not together["warm"]
    assert any(e.get("tokens_per_second", 0) > 0 and "item" in e.get("step", "") for e in task.events())


def test_a_seed_gives_the_same_text_and_a_temperature_others(task, models):
    given = {"model": str(models / "llama"), "input": "the cat", "max_new_tokens": 12, "temperature": 5.0}
    seen = []
    for seed in (1, 1, 2):
        seen.append(inference({**given, "seed": seed})["predictions"][0]["prediction"])
        shutil.rmtree(task.folder / "checkpoint")
    assert seen[0] == seen[1] != seen[2]


def test_a_text_ends_where_it_is_told_to(task, models):
    given = {"model": str(models / "gpt2"), "input": "the cat sat", "max_new_tokens": 8}
    whole = inference(given)["predictions"][0]
    assert whole["finish"] == "length" and whole["tokens_out"] == 8
    stop = whole["prediction"][2:4]
    ended = inference({**given, "stop": [stop]})["predictions"][0]
    assert ended["prediction"] == whole["prediction"].split(stop)[0] and ended["finish"] == "stop"


def test_messages_go_through_the_chat_template(task, models):
    messages = [{"role": "user", "content": "hello"}]
    result = inference({"model": str(models / "llama"), "inputs": [{"messages": messages}, "hello"], "max_new_tokens": 2})
    first, second = result["predictions"]
    assert first["tokens_in"] > second["tokens_in"]
    with pytest.raises(Fail, match="no chat template"):
        inference({"model": str(models / "gpt2"), "input": "hello", "system": "be kind"})


def test_texts_are_classified(task, models):
    result = inference({"model": str(models / "bert"), "inputs": [{"id": "x", "text": TEXTS[0]}, {"text": ""}, TEXTS[1]], "top_k": 5})
    first, bad, _ = result["predictions"]
    assert first["prediction"] in ("good", "bad") and first["id"] == "x" and first["latency_ms"] > 0
    assert sum(t["score"] for t in first["top"]) == pytest.approx(1, abs=1e-4)
    assert bad == {"index": 1, "error": "it is empty"}
    assert result["failed"] == 1


@pytest.mark.parametrize("model", ["resnet", "vit"])
def test_pictures_are_classified_however_they_come(task, models, picture, model):
    (task.folder / "a.png").write_bytes(picture)
    (task.folder / "bad.png").write_bytes(b"no picture")
    code = base64.b64encode(picture).decode()
    inputs = ["a.png", {"image": "data:image/png;base64," + code}, "bad.png", "none.png", "http://127.0.0.1:1/a.png"]
    result = inference({"model": str(models / model), "inputs": inputs})
    one, two, bad, none, private = result["predictions"]
    assert one["prediction"] == two["prediction"] and one["confidence"] == pytest.approx(two["confidence"], abs=1e-5)
    assert bad["error"] == "not an image of a known format"
    assert "there is no file none.png" in none["error"]
    assert "127.0.0.1, which is not public" in private["error"]


def test_an_item_that_is_too_long_fails_alone(task, models):
    long = "cat " * 100
    result = inference({"model": str(models / "gpt2"), "inputs": [long, "cat"], "max_new_tokens": 4})
    assert "the model reads 64" in result["predictions"][0]["error"] and result["predictions"][1]["tokens_out"] == 4
    assert inference({"model": str(models / "gpt2"), "inputs": [long, "cat"], "max_new_tokens": 4, "truncate": True})["failed"] == 0
    with pytest.raises(Fail, match=r"inputs\[0\]: ") as e:
        inference({"model": str(models / "gpt2"), "inputs": [long, "cat"], "max_new_tokens": 5, "on_error": "fail"})
    assert e.value.reason == "bad_input"
    assert len(task.lines("predictions.jsonl")) == 2  # what is done is kept


def test_where_nothing_is_said_a_small_model_writes_less(task, models):
    given = {"model": str(models / "gpt2"), "input": "the cat"}
    assert inference(given)["predictions"][0]["tokens_out"] <= 16  # a quarter of 64
    with pytest.raises(Fail, match="^input: the prompt has .* max_new_tokens is 16, the default number of generated tokens"):
        inference({**given, "input": "cat " * 25})


def test_a_retry_goes_on_where_it_stopped(task, models, monkeypatch):
    from muster_transformers import backend

    (task.folder / "in.jsonl").write_text("".join(json.dumps({"q": f"cat {n}"}) + "\n" for n in range(10)))
    given = {"model": str(models / "bert"), "input_file": "in.jsonl", "field": "q", "batch_size": 2}
    monkeypatch.setattr(backend.Backend, "batch_size", lambda self, params: 4)
    real, calls = backend.Backend.run, []

    def killed(self, items, params, step):
        calls.append(len(items))
        if len(calls) == 2:
            raise SystemExit(143)
        return real(self, items, params, step)

    monkeypatch.setattr(backend.Backend, "run", killed)
    with pytest.raises(SystemExit):
        inference(given)
    assert len(task.lines("predictions.jsonl")) == 4
    with open(task.folder / "checkpoint" / "items.jsonl", "a") as f:
        f.write('{"index": 4, "predic')  # torn by the kill
    result = inference(given)
    assert result["resumed"] == 4 and calls == [4, 4, 4, 2]
    assert [r["index"] for r in task.lines("predictions.jsonl")] == list(range(10))
    again = inference({**given, "top_k": 2})  # another question: nothing is taken over
    assert again["resumed"] == 0


def test_a_journal_of_something_else_is_begun_anew(task):
    j = Journal({"a": 1})
    j.add([{"index": 0}])
    j.close()
    assert Journal({"a": 1}).done == 1
    assert Journal({"a": 2}).done == 0
    assert Journal({"a": 1}).done == 0


def test_memory_that_runs_out_halves_the_batch(task, models, monkeypatch):
    from muster_transformers.working import Classifier

    real, sizes = Classifier.computed, []

    def small(self, things, params):
        sizes.append(len(things))
        if len(things) > 3:
            raise RuntimeError("CUDA out of memory")
        return real(self, things, params)

    monkeypatch.setattr(Classifier, "computed", small)
    given = {"model": str(models / "bert"), "inputs": [f"cat {n}" for n in range(12)], "batch_size": 12}
    with pytest.raises(Fail, match="a batch of 3 fits") as e:
        inference(given)
    assert e.value.reason == "out_of_memory" and e.value.detail["fits"] == 3
    sizes.clear()
    assert inference({**given, "auto_batch": True})["failed"] == 0
    assert sizes == [12, 6, 3, 3, 3, 3]


def corrupt(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def foreign(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 48}))


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (corrupt, "its weights are damaged"),
        (foreign, "its weights do not fit its config.json"),
        (lambda f: (f / "config.json").unlink(), "there is no config.json"),
        (lambda f: (f / "config.json").write_text("{"), "its config.json is damaged"),
        (lambda f: (f / "model.safetensors").unlink(), "cannot be loaded"),
    ],
)
def test_a_damaged_model_is_bad_input(task, models, damage, sentence):
    shutil.copytree(models / "bert", task.folder / "m")
    damage(task.folder / "m")
    with pytest.raises(Fail, match=sentence) as e:
        inference({"model": "m", "input": "cat"})
    assert e.value.reason == "bad_input"


def test_a_model_is_not_used_for_what_it_was_not_made_for(task, models):
    with pytest.raises(Fail, match="not made for text-classification: it has no weights for"):
        inference({"model": str(models / "gpt2"), "input": "cat", "task": "text-classification"})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"input": "a", "inputs": ["b"]}, "inputs: write one of"),
        ({}, "input: write one of"),
        ({"input_file": "none.jsonl"}, "there is no file none.jsonl"),
        ({"input_file": "bad.jsonl"}, "line 2 of bad.jsonl is not JSON"),
        ({"input": ""}, "it is empty"),
        ({"model": "./nothing", "input": "a"}, "no such folder"),
        ({"engine": "vllm", "input": "a"}, "vllm"),
    ],
)
def test_what_cannot_be_is_told(task, models, given, sentence):
    (task.folder / "bad.jsonl").write_text('"a"\n{"b"\n')
    with pytest.raises(Fail, match=sentence) as e:
        inference({"model": str(models / "bert"), **given})
    assert e.value.reason == ("dependency" if given.get("engine") else "bad_input")


def test_a_hub_that_cannot_be_reached_is_a_dependency(task, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub.constants, "ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(Fail, match="the hub cannot be reached") as e:
        inference({"model": "nobody/nothing", "input": "a"})
    assert e.value.reason == "dependency"
