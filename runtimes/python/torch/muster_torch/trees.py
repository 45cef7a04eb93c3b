"""Gradient-boosted trees, some iterations at a time, so that progress is reported and a killed task can resume."""

import os
import re
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
from muster_core import Fail, checkpoint_dir, log, report

from .examples import Examples
from .parts import Outcome

Json = Dict[str, Any]

_PARTS = 20


def fit(data: Examples, given: Json) -> "tuple[Any, Outcome]":
    """A model of scikit-learn and its history; an epoch is an iteration, that is a tree for each class."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    iterations, patience = given.get("epochs", 100), given.get("early_stopping", 0)
    options = {
        "learning_rate": given.get("learning_rate", 0.1),
        "random_state": given.get("seed", 0),
        "early_stopping": False,
        "warm_start": True,
        **given.get("model_args", {}),
    }
    try:
        model: Any = (HistGradientBoostingClassifier if data.labels else HistGradientBoostingRegressor)(**options)
    except TypeError as e:
        raise Fail("bad_input", f"model_args: {e}") from None
    out, part = Outcome(), max(1, -(-iterations // _PARTS))
    like = [iterations, patience, data.train.x.shape, data.test.x.shape, sorted((k, str(v)) for k, v in options.items())]
    if (found := _load(like)) is not None:
        model, out = found
        log(f"continuing from the checkpoint, after {out.epochs[-1]['epoch']} iterations")
        out.resumed = out.epochs[-1]["epoch"]
    x, test = (a.reshape(len(a), -1) for a in (data.train.x, data.test.x))
    while not out.stopped and (done := out.epochs[-1]["epoch"] if out.epochs else 0) < iterations:
        model.set_params(max_iter=min(done + part, iterations))
        try:
            model.fit(x, data.train.y)
        except ValueError as e:
            raise Fail("bad_input", f"the trees cannot learn from this: {str(e).splitlines()[0]}") from e
        one: Json = {"epoch": min(done + part, iterations)}
        one["loss"], scores = measure(model, x, data.train.y, data)
        one.update(accuracy=scores["accuracy"]) if data.labels else None
        one["valLoss"], scores = measure(model, test, data.test.y, data)
        one.update({"valAccuracy": scores["accuracy"]} if data.labels else {"valR2": scores["r2"]})
        out.epochs.append(one)
        out.best = min(out.epochs, key=lambda e: e["valLoss"])["epoch"]
        out.stopped = bool(patience) and one["epoch"] < iterations and one["epoch"] - out.best >= patience
        shown = {
            "loss": one["loss"],
            "val_loss": one["valLoss"],
            **({"accuracy": one["accuracy"], "val_accuracy": one["valAccuracy"]} if data.labels else {"val_r2": one["valR2"]}),
        }
        report(one["epoch"] / iterations, f"iteration {one['epoch']}/{iterations}", **shown)
        log(f"iteration {one['epoch']}/{iterations}: " + ", ".join(f"{k} {v:.4f}" for k, v in shown.items()))
        _save(like, model, out)
    return model, out


def measure(model: Any, x: np.ndarray, y: np.ndarray, data: Examples) -> "tuple[float, Json]":
    """Mean loss as the networks have it, and accuracy or R²."""
    if data.labels:
        p = model.predict_proba(x)
        column = {c: i for i, c in enumerate(model.classes_)}
        of = np.array([p[i, column[c]] if c in column else 0 for i, c in enumerate(y)])
        said = model.classes_[p.argmax(1)]
        return float(-np.log(np.clip(of, 1e-15, 1)).mean()), {"accuracy": float((said == y).mean()), "said": said}
    said = model.predict(x)
    error, spread = float(((said - y) ** 2).mean()), float(((y - y.mean()) ** 2).mean())
    return error, {"r2": 1 - error / spread if spread else 0.0, "rmse": error**0.5, "mae": float(np.abs(said - y).mean()), "said": said}


def _save(like: Any, model: Any, out: Outcome) -> None:
    import joblib

    path = Path(checkpoint_dir()) / f"trees-{out.epochs[-1]['epoch']:09d}.joblib"
    part = path.with_name(f".{path.name}.part")
    try:
        joblib.dump({"like": like, "model": model, "outcome": out}, part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    for old in _states()[:-2]:
        old.unlink(missing_ok=True)


def _load(like: Any) -> Any:
    """The newest state of the same training. It is a pickle: it was written by this very task, in its own folder."""
    import joblib

    for path in reversed(_states()):
        try:
            state = joblib.load(path)
        except Exception as e:  # noqa: BLE001 - a torn file can fail in any way, as can another version's
            log(f"the checkpoint {path.name} cannot be read and is skipped: {e}")
            continue
        if state["like"] == like:
            return state["model"], state["outcome"]
    return None


def _states() -> List[Path]:
    return sorted(p for p in Path(checkpoint_dir()).glob("trees-*.joblib") if re.fullmatch(r"trees-\d{9}\.joblib", p.name))
