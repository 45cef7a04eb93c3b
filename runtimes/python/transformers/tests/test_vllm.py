"""What the engine vllm is asked for. vLLM needs a GPU: a stand-in for its two classes notes what it is given, and says nothing of vLLM itself."""

import sys
from types import SimpleNamespace

import pytest
from muster_core import Fail
from muster_transformers.loading import Wanted

torch = pytest.importorskip("torch")


class LLM:
    def __init__(self, **given):
        self.given, self.asked = given, []
        self.llm_engine = SimpleNamespace(model_config=SimpleNamespace(max_model_len=64, dtype=torch.bfloat16))

    def generate(self, prompts, sampling, use_tqdm):
        self.asked.append((len(prompts), sampling))
        return [SimpleNamespace(outputs=[SimpleNamespace(text=" so", finish_reason="length", token_ids=[1, 2])]) for _ in prompts]


@pytest.fixture
def made(monkeypatch, models):
    """A function that loads a model for the stand-in, on two GPUs that there are not."""
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=LLM, SamplingParams=lambda **given: given))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    from muster_vllm import engine

    return lambda **more: engine.load(Wanted(model=str(models / "gpt2"), engine="vllm", **more), lambda step: None)


@pytest.mark.parametrize("buffer, share", [("", 0.9), ("0.05", 0.9), ("0.25", 0.75)])
def test_memory_buffer(made, monkeypatch, buffer, share):
    monkeypatch.setenv("MUSTER_MEMORY_BUFFER", buffer)
    assert made().llm.given["gpu_memory_utilization"] == pytest.approx(share)


@pytest.mark.parametrize("optimize, params, want", [("", {}, 256), ("throughput", {}, 1024), ("latency", {}, 1), ("latency", {"batch_size": 4}, 4)])
def test_optimize_for(made, monkeypatch, optimize, params, want):
    monkeypatch.setenv("MUSTER_OPTIMIZE_FOR", optimize)
    assert made().batch_size(params) == want


def test_what_the_job_says(made):
    loaded = made(dtype="fp16", tensor_parallel_size=1)
    assert (loaded.llm.given["dtype"], loaded.llm.given["tensor_parallel_size"]) == ("float16", 1)
    assert made().llm.given["tensor_parallel_size"] == 2 and made().llm.given["dtype"] == "auto"
    with pytest.raises(Fail, match="tensor_parallel_size: 4 GPUs are asked for, and the task has 2"):
        made(tensor_parallel_size=4)
    with pytest.raises(Fail, match="leave device and device_map out"):
        made(device="cpu")


def test_prompts_and_their_records(made, monkeypatch):
    monkeypatch.delenv("MUSTER_OPTIMIZE_FOR", raising=False)
    loaded = made()
    monkeypatch.setattr("muster_transformers.working.fitting", lambda size, device, halve, work, *more: (work(size), size))
    records = loaded.run([{"text": "the cat"}] * 3, {"max_new_tokens": 2, "batch_size": 2, "top_p": 0.5}, lambda e: None)
    assert [(r["prediction"], r["finish"], r["tokens_out"]) for r in records] == [(" so", "length", 2)] * 3
    assert [n for n, _ in loaded.llm.asked] == [2, 1]
    greedy = loaded.llm.asked[0][1]
    assert greedy["max_tokens"] == 2 and greedy["temperature"] == 0 and greedy["top_p"] == 1.0  # which vLLM wants so
    loaded.run([{"text": "the cat"}], {"max_new_tokens": 2, "temperature": 0.7, "top_p": 0.5, "seed": 3}, lambda e: None)
    warm = loaded.llm.asked[-1][1]
    assert (warm["temperature"], warm["top_p"], warm["seed"]) == (0.7, 0.5, 3)
