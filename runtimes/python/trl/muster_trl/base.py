"""The model that is trained: found, loaded with its tokenizer, and given its adapter."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Optional
from urllib.parse import quote

from muster_core import Fail, log, models
from muster_core.fetch import bring, is_archive, is_url, shown, unpack

from .settings import Plan

ADAPTER = "adapter_config.json"

# What many models use that were not given a template of their own.
CHATML = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


def brought(plan: Plan, load: "Optional[Dict[str, Any]]") -> Plan:
    """The same plan with its model and adapter as folders: downloaded, unpacked.

    load is `checkpoint.load` of the input: weights of an earlier stage that take the place of the model's, or its adapter.
    """
    model, adapter = dict(plan.model), plan.adapter
    model.setdefault("said", model["name"])
    if load:
        where = _loaded(load)
        if (where / ADAPTER).exists():
            if adapter:
                raise Fail("bad_input", "checkpoint.load is an adapter, and adapter is also given: remove one")
            adapter = str(where)
        else:
            model["name"] = str(where)
    folder = _folder(model["name"], "model", model.get("revision"))
    if (folder / ADAPTER).exists():  # an adapter as a model: it names its base model
        if adapter:
            raise Fail("bad_input", f"model {model['said']} is an adapter, and adapter is also given: set model to its base model")
        adapter, name = str(folder), _made_for(folder)
        if not Path(name).is_dir() and name.startswith(("/", ".", "~")):
            raise Fail("bad_input", f"model {model['said']} is an adapter for {name}, which is not available: set model to that one, and adapter to this one")
        model["said"], folder = name, _folder(name, "model", None)
    if adapter:
        held = _folder(adapter, "adapter", None)
        if not (held / ADAPTER).exists():
            raise Fail("bad_input", f"adapter {adapter} has no {ADAPTER}: it is not a LoRA adapter")
        adapter = str(held)
    model["name"] = str(folder)
    return replace(plan, model=model, adapter=adapter)


def _folder(name: str, field: str, revision: "Optional[str]") -> Path:
    if is_url(name):
        file = bring(name, field)
        return _only(unpack(file, Path(f"{field}-unpacked"), field))
    if field == "adapter" and not Path(name).exists():
        raise Fail("bad_input", f"adapter {name} is not in the task's folder: add it with inputs")
    return models.find(name, revision)


def _loaded(load: "Dict[str, Any]") -> Path:
    where = load.get("url") or load.get("path") or (_of_task(load) if load.get("taskId") else load.get("filename"))
    if not where:
        raise Fail("bad_input", "checkpoint.load: url, path, taskId or filename is required")
    found = bring(where, "checkpoint.load", headers=load.get("headers"), patience=load.get("timeoutSec") or 60)
    if found.is_file():
        if load.get("archive_format", "auto") == "auto" and not is_archive(found):
            raise Fail("bad_input", f"checkpoint.load: {shown(where)} is neither a folder nor an archive of one")
        found = _only(unpack(found, Path("loaded"), "checkpoint.load"))
    if load.get("subdir"):
        found = found / load["subdir"]
        if not found.is_dir():
            raise Fail("bad_input", f"checkpoint.load.subdir: {shown(where)} has no folder {load['subdir']}")
    return found


def _of_task(load: "Dict[str, Any]") -> str:
    """The URL at which a host with MLOC's interface has a file of a task."""
    base = load.get("base_url") or os.environ.get("ORCHESTRATOR_BASE_URL")
    if not base:
        raise Fail("bad_input", "checkpoint.load.taskId: set base_url, or ORCHESTRATOR_BASE_URL in env, to the host that has the task's files")
    return f"{base.rstrip('/')}/api/v1/results/{quote(load['taskId'], safe='')}/files/{quote(load.get('filename') or 'final_model.tar.gz', safe='')}"


def _only(folder: Path) -> Path:
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def _made_for(folder: Path) -> str:
    try:
        name = json.loads((folder / ADAPTER).read_text(encoding="utf-8")).get("base_model_name_or_path")
    except ValueError as e:
        raise Fail("bad_input", f"{folder / ADAPTER} is not JSON: {e}") from e
    if not name:
        raise Fail("bad_input", f"{folder} is an adapter without the name of its base model: set model to the base model, and adapter to this one")
    return str(name)


def tokenizer(plan: Plan, chat: bool) -> Any:
    """The model's tokenizer, with something to pad with and, if chats are trained, a template."""
    from transformers import AutoTokenizer

    with _reading(plan, "tokenizer"):
        made = AutoTokenizer.from_pretrained(plan.model["name"], trust_remote_code=plan.model.get("trust_remote_code", False))
    if made.eos_token is None:
        raise Fail("bad_input", f"the tokenizer of model {plan.model['said']} has no token for the end of a text (eos_token), which training needs")
    if made.pad_token is None:
        made.pad_token = made.eos_token
    wanted = plan.chat_template
    if wanted == "chatml":
        made.chat_template = CHATML
    elif wanted:
        made.chat_template = bring(wanted, "chat_template").read_text(encoding="utf-8")
    if chat and not made.chat_template:
        raise Fail("bad_input", f"the data set has messages, and the tokenizer of model {plan.model['said']} has no chat template: set chat_template to chatml or to a Jinja file")
    return made


