"""A diffusion pipeline in memory: loading it, its scheduler, what saves memory, and its checker."""

import inspect
import json
import os
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from muster_core import Fail, log, models
from muster_core import device as devices

Json = Dict[str, Any]

# By the names that people know them by: the class, and how it is set up.
SCHEDULERS: "Dict[str, tuple[str, Json]]" = {
    "ddim": ("DDIMScheduler", {}),
    "ddpm": ("DDPMScheduler", {}),
    "deis": ("DEISMultistepScheduler", {}),
    "dpm++": ("DPMSolverMultistepScheduler", {}),
    "dpm++-karras": ("DPMSolverMultistepScheduler", {"use_karras_sigmas": True}),
    "euler": ("EulerDiscreteScheduler", {}),
    "euler-ancestral": ("EulerAncestralDiscreteScheduler", {}),
    "heun": ("HeunDiscreteScheduler", {}),
    "pndm": ("PNDMScheduler", {}),
    "unipc": ("UniPCMultistepScheduler", {}),
}

# What saves memory, the cheapest first.
SAVERS = ("vae_slicing", "attention_slicing", "vae_tiling", "cpu_offload", "sequential_offload")


# Fields of the input, and what pipelines call them.
_FIELDS = {"steps": "num_inference_steps", "guidance": "guidance_scale", "negative_prompt": "negative_prompt", "width": "width", "height": "height"}


class Pipeline:
    """A loaded pipeline that makes images of prompts."""

    def __init__(self, given: Json, step: Callable[[str], None]) -> None:
        step("loading the libraries")
        os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
        import diffusers
        import torch
        import transformers

        for library in (diffusers, transformers):
            library.utils.logging.set_verbosity_error()
            library.utils.logging.disable_progress_bar()
        self.name: str = given["model"]
        self.device = devices.pick(given.get("device"))
        self.dtype = _precision(given.get("precision"), self.device)
        half = "fp16" if self.dtype != torch.float32 else None
        step(f"finding {self.name}")
        folder = models.find(self.name, given.get("revision"), variant=half)
        self.kind = _kind(folder, self.name)
        step(f"loading {self.name} on {devices.describe(self.device)}")
        began = time.monotonic()
        try:
            self.pipe = diffusers.DiffusionPipeline.from_pretrained(str(folder), dtype=self.dtype, variant=half if _has(folder, half) else None, local_files_only=True)
        except Exception as e:  # noqa: BLE001 - explained, or raised again
            raise _unusable(e, self.name) from e
        self.load_seconds = round(time.monotonic() - began, 3)
        self.pipe.set_progress_bar_config(disable=True)
        self.takes = set(inspect.signature(self.pipe.__call__).parameters)
        self.checker = self._checker(given["safety"])
        self._schedule(given.get("scheduler"))
        self.savers: List[str] = []
        wanted = given.get("memory_savers", "auto")
        self.may_save = wanted == "auto"
        self.placed = False
        for saver in [] if self.may_save else sorted(wanted, key=SAVERS.index):
            if not self.save(saver):
                raise Fail("bad_input", f"memory_savers: {saver} has no effect on {devices.describe(self.device)} with a {self.kind}: leave it out")

    @property
    def scheduler(self) -> str:
        return type(self.pipe.scheduler).__name__

    @property
    def precision(self) -> str:
        return str(self.dtype).replace("torch.", "")

    def own(self, field: str) -> Any:
        """What the pipeline takes for a field that is not given."""
        parameter = inspect.signature(self.pipe.__call__).parameters.get(_FIELDS[field])
        return None if parameter is None or parameter.default is inspect.Parameter.empty else parameter.default

    def versions(self) -> str:
        import diffusers
        import torch

        return f"diffusers {diffusers.__version__}, torch {torch.__version__}"

    def images(self, prompts: List[str], seeds: List[int], given: Json, each: "Callable[[int, int, Any], None]", steps: Optional[int] = None) -> Any:
        """Arrays of height × width × 3 from 0 to 1, one for each prompt and its seed. each is called after a step with its number, how many there are, and the latents."""
        import torch

        self._place()
        # Noise is drawn on the CPU, so that a seed means the same on every device.
        noise = [torch.Generator("cpu").manual_seed(s) for s in seeds]
        args: Json = {"prompt": prompts, "generator": noise, "output_type": "np"}
        for field, name in _FIELDS.items():
            if given.get(field) is None or field == "negative_prompt" and not given[field]:
                continue
            if name not in self.takes:
                raise Fail("bad_input", f"{field}: model {self.name}, a {self.kind}, takes none: remove it, or use another model")
            args[name] = [given[field]] * len(prompts) if field == "negative_prompt" else given[field]
        if steps:
            args["num_inference_steps"] = steps

        def after(pipe: Any, number: int, timestep: Any, state: Json) -> Json:
            each(number + 1, getattr(pipe, "num_timesteps", 0) or number + 1, state.get("latents"))
            return state

        if "callback_on_step_end" in self.takes:
            args["callback_on_step_end"] = after
        try:
            with torch.inference_mode():
                return self.pipe(**args).images
        except ValueError as e:  # of the pipeline's own look at what it is given
            raise Fail("bad_input", f"model {self.name} does not support this input: {_line(e)}") from e

    def peak(self) -> "Optional[int]":
        """The most bytes of a GPU's memory that were in use, None without one."""
        if self.device.type != "cuda":
            return None
        import torch

        return int(torch.cuda.max_memory_reserved(self.device))

    def flagged(self, images: Any) -> "Optional[List[bool]]":
        """Which of the images the model's checker objects to, None if nothing looks."""
        if self.checker is None:
            return None
        import torch

        checker, extractor = self.checker
        pictures = self.pipe.image_processor.numpy_to_pil(images)
        with torch.inference_mode():
            seen = extractor(pictures, return_tensors="pt").pixel_values.to(checker.device, checker.dtype)
            return [bool(f) for f in checker(images=images.copy(), clip_input=seen)[1]]

    def cut(self, prompt: str) -> bool:
        """Whether the prompt is longer than the model reads."""
        tokenizer = getattr(self.pipe, "tokenizer", None)
        most = getattr(tokenizer, "model_max_length", 0)
        return tokenizer is not None and 0 < most < 10**6 and len(tokenizer(prompt, verbose=False).input_ids) > most

    def save_more(self) -> bool:
        """Enable the next option that saves memory. False if there is none left."""
        if not self.may_save:
            return False
        for saver in SAVERS:
            if saver in self.savers or saver == "sequential_offload" and not devices.options().enable_swap:
                continue
            if self.save(saver):
                log(f"not even one image fits into memory: continuing with {saver}")
                return True
        return False

    def save(self, saver: str) -> bool:
        """Turn it on; False where it has no effect."""
        pipe, vae = self.pipe, getattr(self.pipe, "vae", None)
        if saver.startswith("vae_"):
            turn_on = getattr(vae, "enable_slicing" if saver == "vae_slicing" else "enable_tiling", None)
            if turn_on is None:
                return False
            turn_on()
        elif saver == "attention_slicing":
            if not any(hasattr(m, "set_attention_slice") for m in pipe.components.values()):
                return False
            pipe.enable_attention_slicing()
        else:
            if self.device.type == "cpu":
                return False
            pipe.enable_sequential_cpu_offload(device=self.device) if saver == "sequential_offload" else pipe.enable_model_cpu_offload(device=self.device)
            self.placed = True
        self.savers.append(saver)
        devices.release(self.device)
        return True

    def _place(self) -> None:
        if not self.placed:
            self.pipe.to(self.device)
            self.placed = True

    def _checker(self, safety: str) -> Any:
        """The checker is taken out of the pipeline, which would black out what it flags without a word."""
        checker, extractor = getattr(self.pipe, "safety_checker", None), getattr(self.pipe, "feature_extractor", None)
        if checker is not None:
            self.pipe.safety_checker = None
            self.pipe.register_to_config(requires_safety_checker=False)
        if safety == "off":
            return None
        if checker is None or extractor is None:
            raise Fail(
                "dependency",
                f"safety: with {safety}{' (the default)' if safety == 'on' else ''} a checker that the model brings looks at each image, and model {self.name} brings no safety checker: "
                "write safety: off and look at the images yourself, or take a model that has one, such as stable-diffusion-v1-5/stable-diffusion-v1-5",
            )
        return checker.eval(), extractor

    def _schedule(self, name: Optional[str]) -> None:
        if name is None:
            return
        import diffusers

        cls, how = SCHEDULERS[name]
        if type(self.pipe.scheduler).__name__.startswith("Flow"):
            raise Fail("bad_input", f"scheduler: {name} cannot be used with model {self.name}, which needs {self.scheduler}: remove it")
        self.pipe.scheduler = getattr(diffusers, cls).from_config(self.pipe.scheduler.config, **how)


