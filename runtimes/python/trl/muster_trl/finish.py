"""The end of a training: the model as an archive, the figures of all steps, the result."""

import gzip
import json
import math
import os
import shutil
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from muster_core import Fail, checkpoint_dir, log, measured, out_dir, report, save_json
from muster_core.fetch import size

from . import saves
from .settings import Plan
from .watch import ruined, shown

_FAR = 1.0  # nats that a token of an answer is less likely to the model that was begun with


def packed(folder: Path, name: str, to: Path) -> Path:
    """A .tar.gz of a folder under a name. The same files make the same bytes. Whole or not there."""
    path = to / f"{name}.tar.gz"
    part = to / f".{path.name}.part"
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    total, done, reported_at = sum(p.stat().st_size for p in files) or 1, 0, 0.0
    try:
        # Weights hardly get smaller, so little time is given to it.
        with open(part, "wb") as raw, gzip.GzipFile("", "wb", 1, raw, mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for file in files:
                entry = tarfile.TarInfo(f"{name}/{file.relative_to(folder).as_posix()}")
                entry.size, entry.mode = file.stat().st_size, 0o644
                with open(file, "rb") as f:
                    tar.addfile(entry, f)
                done += entry.size
                if time.monotonic() - reported_at > 1:
                    reported_at = time.monotonic()
                    report(0.98 + 0.02 * done / total, f"packing {path.name}: {size(done)} of {size(total)}")
        os.replace(part, path)
    except OSError as e:
        if saves.full(to):
            raise Fail("disk_full", f"the disk is full: {path.name} cannot be written; the checkpoint of the last step is kept") from e
        raise
    finally:
        part.unlink(missing_ok=True)
    return path


def result(plan: Plan, trainer: Any, course: Any, began: float, resumed: "Optional[Path]") -> "Dict[str, Any]":
    """Write the artifacts of a finished training, and return its result."""
    state, out = trainer.state, out_dir()
    history = [{"step": e["step"], "epoch": e.get("epoch"), **shown(e)} for e in state.log_history]
    steps, evaluations = [e for e in history if "loss" in e], [e for e in history if any(k.startswith("eval_") for k in e)]
    save_json("metrics.json", measured({"steps": steps, "evaluations": evaluations}))
    warnings = _judged(plan, trainer, course, steps)
    report(0.98, f"packing {plan.final}.tar.gz")
    archive = _model(plan, trainer, out)
    checkpoint = _checkpoint(plan, out)
    final = _final(steps, evaluations)
    counted = _weights(trainer)
    seconds = round(time.monotonic() - began, 3)
    data: "Dict[str, Any]" = {"epoch": round(state.epoch or 0, 4), "loss": final.get("finalLoss")}
    if (accuracy := final.get("evalAccuracy", final.get("evalPreferred"))) is not None:
        data["validation_accuracy"] = accuracy
    archived = {f"{plan.final}_archive": archive.name, f"{plan.final}_archive_bytes": archive.stat().st_size}
    url = {f"{plan.final}_archive_url": f"artifact://{{{archive.name}}}"}
    made = {
        "jobType": "fine-tuning" if plan.kind == "fine_tuning" else plan.kind,
        "status": "success",
        "modelUrl": f"ipfs://{{{archive.name}}}",
        "finalMetrics": final,
        "computationData": data,
        "model": plan.model["said"],
        "method": plan.method,
        "steps": state.global_step,
        "tokens": int(state.num_input_tokens_seen),
        "seconds": seconds,
        "dataset_size": len(course.train),
        "trainable_parameters": counted[0],
        "parameters": counted[1],
        "batch_size": trainer.args.per_device_train_batch_size,
        "gradient_accumulation": trainer.args.gradient_accumulation_steps,
        "processes": trainer.args.world_size,
        **archived,
        **url,
    }
    if checkpoint:
        made["checkpointUrl"] = f"ipfs://{{{checkpoint.name}}}"
    if course.classes:
        made["labels"] = course.classes
    if warnings:
        made["warnings"] = warnings
    # Paths are relative to this file's folder: the worker removes the task's own folders at its end.
    responses = {
        "task_id": os.environ.get("MUSTER_TASK"),
        "training_successful": True,
        "training_time_seconds": seconds,
        "error_message": None,
        "model_name": plan.model["said"],
        "dataset_size": len(course.train),
        "output_dir": ".",
        "checkpoints_dir": None,
        "resume_from_path": resumed.name if resumed else None,
        f"{plan.final}_archive_path": archive.name,
        **archived,
    }
    (out / "responses.json").write_text(json.dumps(responses), encoding="utf-8")
    report(1, "done")
    return dict(measured(made))


def _judged(plan: Plan, trainer: Any, course: Any, steps: "List[Dict[str, Any]]") -> "List[str]":
    """What is doubtful about the training. Ends the task if the model is useless now."""
    if plan.teaches == "ppo":  # its loss is not a measure of the model
        now = steps[-1] if steps else {}
        far = now.get("kl", 0) / max(now.get("answer_tokens") or 1, 1)
        if far <= _FAR:
            return []
        reported_at = f"the model is far from the original one (kl is {far:.3g} per token): it may write text that only maximizes the reward: raise ppo.kl_coef, or lower learning_rate"
        log(f"warning: {reported_at}")
        return [reported_at]
    if plan.training.early_stop:  # then the best one is kept
        return []
    choices = len(course.classes) or (2 if plan.teaches == "dpo" else trainer.model.config.get_text_config().vocab_size)
    found = ruined([s["loss"] for s in steps], trainer.state.logging_steps, math.log(choices))
    if found:
        first, last = found
        raise Fail(
            "diverged",
            f"the loss rose from {first:.4g} to {last:.4g}, where guessing gives {math.log(choices):.4g}: the training has ruined the model, and it is not kept: "
            f"lower learning_rate (it was {plan.learning_rate:g}), or add warmup; metrics.json has the loss of each step",
        )
    return []


def _model(plan: Plan, trainer: Any, out: Path) -> Path:
    where = Path(tempfile.mkdtemp(prefix="final-", dir="."))
    try:
        model = trainer.accelerator.unwrap_model(trainer.model)
        model = getattr(model, "lm", model)  # of ppo
        if plan.method == "lora":
            for config in model.peft_config.values():
                config.base_model_name_or_path = plan.model["said"]
            model.save_pretrained(where, selected_adapters=["default"])
        else:
            model.config._name_or_path = plan.model["said"]
            model.save_pretrained(where)
        trainer.processing_class.save_pretrained(where)
        (where / "README.md").unlink(missing_ok=True)  # peft's form to be filled in
        return packed(where, plan.final, out)
    except Exception as e:
        if not isinstance(e, Fail) and saves.full(where):
            raise Fail("disk_full", f"the disk is full: {plan.final} cannot be written; the checkpoint of the last step is kept") from e
        raise
    finally:
        shutil.rmtree(where, ignore_errors=True)


def _checkpoint(plan: Plan, out: Path) -> "Optional[Path]":
    found = saves.whole(Path(checkpoint_dir())) if plan.keeps_checkpoint else []
    return packed(found[-1], "checkpoint", out) if found else None


def _final(steps: "List[Dict[str, Any]]", evaluations: "List[Dict[str, Any]]") -> "Dict[str, float]":
    """The last figures of training and evaluation, in the spelling of the guides."""
    final = {}
    for prefix, entry in (("final", steps[-1:]), ("", evaluations[-1:])):
        for name, value in entry[0].items() if entry else ():
            if name not in ("step", "epoch", "learning_rate", "grad_norm") and isinstance(value, float):
                words = f"{prefix}_{name}".strip("_").split("_")
                final[words[0] + "".join(w.capitalize() for w in words[1:])] = value
    return final


def _weights(trainer: Any) -> "tuple[int, int]":
    learn = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    return learn, sum(p.numel() for p in trainer.model.parameters())


def remains() -> None:
    """Say what a failed training leaves."""
    if found := saves.whole(Path(checkpoint_dir())):
        log(f"{found[-1].name} is kept: a retry continues from it")
