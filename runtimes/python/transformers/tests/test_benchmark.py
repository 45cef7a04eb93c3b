import json

import pytest

pytest.importorskip("transformers", minversion="5")

from muster_core import Fail
from muster_transformers import benchmark

BERT = {"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 100}
GPT = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": 100}
LLAMA = {"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 64, "vocab_size": 100}
VIT = {"model_type": "vit", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "image_size": 32, "patch_size": 8}
T5 = {"model_type": "t5", "d_model": 32, "num_layers": 2, "num_heads": 2, "d_ff": 64, "d_kv": 16, "vocab_size": 100, "decoder_start_token_id": 0}
CLIP = {
    "model_type": "clip",
    "projection_dim": 16,
    "text_config": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 100, "max_position_embeddings": 16, "eos_token_id": 99},
    "vision_config": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 32, "patch_size": 16},
}


@pytest.fixture(autouse=True)
def task(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_OUT", str(tmp_path / "out"))
    monkeypatch.setenv("MUSTER_EVENTS", str(tmp_path / "events"))
    monkeypatch.setenv("MUSTER_MODELS", str(tmp_path / "models"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_combination_is_measured(task):
    result = benchmark.measure({"config": BERT, "batch_sizes": [1, 4], "precision": ["fp32", "bf16"], "iterations": 5, "warmup": 1, "sequence_length": 16})
    assert [(r["precision"], r["batch_size"]) for r in result["runs"]] == [("fp32", 1), ("fp32", 4), ("bf16", 1), ("bf16", 4)]
    for r in result["runs"]:
        ms = r["latency_ms"]
        assert 0 < ms["min"] <= ms["p50"] <= ms["p90"] <= ms["p95"] <= ms["p99"] <= ms["max"]
        assert ms["min"] <= ms["mean"] <= ms["max"]
        assert r["throughput"] == pytest.approx(r["batch_size"] * 1000 / ms["mean"], rel=1e-2)
        assert r["iterations"] == 5
        assert r["peak_memory"] > 0
    assert (result["model"], result["device"], result["shape"]["input_ids"]) == ("config:bert", "cpu", [16])
    assert result["system"]["packages"]["transformers"]
    assert result["system"]["cores"] >= 1 and result["system"]["memory"] > 1 << 28
    raw = json.loads((task / "out/benchmark.json").read_text())["runs"]
    assert [len(r["latencies_ms"]) for r in raw] == [5] * 4
    assert raw[0]["latency_ms"]["max"] == pytest.approx(max(raw[0]["latencies_ms"]), abs=1e-3)
    record = [json.loads(line) for line in (task / "events").read_text().splitlines()]
    fractions = [e["progress"] for e in record if "progress" in e]
    assert fractions == sorted(fractions)
    assert {e["batch_size"] for e in record if "batch_size" in e} == {1, 4}


@pytest.mark.parametrize(
    ("config", "more", "shape"),
    [
        (VIT, {}, {"pixel_values": [3, 32, 32]}),
        (VIT, {"image_size": 32}, {"pixel_values": [3, 32, 32]}),
        (LLAMA, {"task": "generate", "new_tokens": 3, "sequence_length": 8}, {"input_ids": [8], "attention_mask": [8]}),
        (GPT, {}, {"input_ids": [64], "attention_mask": [64]}),
        (T5, {"sequence_length": 8}, {"input_ids": [8], "attention_mask": [8], "decoder_input_ids": [1]}),
        (CLIP, {}, {"input_ids": [16], "attention_mask": [16], "pixel_values": [3, 32, 32]}),
    ],
)
def test_models_of_all_sorts(config, more, shape):
    result = benchmark.measure({"config": config, "iterations": 2, "warmup": 0, **more})
    assert result["shape"] == shape
    assert "error" not in result["runs"][0]
    assert ("tokens_per_second" in result["runs"][0]) == ("task" in more)


def test_a_saved_model(task):
    from transformers import BertConfig, BertForSequenceClassification

    BertForSequenceClassification(BertConfig(**{k: v for k, v in BERT.items() if k != "model_type"})).save_pretrained(task / "saved")
    result = benchmark.measure({"model": "saved", "iterations": 1, "warmup": 0, "precision": "fp16"})
    assert result["parameters"] > 1000
    (task / "saved/model.safetensors").write_bytes(b"not weights")
    with pytest.raises(Fail, match="saved") as e:
        benchmark.measure({"model": "saved", "iterations": 1})
    assert e.value.reason == "bad_input"


def test_what_cannot_be_computed_is_told_and_the_others_go_on(task, monkeypatch):
    compute = benchmark.Subject.compute

    def short(self, inputs):
        if len(inputs["input_ids"]) > 2:
            raise MemoryError("no room for so many")
        compute(self, inputs)

    monkeypatch.setattr(benchmark.Subject, "compute", short)
    result = benchmark.measure({"config": BERT, "batch_sizes": [1, 4, 2], "precision": ["tf32", "fp32"], "iterations": 1, "warmup": 0})
    errors = [r.get("error", {}).get("reason") for r in result["runs"]]
    assert errors == ["not_supported"] * 3 + [None, "out_of_memory", None]
    error = result["runs"][4]["error"]
    assert error["fits"] == 2 and error["message"] == "it does not fit into the memory of cpu (no room for so many); a batch of 2 fits"
    with pytest.raises(Fail, match="no combination could be measured.*no room") as e:
        benchmark.measure({"config": BERT, "batch_sizes": [4], "iterations": 1, "warmup": 0})
    assert e.value.reason == "out_of_memory" and e.value.detail["fits"] == 2
    assert (task / "out/benchmark.json").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"config": {"model_type": "nonesuch"}}, "configuration cannot be used"),
        ({"config": GPT, "sequence_length": 65}, "more than the 64 tokens"),
        ({"config": GPT, "task": "generate", "new_tokens": 64}, "new_tokens: 64"),
        ({"config": BERT, "task": "generate"}, "no AutoModelForCausalLM|generates no text"),
        ({"config": VIT, "sequence_length": 5}, "does not support text"),
        ({"config": BERT, "image_size": 5}, "does not support images"),
        ({"model": "./nothere"}, "no such folder"),
    ],
)
def test_bad_input(given, message):
    if "generates no text" in message:
        given = {"config": VIT, "task": "generate"}
    with pytest.raises(Fail, match=message) as e:
        benchmark.measure(given)
    assert e.value.reason == "bad_input"


def test_memory_is_told_where_the_kernel_does_not_let_the_peak_be_reset(task, monkeypatch):
    monkeypatch.setattr(benchmark, "_reset_peak", lambda: False)
    held = bytearray(200 << 20)  # a peak before, which is not that of the runs
    held[::4096] = b"x" * len(held[::4096])
    del held
    result = benchmark.measure({"config": BERT, "batch_sizes": [1, 256], "iterations": 2, "warmup": 0})
    small, large = (r["peak_memory"] for r in result["runs"])
    assert 0 < small < large < 150 << 20


def test_a_busy_machine_is_told(task, monkeypatch):
    monkeypatch.setattr(benchmark.system.Others, "cores", lambda self: 1.26)
    result = benchmark.measure({"config": BERT, "iterations": 1, "warmup": 0})
    assert result["system"]["busy_cores"] == 1.26
    assert "1.3 of the machine's cores busy" in result["warnings"][0]


def test_percentiles_are_interpolated():
    record = benchmark.summary([4.0, 1.0, 3.0, 2.0])
    assert (record["p50"], record["p90"], record["min"], record["max"], record["mean"]) == (2.5, 3.7, 1.0, 4.0, 2.5)
    assert benchmark.summary([7.0])["p99"] == 7.0
