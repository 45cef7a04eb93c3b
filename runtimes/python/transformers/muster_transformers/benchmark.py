"""The kind benchmark: how fast a model computes, over batch sizes and precisions.

Inputs are random and of a declared shape. A run is timed from its submission to the device until the device
has finished it. A combination that cannot be computed is reported with its reason, and the others continue.
"""

import statistics
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

from muster_core import Fail, batch, log, models, report, run, save_json, system
from muster_core import device as devices

from . import loading

Json = Dict[str, Any]

_DEFAULTS: Json = {"batch_sizes": [1], "precision": "fp32", "iterations": 10, "warmup": 3, "task": "forward", "new_tokens": 32, "seed": 0, "compile": False}
_LENGTH = 128  # default number of tokens
_SAMPLED = 0.005  # seconds between two looks at the memory, where the system does not keep the peak for us
_BUSY = 0.1  # of the cores kept busy by others: figures are not to be relied on then
PACKAGES = ("torch", "transformers", "tokenizers", "accelerate", "numpy")


def measure(given: Json) -> Json:
    given = {**_DEFAULTS, **given}
    report(0, "loading the libraries")
    subject = Subject(given)
    precisions = [given["precision"]] if isinstance(given["precision"], str) else given["precision"]
    plan = [(precision, size) for precision in precisions for size in given["batch_sizes"]]
    runs: List[Json] = []
    raw: List[Json] = []
    energy, others = system.Energy(subject.device), system.Others()
    if not energy.source:
        log("no energy is reported: this task cannot read a counter")
    for i, (precision, size) in enumerate(plan):
        where = Where(i, len(plan), f"batch {size}, {precision}", given["warmup"] + given["iterations"])
        record, latencies = combination(subject, precision, size, energy, where)
        runs.append(record)
        raw.append({**record, "latencies_ms": latencies})
        log(f"batch {size}, {precision}: " + (f"{record['error']['reason']}: {record['error']['message']}" if "error" in record else f"{record['latency_ms']['mean']} ms, {record['throughput']} items/s"))
    result: Json = {
        "model": subject.name,
        "device": devices.describe(subject.device),
        "task": given["task"],
        "shape": subject.shape(),
        "parameters": subject.parameters,
        "warmup": given["warmup"],
        "compile": given["compile"],
        "seed": given["seed"],
        "system": system.describe(subject.device, PACKAGES),
        "runs": runs,
    }
    if energy.source:
        result["energy_of"] = energy.source
    if (busy := others.cores()) is not None:
        cores = result["system"].get("cores_allowed") or 1
        result["system"]["busy_cores"] = round(busy, 2)  # by others, while this was measured
        if busy > _BUSY * cores:
            result["warnings"] = [f"other programs kept {busy:.1f} of the machine's cores busy while this was measured, and it has {cores}: the figures are worse than they would be alone"]
            log(f"warning: {result['warnings'][0]}")
    save_json("benchmark.json", {**result, "runs": raw})
    if all("error" in r for r in runs):
        worst = runs[0]["error"]
        reason = worst["reason"] if worst["reason"] == "out_of_memory" else "bad_input"
        detail = {"fits": worst["fits"]} if "fits" in worst else {}
        raise Fail(reason, f"no combination could be measured; {plan[0][0]} with a batch of {plan[0][1]}: {worst['message']}", **detail)
    return result


class Where:
    """How far the benchmark is."""

    def __init__(self, done: int, of: int, name: str, runs: int) -> None:
        self.done, self.of, self.name, self.runs = done, of, name, runs
        self.reported_at = 0.0

    def __call__(self, number: int) -> None:
        now = time.monotonic()
        if number == 0 or now - self.reported_at > 0.5:
            self.reported_at = now
            report((self.done + number / self.runs) / self.of, f"{self.name} ({self.done + 1}/{self.of}), run {number + 1}/{self.runs}")


