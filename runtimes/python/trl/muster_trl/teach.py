"""Trainers: TRL's and Transformers', set up by a plan."""

import os
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional

import torch
from datasets import Dataset
from muster_core import Fail, checkpoint_dir, log
from muster_core import device as devices
from transformers import DataCollatorWithPadding, EarlyStoppingCallback, PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from . import base, launch, rows
from .saves import Whole
from .settings import Plan
from .watch import Finite

# Transformers' name for recomputing activations instead of storing them. TRL's trainers do so by default.
CHECKPOINTING = "activation_checkpointing" if "activation_checkpointing" in TrainingArguments.__dataclass_fields__ else "gradient_checkpointing"


@dataclass
class Course:
    """The inputs of a training, read once; each batch size that is tried gets a trainer from them."""

    plan: Plan
    device: Any
    precision: Any  # torch dtype of the computation
    train: rows.Rows
    held_out: Optional[rows.Rows]
    classes: List[str]  # of a classification, else empty


class Sft(Finite, Whole, SFTTrainer):
    pass


class Dpo(Finite, Whole, DPOTrainer):
    pass


class Classes(Finite, Whole, Trainer):
    pass


def course(plan: Plan, train: rows.Rows, held: "Optional[rows.Rows]") -> Course:
    """Inspect the machine and the classes of the rows. Raises Fail for problems of either."""
    if (local := int(os.environ.get("LOCAL_RANK") or 0)) and torch.cuda.is_available():
        torch.cuda.set_device(local)
    device = devices.pick(plan.training.device)
    precision = _precision(plan.training.precision, device)
    return Course(plan, device, precision, train, held, _classes(train, held) if "label" in train.form else [])


def _precision(asked: str, device: Any) -> Any:
    precision = devices.dtype(asked, device)
    if precision == torch.float16 and device.type != "cuda":
        raise Fail("bad_input", f"training.precision: fp16 needs a GPU, but this task runs on {devices.describe(device)}: use bf16 or fp32, or set resources.gpus")
    if precision == torch.bfloat16 and device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise Fail("bad_input", f"training.precision: {devices.describe(device)} does not support bf16: use fp16 or fp32")
    return precision


def _classes(train: rows.Rows, held: "Optional[rows.Rows]") -> "List[str]":
    names = sorted({str(r["label"]) for r in train.rows}, key=lambda n: (not n.isdigit(), int(n) if n.isdigit() else 0, n))
    if len(names) < 2:
        raise Fail("bad_input", f"dataset: {train.name} has only the label {names[0]}: classification needs at least two")
    for row, place in zip(held.rows, held.places) if held else ():
        if str(row["label"]) not in names:
            raise Fail("bad_input", f"{place} is held out and has the label {row['label']}, which no training row has: add rows with it")
    return names


def trainer(c: Course, batch: int, accumulation: int, callbacks: "List[TrainerCallback]", trial: bool = False) -> Any:
    """A trainer for a batch of this many rows. A trial takes a single step and saves nothing, to see whether it fits."""
    given = arguments(c, batch, accumulation, trial)
    early = c.plan.training.early_stop
    if early and not trial:
        given.update(load_best_model_at_end=True, metric_for_best_model="eval_loss", greater_is_better=False)
        callbacks = [*callbacks, EarlyStoppingCallback(early.get("patience", 3), early.get("min_delta", 0.0))]
    if c.plan.teaches == "ppo":
        from . import ppo

        made = ppo.trainer(c, given)
    else:
        made = _classification(c, given) if c.classes else _preferences(c, given) if c.plan.teaches == "dpo" else _texts(c, given)
    made.remove_callback(PrinterCallback)
    for callback in callbacks:
        made.add_callback(callback)
    return made


def arguments(c: Course, batch: int, accumulation: int, trial: bool) -> "Dict[str, Any]":
    """The arguments of all trainers."""
    t = c.plan.training
    evaluates = c.held_out is not None and not trial and c.plan.teaches != "ppo"
    every = {"eval_strategy": "no"}
    if evaluates:
        every = {"eval_strategy": "steps", "eval_steps": t.eval_steps} if t.eval_steps else {"eval_strategy": "epoch"}  # type: ignore[dict-item]
    saves: "Dict[str, Any]" = {"save_strategy": "steps", "save_steps": t.save_steps or 0.1}
    if t.early_stop:  # the evaluated state must be saved to return to it
        saves = {"save_strategy": every["eval_strategy"], "save_steps": t.eval_steps or 1}
    if trial:
        saves = {"save_strategy": "no"}
    return {
        "output_dir": str(checkpoint_dir()),
        "per_device_train_batch_size": batch,
        "per_device_eval_batch_size": batch,
        "gradient_accumulation_steps": accumulation,
        "num_train_epochs": t.epochs,
        "max_steps": 1 if trial else t.max_steps or -1,
        "learning_rate": c.plan.learning_rate,
        "lr_scheduler_type": "constant_with_warmup" if t.scheduler == "constant" and t.warmup else t.scheduler,
        "warmup_steps": t.warmup,
        "weight_decay": t.weight_decay,
        "max_grad_norm": t.max_grad_norm,
        "seed": t.seed,
        "data_seed": t.seed,
        "bf16": c.precision == torch.bfloat16,
        "fp16": c.precision == torch.float16,
        CHECKPOINTING: t.gradient_checkpointing,
        "logging_steps": t.log_steps or 0.002,
        "logging_first_step": True,
        "logging_nan_inf_filter": False,  # a non-finite loss ends the task: see watch.Finite
        "include_num_input_tokens_seen": "non_padding",
        "use_cpu": c.device.type == "cpu",
        "ddp_backend": "gloo" if c.device.type == "cpu" and launch.world() > 1 else None,
        "ddp_find_unused_parameters": False,
        "save_on_each_node": True,
        "dataloader_pin_memory": c.device.type == "cuda",
        "disable_tqdm": True,
        "report_to": "none",
        **every,
        **saves,
    }