def causal(plan: Plan, tokens: Any, dtype: Any) -> Any:
    """The model that continues texts, without an adapter."""
    from transformers import AutoModelForCausalLM

    with _reading(plan, "weights"):
        model = AutoModelForCausalLM.from_pretrained(plan.model["name"], dtype=dtype, trust_remote_code=plan.model.get("trust_remote_code", False))
    return _fits(plan, tokens, model)


def classifier(plan: Plan, tokens: Any, dtype: Any, labels: "List[str]") -> Any:
    """The model with a new classification head."""
    from transformers import AutoModelForSequenceClassification

    names = dict(enumerate(labels))
    with _reading(plan, "weights"):
        model = AutoModelForSequenceClassification.from_pretrained(
            plan.model["name"],
            dtype=dtype,
            num_labels=len(labels),
            id2label=names,
            label2id={v: k for k, v in names.items()},
            ignore_mismatched_sizes=True,
            trust_remote_code=plan.model.get("trust_remote_code", False),
        )
    model.config.pad_token_id = tokens.pad_token_id
    return _fits(plan, tokens, model)


def _fits(plan: Plan, tokens: Any, model: Any) -> Any:
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokens) > rows:
        raise Fail("bad_input", f"the tokenizer of model {plan.model['said']} knows {len(tokens)} tokens and the model {rows}: they do not match")
    return model


def longest(model: Any) -> "Optional[int]":
    """The maximum number of tokens of the model, None if it is unknown."""
    text = model.config.get_text_config()
    for name in ("max_position_embeddings", "n_positions", "max_sequence_length"):
        if isinstance(value := getattr(text, name, None), int) and value > 0:
            return value
    return None


def max_length(plan: Plan, model: Any) -> int:
    most, asked = longest(model), plan.training.max_length
    if most and asked > most:
        raise Fail("bad_input", f"training.max_length: {asked} tokens are requested, but model {plan.model['said']} supports at most {most}")
    return asked or min(1024, most or 1024)


def adapted(plan: Plan, model: Any, task: str = "CAUSAL_LM") -> Any:
    """The model with its trainable part: all weights, a new adapter, or an adapter of an earlier stage.

    If all is trained, an earlier adapter becomes part of the weights.
    """
    import peft
    from transformers.pytorch_utils import Conv1D

    if plan.adapter:
        if plan.method == "lora" and plan.lora_given:
            raise Fail("bad_input", "lora: the adapter has its own settings: remove lora or the adapter")
        with _reading(plan, "adapter"):
            model = peft.PeftModel.from_pretrained(model, plan.adapter, is_trainable=plan.method == "lora")
        if plan.method == "lora":
            log(f"training continues with the adapter {Path(plan.adapter).name}")
            return model
        return model.merge_and_unload().requires_grad_(True)
    if plan.method != "lora":
        return model
    lora = plan.lora
    targets = lora.target_modules
    if targets is None and model.config.model_type not in peft.utils.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING:
        targets = "all-linear"
    config = peft.LoraConfig(
        r=lora.r, lora_alpha=lora.alpha, lora_dropout=lora.dropout, bias=lora.bias, target_modules=targets, use_rslora=lora.use_rslora, task_type=task,
        fan_in_fan_out=any(isinstance(m, Conv1D) for m in model.modules()),  # how GPT-2 lays its weights
    )  # fmt: skip
    try:
        return peft.get_peft_model(model, config)
    except ValueError as e:
        if "target modules" not in str(e).lower():
            raise
        raise Fail("bad_input", f"lora.target_modules: {_listed(targets)} matches no layer of model {plan.model['said']}; its layers are {', '.join(_layers(model))}") from e


def _layers(model: Any) -> "List[str]":
    """The last parts of the names of the layers that LoRA can adapt."""
    import torch
    from transformers.pytorch_utils import Conv1D

    return sorted({name.rsplit(".", 1)[-1] for name, m in model.named_modules() if isinstance(m, (torch.nn.Linear, Conv1D))} - {"lm_head", "score"})


def _listed(value: Any) -> str:
    return ", ".join(value) if isinstance(value, (list, tuple, set)) else str(value)


class _reading:
    """Turns errors of reading a model's files into one message about the model."""

    def __init__(self, plan: Plan, what: str) -> None:
        self.name, self.what = (plan.adapter if what == "adapter" else plan.model["said"]), what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, e: Any, trace: Any) -> None:
        if e is None or isinstance(e, (Fail, ImportError, MemoryError)) or not isinstance(e, Exception):
            return
        if isinstance(e, OSError) and e.errno is not None or "out of memory" in str(e).lower():
            return
        text = next((line.strip() for line in str(e).splitlines() if line.strip()), type(e).__name__).rstrip(".")[:300]
        raise Fail("bad_input", f"the {self.what} of model {os.path.basename(str(self.name)) or self.name} cannot be read: {text}") from e