class Subject:
    """What is measured: a model, in one precision at a time."""

    def __init__(self, given: Json) -> None:
        import torch
        import transformers

        loading.quiet()
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        self.given = given
        self.device = devices.pick(given.get("device"))
        devices.seed(given["seed"])
        torch.use_deterministic_algorithms(False)  # the speed of the model without other load
        self.folder: Optional[Path] = None
        if "model" in given:
            self.name = given["model"]
            self.folder = models.find(self.name, given.get("revision"))
            loading.config_of(self.folder, self.name)
        else:
            self.name = f"config:{given['config']['model_type']}"
        self.config = self._config()
        self.cls = self._class()
        self.parameters: Optional[int] = None
        self.before = resident()
        self.model: Any = None
        self.precision = ""
        self.inputs_of = Inputs(self.config, self.cls, given)

    def ready(self, precision: str) -> None:
        """Load the model in this precision. It is loaded again, because rounded weights stay rounded."""
        import torch

        if precision == self.precision:
            return
        self.drop()
        if precision == "tf32" and (self.device.type != "cuda" or torch.cuda.get_device_capability(self.device) < (8, 0)):
            raise Unsupported(f"tf32 is for NVIDIA's GPUs since Ampere, not {devices.describe(self.device)}")
        if precision == "bf16" and self.device.type == "cuda" and not torch.cuda.is_bf16_supported():
            raise Unsupported(f"{devices.describe(self.device)} does not compute bf16")
        if self.device.type == "cuda":
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        dtype = devices.dtype("fp32" if precision == "tf32" else precision, self.device)
        self.model = self._made(dtype).to(self.device).eval()
        self.parameters = sum(p.numel() for p in self.model.parameters())
        if self.given["compile"]:
            self.model.forward = torch.compile(self.model.forward)
        self.precision = precision

    def drop(self) -> None:
        """Have no model in memory."""
        self.model, self.precision = None, ""
        devices.release(self.device)

    def inputs(self, size: int) -> Json:
        import torch

        draw = torch.Generator("cpu").manual_seed(self.given["seed"])
        made = self.inputs_of.make(size, draw)
        return {k: v.to(self.device, self.model.dtype) if v.is_floating_point() else v.to(self.device) for k, v in made.items()}

    def compute(self, inputs: Json) -> None:
        """One run, to its end on the device."""
        import torch

        with torch.inference_mode():
            if self.given["task"] == "generate":
                n = self.given["new_tokens"]
                self.model.generate(**inputs, max_new_tokens=n, min_new_tokens=n, do_sample=False)
            else:
                self.model(**inputs)
        self.settle()

    def settle(self) -> None:
        if self.device.type in ("cuda", "mps"):
            import torch

            getattr(torch, self.device.type).synchronize()

    def shape(self) -> Json:
        """That of the inputs, without the batch."""
        return {k: list(v.shape[1:]) for k, v in self.inputs_of.make(1, None).items()}

    def _config(self) -> Any:
        from transformers import AutoConfig

        try:
            if self.folder is not None:
                return AutoConfig.from_pretrained(str(self.folder))
            fields = dict(self.given["config"])
            return AutoConfig.for_model(fields.pop("model_type"), **fields)
        except (ValueError, KeyError, TypeError, OSError, AttributeError) as e:
            raise Fail("bad_input", f"model {self.name}: its configuration cannot be used: {_line(e)}") from e

    def _class(self) -> Any:
        """The class that its files name; for a configuration alone, that of its kind which can do the task."""
        import transformers

        for name in self.config.architectures or []:
            if cls := getattr(transformers, name, None):
                return cls
        auto = "AutoModelForCausalLM" if self.given["task"] == "generate" else "AutoModel"
        mapping = getattr(transformers, auto)._model_mapping
        if type(self.config) not in mapping:
            raise Fail("bad_input", f"model {self.name}: transformers {transformers.__version__} has no {auto} for it")
        cls = mapping[type(self.config)]
        return cls[0] if isinstance(cls, (list, tuple)) else cls

    def _made(self, dtype: Any) -> Any:
        import torch

        if self.folder is None:
            torch.manual_seed(self.given["seed"])
            return self.cls(self.config).to(dtype)
        wanted = loading.Wanted(model=self.name, revision=self.given.get("revision"))
        try:
            return self.cls.from_pretrained(str(self.folder), dtype=dtype)
        except Exception as e:  # noqa: BLE001 - explained, or raised again
            raise loading.explained(e, wanted) from e


class Unsupported(Exception):
    """A combination that this device or model cannot compute."""


