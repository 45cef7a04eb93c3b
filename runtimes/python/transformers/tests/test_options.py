"""What the owner of a worker asks for changes what is done. There is no GPU in tests: a device that only says it is one stands in where nothing is computed on it."""

from types import SimpleNamespace

import pytest
from muster_transformers import working
from muster_transformers.inference import inference
from muster_transformers.loading import Wanted, arguments, precision
from muster_transformers.working import Working

GPU = SimpleNamespace(type="cuda")


class Counting(Working):
    """Notes how many items are computed at once, and on how many streams."""

    def __init__(self, device):
        super().__init__(Wanted(model="none"), None, device)
        self.seen = []

    def prepared(self, item, params):
        return item

    def batches(self, parts, params, step):
        self.seen.append([len(part) for part in parts])
        return [[{"prediction": ""} for _ in part] for part in parts]


@pytest.mark.parametrize("optimize, params, want", [("", {}, 32), ("throughput", {}, 128), ("latency", {}, 1), ("latency", {"batch_size": 4}, 4)])
def test_optimize_for(monkeypatch, optimize, params, want):
    monkeypatch.setenv("MUSTER_OPTIMIZE_FOR", optimize)
    counting = Counting(SimpleNamespace(type="cpu"))
    assert len(counting.run([{"text": "a"}] * 130, params, lambda e: None)) == 130
    assert counting.seen[0] == [want]


def test_cuda_streams(monkeypatch):
    monkeypatch.setenv("MUSTER_CUDA_STREAMS", "3")
    monkeypatch.setattr(working, "fitting", lambda size, device, halve, work: (work(size), size))
    counting = Counting(GPU)
    assert len(counting.run([{"text": "a"}] * 10, {"batch_size": 2}, lambda e: None)) == 10
    assert counting.seen == [[2, 2, 2], [2, 2]]
    counting.device, counting.seen = SimpleNamespace(type="cpu"), []
    counting.run([{"text": "a"}] * 4, {"batch_size": 2}, lambda e: None)
    assert counting.seen == [[2], [2]]


def test_mixed_precision(monkeypatch):
    import torch

    assert precision(None, GPU) == "auto" and precision("auto", GPU) == "auto"
    monkeypatch.setenv("MUSTER_MIXED_PRECISION", "1")
    for can, want in ((True, torch.bfloat16), (False, torch.float16)):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda can=can: can)
        assert precision("auto", GPU) is want and precision(None, GPU) is want
    assert precision("fp32", GPU) is torch.float32  # the job says
    assert precision("auto", torch.device("cpu")) is torch.float32


def test_memory_buffer_and_swap(monkeypatch):
    pytest.importorskip("accelerate")
    cpu = SimpleNamespace(type="cpu")
    wanted = Wanted(model="none", device_map="auto")
    assert not {"max_memory", "offload_folder"} & set(arguments(wanted, cpu))
    monkeypatch.setenv("MUSTER_MEMORY_BUFFER", "0.75")
    monkeypatch.setenv("MUSTER_ENABLE_SWAP", "1")
    some = arguments(wanted, cpu)
    assert "offload_folder" in some
    monkeypatch.setenv("MUSTER_MEMORY_BUFFER", "0.1")
    assert 0 < some["max_memory"]["cpu"] < arguments(wanted, cpu)["max_memory"]["cpu"]


def test_what_is_computed_stays_the_same(task, models, monkeypatch):
    given = {"model": str(models / "gpt2"), "inputs": ["the cat", "a dog", "the sun"], "max_new_tokens": 3}
    plain = [p["prediction"] for p in inference(given)["predictions"]]
    monkeypatch.setenv("MUSTER_OPTIMIZE_FOR", "latency")
    monkeypatch.setenv("MUSTER_CUDA_STREAMS", "4")
    assert [p["prediction"] for p in inference(given)["predictions"]] == plain
