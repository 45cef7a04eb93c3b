"""The engine vllm of the kind inference: text generation with vLLM's batching, over all GPUs of the task.

Written for vLLM's documented interface (LLM, SamplingParams) of the version in the lock. docs/kinds.md describes whether it was run on a GPU.
"""

import time
from pathlib import Path
from typing import Any, Callable, List

from muster_core import Fail, models
from muster_core import device as devices
from muster_transformers.loading import GENERATION, Json, Wanted, config_of, explained, told_by
from muster_transformers.working import Generator, Step, Working


class Vllm(Generator):
    """A model in vLLM's engine. It makes batches itself: batch_size is how many prompts it is given at once."""

    size = 256

    def __init__(self, wanted: Wanted, folder: Path, device: Any, devices_seen: int) -> None:
        Working.__init__(self, wanted, folder, device)
        from transformers import AutoTokenizer
        from vllm import LLM

        self.answers = False
        config_of(folder, wanted.model)
        self.tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=wanted.trust_remote_code)
        parallel = wanted.tensor_parallel_size or devices_seen
        if parallel > devices_seen:
            raise Fail("bad_input", f"tensor_parallel_size: {parallel} GPUs are requested, but the task has {devices_seen}: request more in resources.gpus")
        owner = devices.options()
        names = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
        dtype = wanted.dtype or "auto"
        self.llm = LLM(
            model=str(folder),
            trust_remote_code=wanted.trust_remote_code,
            tensor_parallel_size=parallel,
            dtype=names.get(dtype, dtype),
            gpu_memory_utilization=min(0.9, 1 - owner.memory_buffer),
        )
        self.parallel = parallel
        self.most = int(self.llm.llm_engine.model_config.max_model_len)
        self._dtype = str(self.llm.llm_engine.model_config.dtype).replace("torch.", "")

    def dtype(self) -> str:
        return self._dtype

    def more(self) -> Json:
        return {**super().more(), "tensor_parallel_size": self.parallel}

    def generated(self, things: List[Any], params: Json, step: Step) -> List[Json]:
        from vllm import SamplingParams

        temperature = float(params.get("temperature") or 0)
        sampling = SamplingParams(
            max_tokens=self.new(params),
            temperature=temperature,
            top_p=float(params.get("top_p") or 1.0) if temperature else 1.0,
            top_k=int(params.get("top_k") or 0) if temperature else 0,
            repetition_penalty=float(params.get("repetition_penalty") or 1.0),
            seed=params.get("seed"),
            stop=[s for s in params.get("stop") or [] if s] or None,
        )
        began = time.monotonic()
        outputs = self.llm.generate([{"prompt_token_ids": ids} for ids in things], sampling, use_tqdm=False)
        took = time.monotonic() - began
        records = []
        for ids, out in zip(things, outputs):
            best = out.outputs[0]
            records.append(
                {
                    "prediction": best.text,
                    "finish": "length" if best.finish_reason == "length" else "stop",
                    "tokens_in": len(ids),
                    "tokens_out": len(best.token_ids),
                    "latency_ms": round(took * 1000, 3),
                }
            )
        if records:
            step({"text": records[0]["prediction"][-200:], "tokens_per_second": sum(r["tokens_out"] for r in records) / max(took, 1e-9)})
        return records


def load(wanted: Wanted, step: Callable[[str], None]) -> Working:
    """Load a model for vLLM. Without a GPU that PyTorch can use the task fails with dependency."""
    import torch
    import vllm  # noqa: F401 - so that its absence is reported clearly

    if not torch.cuda.is_available():
        raise Fail(
            "dependency",
            f"the engine vllm needs a GPU, and this task sees none that PyTorch {torch.__version__} can use: set resources.gpus, or remove engine",
        )
    if wanted.device_map or (wanted.device or "auto").split(":")[0] not in ("auto", "cuda"):
        raise Fail("bad_input", "engine: vllm uses all GPUs of the task: remove device and device_map")
    step(f"finding {wanted.model}")
    folder = models.find(wanted.model, wanted.revision)
    if (wanted.task or told_by(folder, wanted.model)) != GENERATION:
        raise Fail("bad_input", "engine: vllm supports only text-generation: remove it for this task")
    step(f"loading {wanted.model} with vLLM")
    try:
        return Vllm(wanted, folder, torch.device("cuda"), torch.cuda.device_count())
    except Exception as e:  # noqa: BLE001 - explained, or raised again
        raise explained(e, wanted) from e