class Inputs:
    """Random inputs of the shape that a model takes."""

    def __init__(self, config: Any, cls: Any, given: Json) -> None:
        self.config, self.given = config, given
        self.main = getattr(cls, "main_input_name", "input_ids")
        writes = bool(getattr(cls, "can_generate", lambda: False)())
        # One that compares texts with images takes both; one that writes can do without images.
        self.both = not writes and all(getattr(config, part, None) is not None for part in ("text_config", "vision_config"))
        if given["task"] == "generate" and not writes:
            raise Fail("bad_input", f"task: generate cannot be measured with a {cls.__name__}, which generates no text: use task: forward")
        if self.main not in ("input_ids", "pixel_values", "input_values", "input_features"):
            raise Fail("bad_input", f"inputs of the form {self.main}, which a {cls.__name__} needs, cannot be generated: use another model")
        if self.main != "pixel_values" and not self.both and given.get("image_size"):
            raise Fail("bad_input", f"image_size: a {cls.__name__} does not support images: remove it")
        if self.main != "input_ids" and not self.both and given.get("sequence_length"):
            raise Fail("bad_input", f"sequence_length: a {cls.__name__} does not support text alone: remove it")
        self.length = self._length()

    def make(self, size: int, draw: Any) -> Json:
        """The inputs of a batch; those of no draw are zeros, for their shape."""
        import torch

        def floats(*shape: int) -> Any:
            return torch.zeros(size, *shape) if draw is None else torch.randn(size, *shape, generator=draw)

        def tokens(length: int, of: Any) -> Any:
            return torch.randint(0, int(getattr(of, "vocab_size", 2)), (size, length), generator=draw, dtype=torch.long)

        text = self.config.get_text_config() if hasattr(self.config, "get_text_config") else self.config
        made: Json = {}
        if self.main == "pixel_values" or self.both:
            vision = getattr(self.config, "vision_config", self.config)
            side = self.given.get("image_size") or getattr(vision, "image_size", None) or 224
            high, wide = side if isinstance(side, (list, tuple)) else (side, side)
            made["pixel_values"] = floats(getattr(vision, "num_channels", 3), high, wide)
        elif self.main == "input_values":
            made["input_values"] = floats(16000)  # a second of sound
        elif self.main == "input_features":
            made["input_features"] = floats(getattr(self.config, "num_mel_bins", 80), 2 * getattr(self.config, "max_source_positions", 1500))
        if self.main == "input_ids" or self.both:
            made["input_ids"] = tokens(self.length, text)
            made["attention_mask"] = torch.ones(size, self.length, dtype=torch.long)
        if getattr(self.config, "is_encoder_decoder", False) and self.given["task"] == "forward":
            start = getattr(self.config, "decoder_start_token_id", None) or 0
            made["decoder_input_ids"] = torch.full((size, 1), start, dtype=torch.long)
        return made

    def _length(self) -> int:
        text = self.config.get_text_config() if hasattr(self.config, "get_text_config") else self.config
        most = next((int(n) for name in ("max_position_embeddings", "n_positions") if (n := getattr(text, name, 0))), 0)
        new = self.given["new_tokens"] if self.given["task"] == "generate" else 0
        asked = self.given.get("sequence_length")
        if asked and most and asked + new > most:
            with_new = f" with {new} new_tokens" if new else ""
            raise Fail("bad_input", f"sequence_length: {asked}{with_new} is more than the {most} tokens of the model's context")
        if most and new >= most:
            raise Fail("bad_input", f"new_tokens: {new} is more than the {most} tokens of the model's context")
        return asked or min(_LENGTH, most - new if most else _LENGTH)


