"""The devices of the machine, and its owner's settings for them."""

import os
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Optional

from ._task import Fail


@dataclass(frozen=True)
class Options:
    """The worker's options for AI kinds: see `muster worker --help`."""

    cuda_streams: int  # at least 1
    optimize_for: str  # "throughput", "latency" or ""
    mixed_precision: bool
    memory_buffer: float  # share of the memory to leave free, 0 to 0.9
    enable_swap: bool


def options() -> Options:
    e = os.environ.get
    return Options(
        cuda_streams=max(1, int(e("MUSTER_CUDA_STREAMS") or 1)),
        optimize_for=e("MUSTER_OPTIMIZE_FOR") or "",
        mixed_precision=e("MUSTER_MIXED_PRECISION") == "1",
        memory_buffer=float(e("MUSTER_MEMORY_BUFFER") or 0),
        enable_swap=e("MUSTER_ENABLE_SWAP") == "1",
    )


def pick(want: Optional[str] = None) -> Any:
    """The torch device to use: cuda (also ROCm's), mps or cpu, the best there is if none is wanted.

    The owner's memory buffer is kept free on a GPU.
    """
    import torch

    mps = getattr(torch.backends, "mps", None)
    if not want or want == "auto":
        want = "cuda" if torch.cuda.is_available() else "mps" if mps is not None and mps.is_available() else "cpu"
    kind = want.split(":")[0]
    if kind == "cuda" and not torch.cuda.is_available():
        raise Fail("dependency", f"device {want} is requested, but this task sees no GPU that PyTorch {torch.__version__} can use: set resources.gpus, or device: cpu")
    if kind == "mps" and (mps is None or not mps.is_available()):
        raise Fail("dependency", "device mps is requested, but this machine has none")
    if kind == "cuda" and (spare := options().memory_buffer) > 0:
        torch.cuda.set_per_process_memory_fraction(1 - spare)
    return torch.device(want)


def dtype(name: Optional[str], device: Any) -> Any:
    """The torch dtype of fp32, fp16, bf16 or auto (what the device and the owner prefer)."""
    import torch

    if not name or name == "auto":
        if options().mixed_precision and device.type == "cuda":
            return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
        return torch.float32
    known = {"fp32": torch.float32, "float32": torch.float32, "fp16": torch.float16, "float16": torch.float16, "bf16": torch.bfloat16, "bfloat16": torch.bfloat16}
    if name not in known:
        raise Fail("bad_input", f"precision {name} is unknown: use one of {', '.join(sorted(known))}, auto")
    return known[name]


def autocast(device: Any, precision: Any) -> Any:
    """A context of mixed precision, which does nothing for fp32."""
    import torch

    if precision == torch.float32:
        return nullcontext()
    return torch.autocast(device.type, dtype=precision)


def describe(device: Any) -> str:
    import torch

    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)} ({'ROCm ' + torch.version.hip if torch.version.hip else 'CUDA ' + str(torch.version.cuda)})"
    return device.type


def seed(value: int) -> None:
    """The same value gives the same numbers on the same machine and versions."""
    import random

    random.seed(value)
    try:
        import numpy

        numpy.random.seed(value % 2**32)
    except ImportError:
        pass
    import torch

    torch.manual_seed(value)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False


def release(device: Any) -> None:
    """Give the device's memory back."""
    import gc

    gc.collect()
    if device.type in ("cuda", "mps", "xpu"):
        import torch

        getattr(torch, device.type).empty_cache()
