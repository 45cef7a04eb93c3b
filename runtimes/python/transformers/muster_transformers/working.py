"""Models at work: a list of items in, a record for each out.

An item is {"text": …}, {"messages": […]} or {"image": bytes}; with "shorter", the first of those that the model can read is used: the record's
"shortened" is its number from 1, and "too_long" is the error if it can read none. A record has "prediction" or "error", and "latency_ms": the duration of the item's batch.
"""

import io
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

from muster_core import Fail
from muster_core import device as devices
from muster_core.batch import fitting

from . import loading
from .items import BadItem, TooLong
from .loading import Json, Wanted, arguments, config_of

_NEW = 128  # default number of tokens of a text, if the model reads four times as many

Step = Callable[[Json], None]  # receives {"step": …, metrics}; it raises to stop the work
Items = Sequence[Json]


class Working:
    """A loaded model. run may be called again and again, from one thread at a time."""

    task = ""
    modality = "text"
    size = 32  # default batch size

    def __init__(self, wanted: Wanted, folder: Path, device: Any) -> None:
        self.wanted, self.folder, self.device = wanted, folder, device
        self.load_seconds = 0.0
        self.fits: Optional[int] = None  # the batch that fitted last, if a larger one did not

    def about(self) -> Json:
        """Its description in results."""
        return {
            "model": self.wanted.model,
            "task": self.task,
            "modality": self.modality,
            "device": devices.describe(self.device),
            "dtype": self.dtype(),
            "engine": self.wanted.engine,
            "load_seconds": round(self.load_seconds, 3),
            **self.more(),
        }

    def dtype(self) -> str:
        return ""

    def more(self) -> Json:
        return {}

    def batch_size(self, params: Json) -> int:
        """The one asked for, or one for what the owner optimizes for."""
        if params.get("batch_size"):
            return int(params["batch_size"])
        optimize = devices.options().optimize_for
        return 1 if optimize == "latency" else self.size * 4 if optimize == "throughput" else self.size

    def run(self, items: Items, params: Json, step: Step) -> List[Json]:
        """A record for each item, in their order."""
        own = not params.get("batch_size")  # then it is ours to choose
        halve = own or bool(params.get("auto_batch"))
        size = self.batch_size(params)
        if halve and self.fits:
            size = min(size, self.fits)
        records: List[Json] = [{} for _ in items]
        ready = []
        for i, item in enumerate(items):
            try:
                ready.append((i, self.prepared(item, params)))
            except BadItem as e:
                records[i] = {"error": str(e)}
        ready.sort(key=lambda pair: -self.length(pair[1]))  # the longest first: what does not fit shows at once
        streams = self.streams()
        at = 0
        while at < len(ready):
            start = at

            def work(n: int, start: int = start) -> "List[Json]":
                parts = [[thing for _, thing in ready[k : k + n]] for k in range(start, min(start + n * streams, len(ready)), n)]
                return self.timed(parts, params, step)

            done, fit = fitting(size, self.device, halve, work)
            if fit < size:
                size = self.fits = fit
            for (i, _), record in zip(ready[at:], done):
                records[i] = {**record, "shortened": items[i]["shortened"]} if "shortened" in items[i] else record
            at += len(done)
        return records

    def streams(self) -> int:
        """How many batches are on their way at once."""
        return devices.options().cuda_streams if self.device.type == "cuda" else 1

    def timed(self, parts: "List[List[Any]]", params: Json, step: Step) -> List[Json]:
        began = time.monotonic()
        records = [r for part in self.batches(parts, params, step) for r in part]
        took = round((time.monotonic() - began) * 1000, 3)
        for r in records:
            r.setdefault("latency_ms", took)
        return records

    def batches(self, parts: "List[List[Any]]", params: Json, step: Step) -> "List[List[Json]]":
        """Each batch is computed on a stream of its own, where there are several."""
        import torch

        if len(parts) == 1:
            return [self.read(self.computed(parts[0], params), parts[0], params)]
        outputs = []
        streams = [torch.cuda.Stream(self.device) for _ in parts]
        for part, stream in zip(parts, streams):
            stream.wait_stream(torch.cuda.current_stream(self.device))
            with torch.cuda.stream(stream):
                outputs.append(self.computed(part, params))
        torch.cuda.synchronize(self.device)
        return [self.read(out, part, params) for out, part in zip(outputs, parts)]

    def prepared(self, item: Json, params: Json) -> Any:
        """The input of computed for an item. BadItem has the reason why it is invalid."""
        raise NotImplementedError

    def length(self, thing: Any) -> int:
        return 0

    def computed(self, things: List[Any], params: Json) -> Any:
        raise NotImplementedError

    def read(self, out: Any, things: List[Any], params: Json) -> List[Json]:
        raise NotImplementedError