def weights(c: Course) -> Any:
    """The precision in which weights are held: those that learn in full, those that do not in that of the computation."""
    return c.precision if c.plan.method == "lora" else torch.float32


def _texts(c: Course, given: "Dict[str, Any]") -> Any:
    tokens = base.tokenizer(c.plan, chat=_chats(c.train))
    model = base.causal(c.plan, tokens, weights(c))
    most = base.max_length(c.plan, model)

    def length(row: rows.Row) -> int:
        if "messages" in row:
            return len(_templated(tokens, row["messages"]))
        if isinstance(row.get("prompt"), list):
            return len(_templated(tokens, row["prompt"] + row["completion"]))
        return len(tokens(row["text"] if "text" in row else row["prompt"] + row["completion"])["input_ids"]) + 1

    train, held = _cut(c, c.train, most, length), c.held_out and _cut(c, c.held_out, most, length)
    made = Sft(
        model=base.adapted(c.plan, model),
        args=SFTConfig(**given, max_length=most),
        train_dataset=train,
        eval_dataset=held,
        processing_class=tokens,
    )
    left: Any = made.train_dataset
    if not len(left):
        raise Fail("bad_input", f"dataset is empty: within {most} tokens no row is longer than its prompt: raise training.max_length")
    return made


def _preferences(c: Course, given: "Dict[str, Any]") -> Any:
    tokens = base.tokenizer(c.plan, chat=_chats(c.train))
    model = base.causal(c.plan, tokens, weights(c))
    most = base.max_length(c.plan, model)

    def length(row: rows.Row) -> int:
        def of(answer: Any) -> int:
            if isinstance(answer, list):
                return len(_templated(tokens, row.get("prompt", []) + answer))
            return len(tokens(row.get("prompt", "") + answer)["input_ids"]) + 1

        return max(of(row["chosen"]), of(row["rejected"]))

    reference = None
    if c.plan.method == "full":  # with an adapter the model without it is the reference
        reference = base.adapted(c.plan, base.causal(c.plan, tokens, c.precision))
    return Dpo(
        model=base.adapted(c.plan, model),
        ref_model=reference,
        args=DPOConfig(**given, max_length=most, beta=c.plan.dpo.beta, loss_type=[c.plan.dpo.loss], label_smoothing=c.plan.dpo.label_smoothing),
        train_dataset=_cut(c, c.train, most, length),
        eval_dataset=c.held_out and _cut(c, c.held_out, most, length),
        processing_class=tokens,
    )


def _classification(c: Course, given: "Dict[str, Any]") -> Any:
    tokens = base.tokenizer(c.plan, chat=False)
    model = base.classifier(c.plan, tokens, weights(c), c.classes)
    most = base.max_length(c.plan, model)
    number = {name: n for n, name in enumerate(c.classes)}

    def made(part: rows.Rows) -> Any:
        fits = _cut(c, part, most, lambda row: len(tokens(row["text"])["input_ids"]))

        def tokenized(row: rows.Row) -> rows.Row:
            return {**tokens(row["text"], truncation=True, max_length=most), "labels": number[str(row["label"])]}

        return fits.map(tokenized, remove_columns=fits.column_names)

    return Classes(
        model=base.adapted(c.plan, model, "SEQ_CLS"),
        args=TrainingArguments(**given),
        train_dataset=made(c.train),
        eval_dataset=c.held_out and made(c.held_out),
        processing_class=tokens,
        data_collator=DataCollatorWithPadding(tokens),
        compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())},
    )


def _chats(data: rows.Rows) -> bool:
    return any(isinstance(data.rows[0][name], list) for name in data.form)


def _templated(tokens: Any, messages: "List[Any]") -> Any:
    try:
        return tokens.apply_chat_template(messages, tokenize=True, return_dict=False)
    except Exception as e:  # noqa: BLE001 - a template raises what it likes
        raise Fail("bad_input", f"the chat template does not take a row's messages ({', '.join(m['role'] for m in messages)}): {e}") from e


def _cut(c: Course, data: rows.Rows, most: int, length: "Callable[[rows.Row], int]") -> Any:
    """The rows as a data set, with the handling of those that are too long."""
    lengths = [length(row) for row in data.rows]
    long = [n for n, size in enumerate(lengths) if size > most]
    kept = data.rows
    if long:
        what = f"{len(long)} of {len(lengths)} rows are longer than {most} tokens (the longest has {max(lengths)})"
        if c.plan.training.too_long == "fail":
            raise Fail("bad_input", f"dataset: {what}, the first is {data.places[long[0]]}: raise training.max_length, or set training.too_long to truncate or drop")
        if c.plan.training.too_long == "drop":
            kept = [row for row, size in zip(data.rows, lengths) if size <= most]
        log(f"{what}: they are {'left out' if c.plan.training.too_long == 'drop' else 'cut off'}")
    if not kept:
        raise Fail("bad_input", f"dataset is empty: every row is longer than {most} tokens: raise training.max_length")
    return Dataset.from_list(kept)
