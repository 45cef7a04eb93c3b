"""What the owner of a worker asks for changes what is done. There is no GPU in tests: a pipeline that only says it is on one stands in where nothing is computed."""

from types import SimpleNamespace

import pytest
from muster_core import Fail
from muster_diffusers import pipeline, stable_diffusion
from muster_diffusers.pipeline import SAVERS, Pipeline

CPU, GPU = SimpleNamespace(type="cpu"), SimpleNamespace(type="cuda")


@pytest.mark.parametrize(
    "optimize, device, given, want",
    [("", GPU, {}, 1), ("throughput", GPU, {}, 4), ("latency", GPU, {}, 1), ("throughput", CPU, {}, 1), ("throughput", GPU, {"batch_size": 2}, 2)],
)
def test_optimize_for(monkeypatch, optimize, device, given, want):
    monkeypatch.setenv("MUSTER_OPTIMIZE_FOR", optimize)
    monkeypatch.setattr(stable_diffusion, "Pipeline", lambda given, step: SimpleNamespace(device=device, kind="none", load_seconds=0.0, own=lambda field: 50))
    monkeypatch.setattr(stable_diffusion.devices, "describe", lambda device: device.type)
    assert stable_diffusion.Work({"model": "none", **given}, [], {}).size == want


@pytest.mark.parametrize("swap, last", [("1", "sequential_offload"), ("", "cpu_offload")])
def test_enable_swap(monkeypatch, swap, last):
    monkeypatch.setenv("MUSTER_ENABLE_SWAP", swap)
    pipe = object.__new__(Pipeline)
    pipe.savers, pipe.may_save = [], True
    monkeypatch.setattr(Pipeline, "save", lambda self, saver: self.savers.append(saver) is None)
    while pipe.save_more():
        pass
    assert pipe.savers == list(SAVERS[: SAVERS.index(last) + 1])
    pipe.may_save = False  # the job says which
    assert not pipe.save_more()


def test_mixed_precision(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    assert pipeline._precision("auto", GPU) is pipeline._precision(None, GPU) is torch.float16
    monkeypatch.setenv("MUSTER_MIXED_PRECISION", "1")
    assert pipeline._precision("auto", GPU) is torch.bfloat16 and pipeline._precision("fp32", GPU) is torch.float32  # the job says
    assert pipeline._precision("auto", torch.device("cpu")) is torch.float32


def test_memory_buffer(monkeypatch):
    torch = pytest.importorskip("torch")
    shares = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", shares.append)
    monkeypatch.setenv("MUSTER_MEMORY_BUFFER", "0.25")
    given = {"model": "none", "safety": "off"}
    monkeypatch.setattr(pipeline.models, "find", lambda *args, **more: (_ for _ in ()).throw(Fail("bad_input", "found no more")))
    pytest.importorskip("diffusers")
    with pytest.raises(Fail, match="found no more"):
        Pipeline(given, lambda step: None)
    assert shares == [0.75]