class Model(Working):
    """One of transformers."""

    auto = "AutoModel"

    def __init__(self, wanted: Wanted, folder: Path, device: Any) -> None:
        super().__init__(wanted, folder, device)
        import transformers

        config_of(folder, wanted.model)
        args = arguments(wanted, device)
        maker = getattr(transformers, self.maker(folder))
        self.model, loading_info = maker.from_pretrained(str(folder), output_loading_info=True, **args)
        missing = sorted(loading_info.get("missing_keys") or [])
        if missing and self.needs(missing):
            raise Fail(
                "bad_input",
                f"model {wanted.model} is not made for {self.task}: it has no weights for {', '.join(missing[:3])}{' and others' if len(missing) > 3 else ''}",
            )
        if not wanted.device_map:
            self.model.to(device)
        else:
            self.device = self.model.device
        self.model.eval()

    def maker(self, folder: Path) -> str:
        return self.auto

    def needs(self, missing: List[str]) -> bool:
        """Whether what would be made up at random matters to the result."""
        return True

    def dtype(self) -> str:
        return str(self.model.dtype).replace("torch.", "")


class Text(Model):
    """One that reads text."""

    def __init__(self, wanted: Wanted, folder: Path, device: Any) -> None:
        super().__init__(wanted, folder, device)
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=wanted.trust_remote_code)
        if self.tokenizer.pad_token is None:
            if self.tokenizer.eos_token is None:
                raise Fail("bad_input", f"model {wanted.model}: its tokenizer has neither a padding token nor an end-of-text token")
            self.tokenizer.pad_token = self.tokenizer.eos_token
        if getattr(self.model.config, "pad_token_id", None) is None:
            self.model.config.pad_token_id = self.tokenizer.pad_token_id
        self.most = self.longest()

    def longest(self) -> int:
        """How many tokens the model reads; 0 for no limit that is known."""
        known = []
        config = self.model.config.get_text_config() if hasattr(self.model.config, "get_text_config") else self.model.config
        for name in ("max_position_embeddings", "n_positions"):
            if n := getattr(config, name, 0):
                known.append(int(n) - (2 if config.model_type in ("roberta", "xlm-roberta", "camembert") else 0))
        if 0 < self.tokenizer.model_max_length < 10**9:
            known.append(int(self.tokenizer.model_max_length))
        return min(known, default=0)

    def prepared(self, item: Json, params: Json) -> Any:
        ids = self.tokens(self.text(item))
        if not ids:
            raise BadItem("the text is empty")
        if self.most and len(ids) > self.most:
            if not params.get("truncate"):
                raise TooLong(f"the text has {len(ids)} tokens, and the model reads {self.most}: shorten it, or write truncate: true")
            ids = self.tokenizer(self.text(item), truncation=True, max_length=self.most)["input_ids"]
        return ids

    def text(self, item: Json) -> str:
        text = item.get("text")
        if not isinstance(text, str):
            raise BadItem("not a string")
        return text

    def tokens(self, text: str) -> List[int]:
        return list(self.tokenizer(text, verbose=False)["input_ids"])

    def length(self, thing: Any) -> int:
        return len(thing)

    def padded(self, things: List[Any]) -> Any:
        return self.tokenizer.pad({"input_ids": things}, padding=True, return_tensors="pt").to(self.device)