def combination(subject: Subject, precision: str, size: int, energy: system.Energy, where: Where) -> "tuple[Json, List[float]]":
    """What was measured of one batch size and precision, and each latency in ms."""
    given = subject.given
    record: Json = {"batch_size": size, "precision": precision, "iterations": given["iterations"]}
    latencies: List[float] = []
    figures: Json = {}

    def work(n: int) -> None:
        subject.ready(precision)
        with peak(subject, figures):
            inputs = subject.inputs(n)
            for i in range(given["warmup"]):
                where(i)
                subject.compute(inputs)
            subject.settle()
            joules = energy.joules()
            for i in range(given["iterations"]):
                where(given["warmup"] + i)
                began = time.perf_counter()
                subject.compute(inputs)
                latencies.append((time.perf_counter() - began) * 1e3)
                energy.joules()  # so that no turn of its counter is missed
            after = energy.joules()
            if joules is not None and after is not None:
                figures["energy_j"] = round(after - joules, 3)

    where(0)
    report(batch_size=size)
    error = _failure(lambda: batch.tried(size, subject.device, work))
    if error is not None:
        subject.drop()
        if error["reason"] == "out_of_memory":
            fits = _fits(subject, precision, size)
            advice = f"a batch of {fits} fits" if fits else "not even a batch of 1 fits: take a smaller model or precision, or a worker with more memory"
            error.update(message=f"it does not fit into the memory of {devices.describe(subject.device)} ({error['message']}); {advice}", fits=fits)
        return {**record, "error": error}, []
    total = sum(latencies) / 1e3
    record["latency_ms"] = summary(latencies)
    record["throughput"] = round(size * len(latencies) / total, 3)
    if given["task"] == "generate":
        record["tokens_per_second"] = round(size * given["new_tokens"] * len(latencies) / total, 3)
    return {**record, **figures}, [round(v, 4) for v in latencies]


def _fits(subject: Subject, precision: str, size: int) -> int:
    """The first of size/2, size/4, … that can be computed; 0 for none."""

    def once(n: int) -> None:
        subject.ready(precision)
        subject.compute(subject.inputs(n))

    while (size := size // 2) >= 1:
        report(step=f"trying a batch of {size}", batch_size=size)
        if batch.tried(size, subject.device, once)[0]:
            return size
        subject.drop()
    return 0


def _failure(work: "Callable[[], tuple[bool, Any, str]]") -> Optional[Json]:
    """Why a combination could not be measured, None if it was. What would stop the others as well is raised."""
    try:
        done, _, cause = work()
    except Unsupported as e:
        return {"reason": "not_supported", "message": str(e)}
    except (NotImplementedError, RuntimeError) as e:
        if "not implemented" in str(e) or "not supported" in str(e).lower() or isinstance(e, NotImplementedError):
            return {"reason": "not_supported", "message": _line(e)}
        raise
    return None if done else {"reason": "out_of_memory", "message": cause}


def summary(latencies: List[float]) -> Json:
    """Percentiles are interpolated between the two nearest runs."""
    ordered = sorted(latencies)

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

    record = {"mean": statistics.fmean(ordered), "p50": at(0.5), "p90": at(0.9), "p95": at(0.95), "p99": at(0.99), "min": ordered[0], "max": ordered[-1]}
    return {k: round(v, 4) for k, v in record.items()}


@contextmanager
def peak(subject: Subject, figures: Json) -> Iterator[None]:
    """Adds peak_memory: the most bytes that were in use with the model. On a CPU, by how much the process grew beyond what the libraries take."""
    import torch

    device = subject.device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        yield
        figures["peak_memory"] = int(torch.cuda.max_memory_allocated(device))
        return
    if device.type != "cpu" or subject.before is None:
        yield
        return
    if _reset_peak():
        yield
        most = resident(peak=True) or 0
    else:  # as in the sandbox
        before = resident(peak=True) or 0
        with Sampled() as sampled:
            yield
        most = resident(peak=True) or 0
        if most <= before:  # an earlier run used more: use the observations of this one
            most = sampled.most
    figures["peak_memory"] = max(most - subject.before, 0)


class Sampled:
    """The most memory that this process was seen to have, looked at again and again by a thread."""

    def __init__(self) -> None:
        self.most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while True:
            self.most = max(self.most, resident() or 0)
            if self._over.wait(_SAMPLED):
                return

    def __enter__(self) -> "Sampled":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._thread.join()
        self.most = max(self.most, resident() or 0)


def resident(peak: bool = False) -> Optional[int]:
    """Bytes of memory that this process has now, or had at most."""
    name = "VmHWM:" if peak else "VmRSS:"
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return None


def _reset_peak() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
        return True
    except OSError:
        return False


def _line(e: BaseException) -> str:
    text = str(e).strip().splitlines()
    return text[0].rstrip(".")[:300] if text else type(e).__name__


if __name__ == "__main__":
    run(measure)
