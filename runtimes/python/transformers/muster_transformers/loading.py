"""A model in memory: its parameters, loading, and errors."""

import json
import logging
import os
import tempfile
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional

from muster_core import Fail, models
from muster_core import device as devices

if TYPE_CHECKING:
    from .working import Working

Json = Dict[str, Any]

GENERATION = "text-generation"
CLASSIFICATION = "text-classification"
IMAGES = "image-classification"
EMBEDDING = "embedding"
TASKS = (GENERATION, CLASSIFICATION, IMAGES, EMBEDDING)


@dataclass(frozen=True)
class Wanted:
    """The parameters of a model. Equal ones can share a loaded model."""

    model: str
    revision: Optional[str] = None
    task: Optional[str] = None  # None: from the model
    dtype: Optional[str] = None
    device: Optional[str] = None
    device_map: Optional[str] = None
    engine: str = "transformers"
    tensor_parallel_size: Optional[int] = None  # of vllm; None: all devices that the task sees
    trust_remote_code: bool = False

    @classmethod
    def of(cls, given: Json, **more: Any) -> "Wanted":
        """That of a kind's input."""
        names = {f.name for f in fields(cls)}
        picked = {k: v for k, v in given.items() if k in names and v is not None}
        if picked.get("task") == "feature-extraction":
            picked["task"] = EMBEDDING
        return cls(**{**picked, **more})

    def message(self) -> Json:
        return asdict(self)

    def shareable(self) -> bool:
        """Whether a host that is kept between tasks may load it: only what any task of the project could read, and no foreign code."""
        if self.trust_remote_code:
            return False
        path = Path(self.model).expanduser()
        if not path.exists():
            return not self.model.startswith((".", "/", "~"))
        return path.is_absolute() and any(f.resolve() in path.resolve().parents for f in models.folders())


def load(wanted: Wanted, step: Callable[[str], None]) -> "Working":
    """Load a model. Raises Fail: bad_input for a missing or damaged model, dependency for what this worker lacks."""
    began = time.monotonic()
    if wanted.engine == "vllm":
        try:
            from muster_vllm.engine import load as load_vllm

            loaded: Working = load_vllm(wanted, step)
        except ImportError as e:
            raise Fail("dependency", f"the engine vllm cannot be used here ({e}): run muster runtime check vllm on the worker, or remove engine") from e
        loaded.load_seconds = time.monotonic() - began
        return loaded
    step("loading the libraries")
    import torch  # noqa: F401 - so that its absence is reported first
    import transformers

    from . import working

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.getLogger("httpx").setLevel(logging.WARNING)
    device = devices.pick(wanted.device)
    step(f"finding {wanted.model}")
    folder = models.find(wanted.model, wanted.revision)
    task = wanted.task or told_by(folder, wanted.model)
    step(f"loading {wanted.model} on {devices.describe(device)}")
    try:
        loaded = working.MAKERS[task](wanted, folder, device)
    except Exception as e:  # noqa: BLE001 - explained, or raised again
        raise explained(e, wanted) from e
    loaded.load_seconds = time.monotonic() - began
    return loaded


def config_of(folder: Path, model: str) -> Json:
    path = folder / "config.json"
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Fail("bad_input", f"model {model}: it has no config.json, so it is not a transformers model") from None
    except (ValueError, UnicodeDecodeError) as e:
        raise Fail("bad_input", f"model {model}: its config.json is damaged: {e}") from e
    if not isinstance(value, dict):
        raise Fail("bad_input", f"model {model}: its config.json is not an object")
    return value


def told_by(folder: Path, model: str) -> str:
    """The task that a model was made for, by its files."""
    if (folder / "modules.json").exists():
        return EMBEDDING
    names = config_of(folder, model).get("architectures") or []
    for name in names:
        if name.endswith(("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForSeq2SeqLM")):
            return GENERATION
        if name.endswith("ForSequenceClassification"):
            return CLASSIFICATION
        if name.endswith("ForImageClassification"):
            return IMAGES
        if name.endswith(("Model", "ForMaskedLM", "ForPreTraining")):
            return EMBEDDING
    raise Fail(
        "bad_input",
        f"task: the files of model {model} do not determine its task ({', '.join(names) or 'no architectures'}): set task to one of {', '.join(TASKS)}",
    )


def arguments(wanted: Wanted, device: Any) -> Json:
    """Those of from_pretrained."""
    args: Json = {"trust_remote_code": wanted.trust_remote_code, "dtype": precision(wanted.dtype, device)}
    owner = devices.options()
    if wanted.device_map:
        try:
            import accelerate  # noqa: F401
        except ImportError as e:
            raise Fail("dependency", f"device_map needs the package accelerate ({e}): remove it, or install it for the interpreter of --python") from e
        args["device_map"] = wanted.device_map
        if owner.memory_buffer > 0:
            args["max_memory"] = _memory(owner.memory_buffer)
        if owner.enable_swap:
            args["offload_folder"] = tempfile.mkdtemp(prefix="offload-")
    return args


def precision(name: Optional[str], device: Any) -> Any:
    """The dtype to load in: on a GPU, by default that of the saved weights."""
    if name and name != "auto" or devices.options().mixed_precision:
        return devices.dtype(name, device)
    return "auto" if device.type == "cuda" else devices.dtype("fp32", device)


def _memory(spare: float) -> "Dict[Any, int]":
    import psutil
    import torch

    free: Dict[Any, int] = {i: int(torch.cuda.mem_get_info(i)[0] * (1 - spare)) for i in range(torch.cuda.device_count())}
    free["cpu"] = int(psutil.virtual_memory().available * (1 - spare))
    return free


def explained(e: Exception, wanted: Wanted) -> Exception:
    """What keeps a model from being loaded, as a Fail; e itself if it is something else."""
    from muster_core._task import explained as known

    if isinstance(e, Fail) or known(e)[0] is not None:
        return e
    text = (str(e).strip().splitlines() or [type(e).__name__])[0].rstrip(".")[:300]
    where = f"model {wanted.model}"
    name = type(e).__name__
    if "trust_remote_code" in str(e):
        return Fail("bad_input", f"{where} has its own code: read it, and set trust_remote_code: true to run it")
    if (
        "SafetensorError" in name
        or "UnpicklingError" in name
        or "PytorchStreamReader" in str(e)
        or "BadZipFile" in name
        or "header" in text.lower()
        and "safetensors" in str(e).lower()
    ):
        return Fail("bad_input", f"{where}: its weights are damaged ({text}): fetch or copy it again")
    if isinstance(e, (RuntimeError, KeyError)) and ("mismatch" in str(e) or "shape" in str(e)):
        return Fail("bad_input", f"{where}: its weights do not fit its config.json ({text})")
    if isinstance(e, (OSError, ValueError, KeyError, TypeError, AttributeError)):
        return Fail("bad_input", f"{where} cannot be loaded: {text}")
    return e


def quiet() -> None:
    """Turn off progress bars and telemetry of libraries."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
