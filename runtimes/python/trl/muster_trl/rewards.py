"""What a text is worth: the rewards of kind ppo."""

import importlib.util
import math
import re
from pathlib import Path
from typing import Any, Callable, Dict, List

from muster_core import Fail, models

# Prompts, what was written for each, and the rows of the data set that they are from.
Reward = Callable[[List[str], List[str], List[Dict[str, Any]]], List[float]]


def reward(asked: Any, device: Any, trust: bool = False) -> Reward:
    """One reward, or the weighted sum of several."""
    if not asked:
        raise Fail("bad_input", "reward: required: a reward model, keywords, a regex, a length, or a module of yours")
    parts = asked if isinstance(asked, list) else [asked]
    made = [(float(p.get("weight", 1)), _one(p, f"reward[{n}]" if isinstance(asked, list) else "reward", device, trust)) for n, p in enumerate(parts)]

    def total(prompts: "List[str]", texts: "List[str]", data: "List[Dict[str, Any]]") -> "List[float]":
        sums = [0.0] * len(texts)
        for weight, of in made:
            for n, value in enumerate(of(prompts, texts, data)):
                sums[n] += weight * value
        return sums

    return total


def _one(asked: "Dict[str, Any]", field: str, device: Any, trust: bool) -> Reward:
    kinds = [k for k in ("model", "keywords", "regex", "length", "module") if asked.get(k) is not None]
    if len(kinds) != 1:
        raise Fail("bad_input", f"{field}: it must be one of model, keywords, regex, length and module, but is {' and '.join(kinds) or 'none'}")
    value = asked[kinds[0]]
    if kinds[0] == "model":
        return _model(str(value), asked.get("label"), field, device, trust)
    if kinds[0] == "module":
        return _module(str(value), field)
    if kinds[0] == "regex":
        try:
            pattern = re.compile(value)
        except re.error as e:
            raise Fail("bad_input", f"{field}.regex: {value} is not a regular expression: {e}") from e
        return lambda prompts, texts, data: [float(pattern.search(t) is not None) for t in texts]
    if kinds[0] == "keywords":
        words = [w.lower() for w in value]
        return lambda prompts, texts, data: [sum(w in t.lower() for w in words) / len(words) for t in texts]
    return lambda prompts, texts, data: [-abs(len(t) - value) / value for t in texts]  # characters


def _module(value: str, field: str) -> Reward:
    """file.py:function of the user, called as f(prompts, texts, rows)."""
    name, _, function = value.partition(":")
    path = Path(name)
    if not function or path.suffix != ".py":
        raise Fail("bad_input", f"{field}.module: {value} is not FILE.py:FUNCTION")
    if not path.is_file():
        raise Fail("bad_input", f"{field}.module: {name} is not in the task's folder: add it with files or inputs")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as e:
        raise Fail("bad_input", f"{field}.module: {name}, line {e.lineno}: {e.msg}") from e
    call = getattr(module, function, None)
    if not callable(call):
        raise Fail("bad_input", f"{field}.module: {name} has no function {function}")

    def of(prompts: "List[str]", texts: "List[str]", data: "List[Dict[str, Any]]") -> "List[float]":
        values = list(call(prompts, texts, data))
        if len(values) != len(texts):
            raise Fail("bad_input", f"{field}.module: {value} returned {len(values)} rewards for {len(texts)} texts")
        try:
            numbers = [float(v) for v in values]
        except (TypeError, ValueError) as e:
            raise Fail("bad_input", f"{field}.module: {value} returned a value that is not a number: {e}") from e
        if wrong := [n for n in numbers if not math.isfinite(n)]:
            raise Fail("bad_input", f"{field}.module: {value} gave {wrong[0]}")
        return numbers

    return of


def _model(name: str, label: Any, field: str, device: Any, trust: bool) -> Reward:
    """A classifier with one output, or the log-probability of one of its labels."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = models.find(name)
    try:
        tokens = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)
        judge = AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=trust, dtype=torch.float32).to(device).eval()
    except (ValueError, KeyError, OSError) as e:
        if getattr(e, "errno", None):
            raise
        raise Fail("bad_input", f"{field}.model: {name} is not a model that scores texts: {str(e).splitlines()[0]}") from e
    if tokens.pad_token is None:
        tokens.pad_token = tokens.eos_token
    judge.config.pad_token_id = tokens.pad_token_id
    names = judge.config.label2id
    if judge.config.num_labels > 1 and label not in names:
        raise Fail("bad_input", f"{field}.label: {name} distinguishes {', '.join(map(str, names))}: set the good one")
    most = min(tokens.model_max_length, getattr(judge.config, "max_position_embeddings", None) or 1 << 30)

    @torch.no_grad()
    def of(prompts: "List[str]", texts: "List[str]", data: "List[Dict[str, Any]]") -> "List[float]":
        batch = tokens([p + t for p, t in zip(prompts, texts)], padding=True, truncation=True, max_length=most, return_tensors="pt").to(device)
        out = judge(**batch).logits.float()
        values = out[:, 0] if judge.config.num_labels == 1 else out.log_softmax(-1)[:, names[label]]
        return [float(v) for v in values]

    return of
