"""What a task asks for: the input of the five kinds, with their other spellings, as one plain record."""

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Dict, List, Optional, Union

from muster_core import Fail

KINDS = ("fine_tuning", "sft", "lora_sft", "dpo", "ppo")

# Default learning rates: adapters take larger steps than complete models, preferences smaller ones.
_RATES = {("sft", "full"): 2e-5, ("sft", "lora"): 2e-4, ("dpo", "full"): 1e-6, ("dpo", "lora"): 1e-5, ("ppo", "full"): 3e-6, ("ppo", "lora"): 1e-5}


@dataclass(frozen=True)
class Training:
    """`training:` of the input."""

    epochs: float = 3
    max_steps: int = 0  # 0: by epochs
    batch_size: int = 8  # of one process, for one forward pass
    gradient_accumulation: int = 1
    learning_rate: float = 0  # 0: by kind and method
    scheduler: str = "linear"
    warmup: float = 0  # below 1: share of the steps; else steps
    weight_decay: float = 0
    max_grad_norm: float = 1
    seed: int = 42
    max_length: int = 0  # in tokens; 0: 1024, or what the model takes at most
    too_long: str = "truncate"
    precision: str = "auto"
    gradient_checkpointing: bool = False
    eval_split: Optional[float] = None  # None: 0.1 of a classification, else nothing
    eval_steps: int = 0  # 0: after each epoch
    save_steps: int = 0  # 0: ten times in all
    log_steps: int = 0  # 0: five hundred times in all
    keep_checkpoint: Optional[bool] = None
    allow_multi_gpu: bool = True
    nproc_per_node: int = 0  # 0: a process for each GPU
    auto_batch: bool = False
    early_stop: Dict[str, Any] = field(default_factory=dict)
    device: str = "auto"


@dataclass(frozen=True)
class Lora:
    """`lora:` of the input."""

    r: int = 16
    alpha: float = 32
    dropout: float = 0
    bias: str = "none"
    target_modules: Union[None, str, List[str]] = None
    use_rslora: bool = False


@dataclass(frozen=True)
class Dpo:
    """`dpo:` of the input."""

    beta: float = 0.1
    loss: str = "sigmoid"
    label_smoothing: float = 0


@dataclass(frozen=True)
class Ppo:
    """`ppo:` of the input."""

    ppo_epochs: int = 4  # updates with what was written once
    max_new_tokens: int = 64
    min_new_tokens: int = 1
    temperature: float = 1
    kl_coef: float = 0.05
    clip_range: float = 0.2
    value_clip_range: float = 0.2
    value_coef: float = 0.1
    gamma: float = 1
    lam: float = 0.95
    missing_eos_penalty: float = 0


@dataclass(frozen=True)
class Plan:
    kind: str
    model: Dict[str, Any]  # name, revision, trust_remote_code
    adapter: str
    chat_template: str
    dataset: Any
    eval_dataset: Any
    method: str  # full or lora
    task: str  # of fine_tuning: auto, text or classification
    training: Training
    lora: Lora
    lora_given: bool
    dpo: Dpo
    ppo: Ppo
    reward: Any

    @property
    def teaches(self) -> str:
        """How it is trained: sft, dpo or ppo."""
        return self.kind if self.kind in ("dpo", "ppo") else "sft"

    @property
    def learning_rate(self) -> float:
        return self.training.learning_rate or _RATES[self.teaches, self.method]

    @property
    def keeps_checkpoint(self) -> bool:
        kept = self.training.keep_checkpoint
        return self.kind == "fine_tuning" if kept is None else kept

    @property
    def final(self) -> str:
        return "final_lora" if self.method == "lora" else "final_model"


def plan(kind: str, given: Dict[str, Any]) -> Plan:
    """Read the input of a kind. The worker has validated it with the schema; here are the checks that a schema cannot express."""
    if kind not in KINDS:
        raise ValueError(f"{kind} is not one of {', '.join(KINDS)}")
    flat = {k: given[k] for k in ("epochs", "max_steps", "batch_size", "learning_rate", "seed") if given.get(k) is not None}
    asked = dict(given.get("training") or {})
    if both := sorted(set(flat) & set(asked)):
        raise Fail("bad_input", f"{both[0]} is given twice, as {both[0]} and as training.{both[0]}: remove one")
    training = _record(Training, {**asked, **flat}, "training")
    if training.early_stop and not (training.eval_split or _first(given, "eval_dataset", "eval_data")):
        raise Fail("bad_input", "training.early_stop needs a loss on held-out data: set training.eval_split or eval_dataset")
    method = "lora" if kind == "lora_sft" else given.get("method") or ("lora" if given.get("lora") and kind != "sft" else "full")
    model = _model(_first(given, "model", "base_model", "baseModel"))
    adapter = given.get("adapter") or _adapter(model) or ""
    return Plan(
        kind=kind,
        model=model,
        adapter=adapter,
        chat_template=given.get("chat_template") or "",
        dataset=_first(given, "dataset", "data", "prompts"),
        eval_dataset=_first(given, "eval_dataset", "eval_data"),
        method=method,
        task=given.get("task") or ("auto" if kind == "fine_tuning" else "text"),
        training=training,
        lora=_record(Lora, given.get("lora") or {}, "lora"),
        lora_given=bool(given.get("lora")),
        dpo=_record(Dpo, given.get("dpo") or {}, "dpo"),
        ppo=_record(Ppo, given.get("ppo") or {}, "ppo"),
        reward=given.get("reward"),
    )


def written(made: Plan) -> str:
    """A plan as text, for the processes of one training."""
    return json.dumps(asdict(made))


def again(text: str) -> Plan:
    given = json.loads(text)
    parts = {"training": Training, "lora": Lora, "dpo": Dpo, "ppo": Ppo}
    return Plan(**{k: parts[k](**v) if k in parts else v for k, v in given.items()})


def _first(given: Dict[str, Any], *names: str) -> Any:
    found = [n for n in names if given.get(n) is not None]
    if len(found) > 1:
        raise Fail("bad_input", f"{found[0]} and {found[1]} are two names of the same field: remove one")
    return given[found[0]] if found else None


def _model(value: Any) -> Dict[str, Any]:
    """A name, or {source: {identifier}, revision, trust_remote_code, adapters} as in MLOC's specs."""
    if value is None:
        raise Fail("bad_input", "model: required: a folder or archive in the task's folder, or a name of the hub such as org/name")
    if isinstance(value, str):
        return {"name": value}
    source = value.get("source") or {}
    name = value.get("identifier") or value.get("name") or value.get("path") or source.get("identifier")
    if not name:
        raise Fail("bad_input", "model: no identifier: use model: NAME, or model: {identifier: NAME}")
    options = value.get("transformers") or {}
    return {
        "name": name,
        "revision": value.get("revision") or source.get("revision"),
        "trust_remote_code": bool(value.get("trust_remote_code") or options.get("trust_remote_code")),
        "adapters": value.get("adapters") or [],
    }


def _adapter(model: Dict[str, Any]) -> str:
    adapters = model.get("adapters") or []
    if len(adapters) > 1:
        raise Fail("bad_input", "model.adapters: training continues only one adapter, but several are given")
    return (adapters[0].get("path") or adapters[0].get("url") or "") if adapters else ""


def _record(cls: Any, given: Dict[str, Any], where: str) -> Any:
    known = {f.name for f in fields(cls)}
    for name in given:
        if name not in known:
            raise Fail("bad_input", f"{where}.{name} is unknown: use one of {', '.join(sorted(known))}")
    return cls(**{k: v for k, v in given.items() if v is not None})