def _precision(name: Optional[str], device: Any) -> Any:
    if device.type == "cuda" and (not name or name == "auto") and not devices.options().mixed_precision:
        return devices.dtype("fp16", device)
    return devices.dtype(name, device)


def _kind(folder: Path, model: str) -> str:
    """The class of the pipeline in a folder, which must be one of diffusers' own that takes prompts."""
    import diffusers
    from diffusers.pipelines.auto_pipeline import AUTO_TEXT2IMAGE_PIPELINES_MAPPING

    index = folder / "model_index.json"
    if not index.is_file():
        raise Fail("bad_input", f"model {model} is not a diffusers pipeline: it has no model_index.json")
    try:
        name = json.loads(index.read_text(encoding="utf-8"))["_class_name"]
    except (ValueError, KeyError, TypeError) as e:
        raise Fail("bad_input", f"model {model}: its model_index.json is damaged: {_line(e)}") from e
    cls = getattr(diffusers, name, None) if isinstance(name, str) else None
    if cls is None:
        raise Fail("bad_input", f"model {model} needs a pipeline {name}, which diffusers {diffusers.__version__} does not have")
    if cls not in AUTO_TEXT2IMAGE_PIPELINES_MAPPING.values() or "Control" in name:
        raise Fail("bad_input", f"model {model} is a {name}, which does not generate images from a prompt alone")
    return str(name)


def _has(folder: Path, variant: Optional[str]) -> bool:
    return variant is not None and any(folder.glob(f"*/*.{variant}*"))


def _unusable(e: Exception, model: str) -> Exception:
    from muster_core._task import explained

    if explained(e)[0] is not None:
        return e
    if "Safetensor" in type(e).__name__ or "Unpickling" in type(e).__name__ or "checkpoint file" in str(e) or "HeaderTooLarge" in str(e) or "header" in str(e).lower():
        return Fail("bad_input", f"model {model}: its weights are damaged ({_line(e)}): fetch or copy it again")
    if isinstance(e, (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError)):
        return Fail("bad_input", f"model {model} cannot be loaded: {_line(e)}")
    return e


def _line(e: BaseException) -> str:
    text = str(e).strip().splitlines()
    return text[0].rstrip(".")[:300] if text else type(e).__name__