class Generator(Text):
    """Goes on with texts, or answers messages."""

    task, size = loading.GENERATION, 8

    def __init__(self, wanted: Wanted, folder: Path, device: Any) -> None:
        super().__init__(wanted, folder, device)
        self.answers = bool(self.model.config.is_encoder_decoder)
        if not self.answers:
            self.tokenizer.padding_side = "left"

    def maker(self, folder: Path) -> str:
        names = config_of(folder, self.wanted.model).get("architectures") or []
        seq2seq = any(n.endswith(("ForConditionalGeneration", "ForSeq2SeqLM")) for n in names)
        return "AutoModelForSeq2SeqLM" if seq2seq else "AutoModelForCausalLM"

    def needs(self, missing: List[str]) -> bool:
        return any("lm_head" not in name for name in missing) or not getattr(self.model.config, "tie_word_embeddings", True)

    def more(self) -> Json:
        return {"max_tokens": self.most, "chat": bool(getattr(self.tokenizer, "chat_template", None))}

    def streams(self) -> int:
        return 1  # each of its steps depends on the one before

    def text(self, item: Json) -> str:
        messages = item.get("messages")
        if messages is None:
            return super().text(item)
        if not getattr(self.tokenizer, "chat_template", None):
            raise BadItem("it has messages or a system prompt, and the model has no chat template: write its text as the model wants it")
        try:
            return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
        except Exception as e:  # noqa: BLE001 - templates are programs of the model's maker
            raise BadItem(f"the model's chat template does not take these messages: {e}") from e

    def tokens(self, text: str) -> List[int]:
        # A template writes the special tokens itself.
        special = not (self.tokenizer.bos_token and text.startswith(self.tokenizer.bos_token))
        return list(self.tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])

    def prepared(self, item: Json, params: Json) -> Any:
        try:
            return self.prompt(item, params)
        except TooLong as e:
            for n, other in enumerate(item.get("shorter") or [], 1):
                try:
                    ids = self.prompt(other, params)
                except TooLong:
                    continue
                item["shortened"] = n
                return ids
            raise TooLong(item.get("too_long") or str(e)) from e

    def prompt(self, item: Json, params: Json) -> List[int]:
        ids: List[int] = super().prepared(item, params)
        new = self.new(params)
        if not self.answers and self.most and len(ids) + new > self.most:
            if not params.get("truncate") or new >= self.most:
                own = "" if params.get("max_new_tokens") else ", the default number of generated tokens"
                raise TooLong(
                    f"the prompt has {len(ids)} tokens and max_new_tokens is {new}{own}, and the model reads {self.most} together: shorten one of them, or write truncate: true"
                )
            ids = ids[new - self.most :]  # the answer depends on the end of a prompt
        return ids

    def new(self, params: Json) -> int:
        """How many tokens are generated: as many as asked for, else what leaves most of what the model reads to the prompt."""
        if asked := params.get("max_new_tokens"):
            return int(asked)
        return _NEW if self.answers or not self.most else min(_NEW, max(1, self.most // 4))

    def batches(self, parts: "List[List[Any]]", params: Json, step: Step) -> "List[List[Json]]":
        return [self.generated(part, params, step) for part in parts]

    def generated(self, things: List[Any], params: Json, step: Step) -> List[Json]:
        import torch

        batch = self.padded(things)
        temperature = float(params.get("temperature") or 0)
        args: Json = {"max_new_tokens": self.new(params), "do_sample": temperature > 0, "pad_token_id": self.tokenizer.pad_token_id}
        if temperature > 0:
            args.update(temperature=temperature, top_p=float(params.get("top_p") or 1.0), top_k=int(params.get("top_k") or 0))
        else:
            args.update(temperature=None, top_p=None, top_k=None)
        if params.get("repetition_penalty"):
            args["repetition_penalty"] = float(params["repetition_penalty"])
        stop = [s for s in params.get("stop") or [] if s]
        if stop:
            args.update(stop_strings=stop, tokenizer=self.tokenizer)
        if params.get("seed") is not None:
            torch.manual_seed(int(params["seed"]))
        watch = _Stream(self, len(things), step)
        began = time.monotonic()
        with torch.inference_mode():
            out = self.model.generate(**batch, **args, streamer=watch)
        took = time.monotonic() - began
        rows = out if self.answers else out[:, batch["input_ids"].shape[1] :]
        ends = set(_list(self.model.generation_config.eos_token_id)) | {self.tokenizer.eos_token_id}
        records = []
        for thing, row in zip(things, rows.tolist()):
            if self.answers:
                row = row[1:]  # the token that it begins with
            end = next((k for k, t in enumerate(row) if t in ends), None)
            new = row if end is None else row[:end]
            text, ended = self.tokenizer.decode(new, skip_special_tokens=True), end is not None
            for s in stop:
                if s in text:
                    text, ended = text[: text.index(s)], True
            records.append(
                {
                    "prediction": text,
                    "finish": "stop" if ended else "length",
                    "tokens_in": len(thing),
                    "tokens_out": len(new),
                    "latency_ms": round(took * 1000, 3),
                }
            )
        return records


class _Stream:
    """Is given the tokens of a batch as they come, as a streamer of transformers."""

    def __init__(self, of: Generator, batch: int, step: Step) -> None:
        self.of, self.batch, self.step = of, batch, step
        self.began = self.reported_at = time.monotonic()
        self.first = not of.answers  # what comes first is the prompt
        self.tokens: List[int] = []
        self.count = 0

    def put(self, value: Any) -> None:
        if self.first:
            self.first = False
            return
        self.count += self.batch
        self.tokens.append(int(value.reshape(-1)[0]))
        now = time.monotonic()
        if now - self.reported_at >= 0.5 or len(self.tokens) == 1:
            self.reported_at = now
            text = self.of.tokenizer.decode(self.tokens[-64:], skip_special_tokens=True)
            self.step({"text": text[-200:], "tokens_per_second": self.count / max(now - self.began, 1e-9)})

    def end(self) -> None:
        pass


class Classifier(Text):
    """Says which of its labels a text has."""

    task, auto = loading.CLASSIFICATION, "AutoModelForSequenceClassification"

    def computed(self, things: List[Any], params: Json) -> Any:
        import torch

        with torch.inference_mode():
            return self.model(**self.padded(things)).logits

    def read(self, out: Any, things: List[Any], params: Json) -> List[Json]:
        return _labelled(self.model.config, out, params)


class Images(Model):
    """Classifies images."""

    task, auto, modality, size = loading.IMAGES, "AutoModelForImageClassification", "image", 16

    def __init__(self, wanted: Wanted, folder: Path, device: Any) -> None:
        super().__init__(wanted, folder, device)
        from transformers import AutoImageProcessor

        self.processor = AutoImageProcessor.from_pretrained(str(folder), trust_remote_code=wanted.trust_remote_code)

    def prepared(self, item: Json, params: Json) -> Any:
        from PIL import Image, UnidentifiedImageError

        try:
            image: Any = Image.open(io.BytesIO(item["image"]))
            image.load()
            return self.processor(images=image.convert("RGB"), return_tensors="pt")["pixel_values"][0]
        except UnidentifiedImageError:
            raise BadItem("not an image of a known format") from None
        except Image.DecompressionBombError as e:
            raise BadItem(f"the image is too large: {e}") from e
        except (KeyError, TypeError):
            raise BadItem("not an image") from None
        except Exception as e:  # noqa: BLE001 - decoders fail in many ways
            raise BadItem(f"the image cannot be read: {e}") from e

    def computed(self, things: List[Any], params: Json) -> Any:
        import torch

        with torch.inference_mode():
            pixels = torch.stack(things).to(self.device, self.model.dtype)
            return self.model(pixel_values=pixels).logits

    def read(self, out: Any, things: List[Any], params: Json) -> List[Json]:
        return _labelled(self.model.config, out, params)


class Embedder(Text):
    """Turns texts into vectors according to the model's modules.json: pooling of tokens, and normalization."""

    task = loading.EMBEDDING

    def __init__(self, wanted: Wanted, folder: Path, device: Any) -> None:
        self.pooling, self.normalize, self.limit, self.prompts = _sentence(folder, wanted.model)
        super().__init__(wanted, folder, device)
        self.dimensions = int(getattr(self.model.config, "hidden_size", 0) or 0)

    def needs(self, missing: List[str]) -> bool:
        return any("pooler" not in name for name in missing)

    def longest(self) -> int:
        most = super().longest()
        return min(most or self.limit, self.limit) if self.limit else most

    def more(self) -> Json:
        return {"dimensions": self.dimensions, "pooling": self.pooling, "max_tokens": self.most}

    def text(self, item: Json) -> str:
        return self.prompts.get(str(item.get("prompt_name")), "") + super().text(item)

    def prepared(self, item: Json, params: Json) -> Any:
        ids = super().prepared(item, {"truncate": params.get("truncate", True)})
        return ids

    def computed(self, things: List[Any], params: Json) -> Any:
        import torch

        batch = self.padded(things)
        with torch.inference_mode():
            hidden = self.model(**batch).last_hidden_state.float()
            mask = batch["attention_mask"]
            if self.pooling == "cls":
                out = hidden[:, 0]
            elif self.pooling == "last":
                at = mask.shape[1] - 1 - mask.flip(1).argmax(1)
                out = hidden[torch.arange(len(things), device=hidden.device), at]
            elif self.pooling == "max":
                out = hidden.masked_fill(mask.unsqueeze(-1) == 0, float("-inf")).max(1).values
            else:
                weight = mask.unsqueeze(-1).float()
                out = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
            normalize = params.get("normalize")
            if self.normalize if normalize is None else normalize:
                out = torch.nn.functional.normalize(out, dim=1)
            return out

    def read(self, out: Any, things: List[Any], params: Json) -> List[Json]:
        return [{"prediction": row, "tokens_in": len(t)} for row, t in zip(out.cpu().tolist(), things)]


MAKERS: "Dict[str, Callable[[Wanted, Path, Any], Working]]" = {
    loading.GENERATION: Generator,
    loading.CLASSIFICATION: Classifier,
    loading.IMAGES: Images,
    loading.EMBEDDING: Embedder,
}

_POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}


def _sentence(folder: Path, model: str) -> "tuple[str, bool, int, Dict[str, str]]":
    """The pooling of a model of sentence-transformers; the mean by default."""
    import json

    def read(path: Path) -> Any:
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError as e:
            raise Fail("bad_input", f"model {model}: {path.name} is damaged: {e}") from e

    pooling, normalize = "mean", False
    for module in read(folder / "modules.json") or []:
        kind = str(module.get("type", "")).rsplit(".", 1)[-1]
        if kind == "Pooling":
            config = read(folder / module.get("path", "") / "config.json")
            modes = (
                [config["pooling_mode"]]
                if config.get("pooling_mode")
                else [_POOLINGS.get(k, k) for k, v in config.items() if k.startswith("pooling_mode_") and v is True]
            )
            modes = [{"lasttoken": "last"}.get(m, m) for m in modes] or ["mean"]
            if len(modes) != 1 or modes[0] not in _POOLINGS.values():
                raise Fail("bad_input", f"model {model} uses an unsupported pooling: {', '.join(modes)}")
            pooling = modes[0]
        elif kind == "Normalize":
            normalize = True
        elif kind != "Transformer":
            raise Fail("bad_input", f"model {model} has a module that is not supported: {module.get('type')}")
    limit = int(read(folder / "sentence_bert_config.json").get("max_seq_length") or 0)
    prompts = read(folder / "config_sentence_transformers.json").get("prompts") or {}
    return pooling, normalize, limit, prompts


def _labelled(config: Any, logits: Any, params: Json) -> List[Json]:
    """The labels of logits. Those of a model for several labels at once are each judged alone."""
    several = config.problem_type == "multi_label_classification" or logits.shape[-1] == 1
    scores = (logits.float().sigmoid() if several else logits.float().softmax(-1)).cpu()
    names = config.id2label or {}
    top = min(int(params.get("top_k") or 1), scores.shape[-1])
    best, which = scores.topk(top, dim=-1)
    records = []
    for row, indices in zip(best.tolist(), which.tolist()):
        if any(v != v for v in row):
            records.append({"error": "the model's scores are not numbers: take another precision"})
            continue
        labels = [{"label": names.get(i, f"class_{i}"), "score": round(v, 6)} for v, i in zip(row, indices)]
        record: Json = {"prediction": labels[0]["label"], "confidence": labels[0]["score"]}
        if top > 1:
            record["top"] = labels
        records.append(record)
    return records


def _list(value: Any) -> List[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
